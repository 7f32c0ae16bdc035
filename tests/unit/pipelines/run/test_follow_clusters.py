"""A process that follows several clusters leaves out the one that is away, longer and longer, and says so once."""

from __future__ import annotations

import socket
from pathlib import Path

from pipelines.errors import ClustersLeft, EnvironmentLacking
from pipelines.run.follow import MOST_PATIENCE_SECONDS, Follower
from pipelines.run.stop import Stop
from pipelines.settings import load


def follower(tmp_path: Path, said: list[str], at: list[float], *servers: str) -> Follower:
    entries = [
        {"name": name, "kafka": {"bootstrap_servers": item, "timeout_seconds": 1}, "dlq": {"source": "kafka"}}
        for name, item in zip(("eu", "us"), servers, strict=True)
    ]
    settings = load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path), cluster=entries)

    def no_session(_: object) -> None:
        raise AssertionError

    return Follower(
        settings,
        (),
        every_seconds=1.0,
        health=tmp_path / "health",
        sessions=no_session,  # type: ignore[arg-type]
        stop=Stop(),
        say=said.append,
        report=lambda _: None,
        show=lambda _: None,
        clock=lambda: at[0],
    )


def test_a_cluster_is_left_out_longer_and_longer_until_its_broker_listens(tmp_path: Path) -> None:
    said: list[str] = []
    at = [0.0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    following = follower(tmp_path, said, at, "127.0.0.1:9", f"127.0.0.1:{port}")
    following._tell_away(ClustersLeft({"us": EnvironmentLacking("It does not answer.")}))
    assert (following._still_away(), following._all_away) == ({"us"}, False)
    waited = []
    for _ in range(8):
        before = at[0]
        at[0] = following.away["us"].due
        waited.append(at[0] - before)
        assert following._still_away() == {"us"}
    assert waited == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, MOST_PATIENCE_SECONDS, MOST_PATIENCE_SECONDS]
    assert [sentence.partition("(")[0] for sentence in said] == [
        "Cluster us: It does not answer. It is tried again.",
        "Cluster us: No broker can be reached ",
    ]
    following._tell_away(ClustersLeft({"eu": EnvironmentLacking("It does not answer.")}))
    assert following._all_away
    assert following._away_since == following.away["eu"].since
    following._tell_back({"us"})
    assert said[-1].startswith("Cluster eu works again, after it failed since ")
    assert following.away.keys() == {"us"}
