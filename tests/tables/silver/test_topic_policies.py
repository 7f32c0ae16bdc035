"""What settings and a cluster say about a topic's log, and when a run must ask again; real Delta, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.errors import UsageError
from pipelines.settings import Settings, load
from pipelines.silver import topic_policies
from pipelines.sources import segments
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import at, store

TABLE = "silver.topic_policies"


def row(setting: str | None = None, cluster: str | None = None, **more: Any) -> dict[str, Any]:
    said = {"setting_policy": setting, "cluster_policy": cluster, "observed_at": None if cluster is None else at()}
    known = {"cluster": "default", "topic": "orders", **said}
    return {**known, **topic_policies._in_effect(known), **more}


@pytest.mark.parametrize(
    ("setting", "cluster", "source", "is_compacted"),
    [
        (None, None, None, None),
        ("delete", None, "setting", False),
        (None, "delete", "cluster", False),
        ("", "delete", "setting", False),
        ("compact", None, "setting", True),
        ("delete", "compact", "cluster", True),  # in doubt compacted, so that nothing counts as lost
        ("compact", "delete", "setting", True),
        ("delete", "compact,delete", "cluster", True),
        (None, "", "cluster", False),
    ],
)
def test_which_policy_counts(
    setting: str | None, cluster: str | None, source: str | None, is_compacted: bool | None
) -> None:
    found = row(setting, cluster)

    assert (found["source"], found["is_compacted"]) == (source, is_compacted)
    assert found["cleanup_policy"] == {None: None, "setting": setting, "cluster": cluster}[source]


@pytest.mark.parametrize(
    ("setting", "cluster", "policy"),
    [(None, None, "compact"), ("delete", "delete", "compact"), ("delete", "compact,delete", "compact,delete")],
)
def test_a_log_that_shows_compaction_counts_whatever_else_is_said(
    setting: str | None, cluster: str | None, policy: str
) -> None:
    found = topic_policies._in_effect(row(setting, cluster), log_shows_compaction=True)

    assert found == {"cleanup_policy": policy, "source": "log", "is_compacted": True}


@pytest.mark.parametrize(
    ("known", "given", "is_stale"),
    [
        pytest.param(row(), [], False, id="nothing is said"),
        pytest.param(row(), [("orders", "delete")], True, id="a setting is new"),
        pytest.param(row(), [("order", "delete"), ("*.orders", "delete")], False, id="settings of others"),
        pytest.param(row("delete"), [("ord*", "delete")], False, id="as it was"),
        pytest.param(row("delete"), [], True, id="a setting is gone"),
        pytest.param(row("delete"), [("*", "compact"), ("orders", "delete")], True, id="the first that matches counts"),
        pytest.param(row("compact,delete"), [("*", "delete, compact")], False, id="the order of words"),
        pytest.param(row(cluster="compact"), [], False, id="what a cluster said stays"),
        pytest.param(
            row("delete") | {"cleanup_policy": "compact", "source": "log", "is_compacted": True},
            [("*", "delete")],
            False,
            id="what a log shows stays",
        ),
        pytest.param(row(cluster="compact"), [("*", "delete")], True, id="a setting beside a cluster"),
        pytest.param(row(cluster="x", topic="o\n]r[", **{}), [("o?]r[", "compact")], True, id="an odd name"),
        pytest.param(row("delete", cluster=None) | {"cluster": "second"}, [], False, id="another cluster's"),
    ],
)
def test_a_run_is_due_where_settings_say_something_else(
    known: dict[str, Any], given: list[tuple[str, str]], is_stale: bool, settings: Settings
) -> None:
    store(settings, TABLE, row(topic="never", cluster=None) | {"cluster": "third"})
    store(settings, TABLE, known)
    policies = [{"topic": topic, "policy": policy} for topic, policy in given]
    told = load(warehouse=settings.warehouse, landing=settings.landing, segments={"cleanup_policy": policies})

    assert topic_policies.is_stale(Warehouse(told)) is is_stale


@pytest.mark.parametrize("policy", ["deleted", "compact;delete", "compact,,keep", None])
def test_a_policy_that_kafka_does_not_know_is_refused(policy: str | None) -> None:
    with pytest.raises(UsageError, match=r"segments\.cleanup_policy\.0\.policy cannot be used"):
        load(segments={"cleanup_policy": [{"topic": "*", "policy": policy}]})


def test_properties_beside_segments_say_a_topics_policy(settings: Settings) -> None:
    store(settings, TABLE, *(row(topic=topic) for topic in ("orders", "orders-eu", "state", "printed", "odd", "never")))
    store(settings, TABLE, row("delete", topic="told"))
    for log, text in {
        "orders-0": "# of the topic\nretention.ms=1\ncleanup.policy = delete\r\n",
        "orders-eu-0": "cleanup.policy=compact, delete\n",
        "state-0": "cleanup.policy=delete",
        "state-1": "cleanup.policy: compact\n",
        "printed-0": "Dynamic configs for topic printed are:\n  cleanup.policy=compact,delete sensitive=false"
        " synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}\n",
        "odd-0": "cleanup.policy=shred\n",
        "never": "cleanup.policy=delete\n",
        "told-0": "cleanup.policy=delete\n",
    }.items():
        directory = settings.landing_of("segments") / log
        directory.mkdir(parents=True)
        (directory / "topic.properties").write_bytes(text.encode())

    def said(settings: Settings) -> dict[str, tuple[str | None, bool | None]]:
        rows = jvmless.rows(Warehouse(settings), TABLE, {"cluster": "default"})
        changed = topic_policies._changed(Warehouse(settings), rows)
        return {row["topic"]: (row["cleanup_policy"], row["is_compacted"]) for row in changed}

    assert topic_policies.is_stale(Warehouse(settings))
    known = {"orders": ("delete", False), "orders-eu": ("compact,delete", True), "state": ("compact", True)}
    known |= {"printed": ("compact,delete", True)}
    assert said(settings) == known
    given = {"cleanup_policy": [{"topic": "state", "policy": "delete"}]}
    told = load(warehouse=settings.warehouse, landing=settings.landing, segments=given)
    assert said(told) == known | {"state": ("delete", False)}
    assert segments.unread(settings.landing_of("segments"), {}) == {}
