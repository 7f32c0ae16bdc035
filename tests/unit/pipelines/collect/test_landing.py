"""What collecting lands: lines that the feeds read, and what it says where it cannot ask."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipelines.collect import describes, state
from pipelines.collect.asking import Answer, Subject
from pipelines.collect.landing import collect, with_waiting
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.jvm import jars
from pipelines.settings import Settings, load
from pipelines.sources.logs import layouts
from pipelines.warehouse import progress
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import store

NOW = datetime(2026, 11, 21, 12, 0, 0, 7000, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(servers: str, settings: Settings) -> Settings:
    return load(warehouse=settings.warehouse, landing=settings.landing, kafka={"bootstrap_servers": servers})


def test_without_a_cluster_it_says_which_setting_is_missing(settings: Settings) -> None:
    with pytest.raises(UsageError, match="set bootstrap_servers under"):
        collect(settings)


def test_without_jars_it_says_what_to_run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "fault", lambda *_: "In .jars broker/kafka-clients.jar is missing")
    with pytest.raises(EnvironmentLacking, match=r"kafka-clients.jar is missing; run `make setup`\."):
        collect(at("127.0.0.1:1", settings))


def test_a_landing_directory_that_cannot_be_written_is_said(settings: Settings) -> None:
    settings.landing_of("cluster-settings").parent.mkdir()
    settings.landing_of("cluster-settings").write_text("a file")
    with pytest.raises(EnvironmentLacking, match="cluster-settings cannot be written"):
        collect(at("127.0.0.1:1", settings))


@pytest.mark.parametrize("text", [None, "no JSON", "[]", '{"default": {"asked_at": "yesterday"}}'])
def test_a_lost_or_damaged_memory_is_none(text: str | None, settings: Settings) -> None:
    directory = settings.landing_of(state.DIRECTORY)
    directory.mkdir(parents=True)
    if text is not None:
        (directory / state.FILE).write_text(text)
    assert state.asked_at(settings) is None


def test_a_description_becomes_a_line_of_the_request_log() -> None:
    edges: dict[str, Any] = {"successors": [], "predecessors": []}
    nodes = [
        {"name": "source", "topics": ["b", "a"], **edges, "successors": ["processor"]},
        {"name": "processor", "stores": ["x"], **edges, "successors": ["sink", "dynamic"]},
        {"name": "sink", "topic": "out", **edges},
        {"name": "dynamic", "topic": None, **edges},
    ]
    group = {
        "groupId": "app",
        "groupState": "NOT_READY",
        "groupEpoch": 3,
        "topologyEpoch": 1,
        "members": [{"memberId": "m", "host": "h"}],
        "topologyDescription": {
            "subtopologies": [{"id": "2", "nodes": nodes}],
            "globalStores": [{"source": nodes[0], "processor": nodes[1]}],
        },
        "topologyDescriptionStatus": "AVAILABLE",
    }
    response = describes.response(group)
    assert (response["groupState"], response["topologyDescriptionStatus"]) == ("NotReady", 3)
    (part,) = response["topologyDescription"]["subtopologies"]
    assert [(row["nodeType"], row["sourceTopics"], row["sinkTopic"], row["stores"]) for row in part["nodes"]] == [
        (1, ["a", "b"], None, []),
        (2, [], None, ["x"]),
        (3, [], "out", []),
        (3, [], None, []),
    ]
    assert part["nodes"][1]["successors"] == ["dynamic", "sink"]
    assert response["topologyDescription"]["globalStores"][0]["processor"]["name"] == "processor"
    first, second = describes.lines([response, describes.absent("gone")], NOW)
    said = layouts.parts(first)
    assert said
    assert (said.at, said.offset) == (NOW.replace(tzinfo=None), timedelta())
    exchange = json.loads(first[first.index("{") : first.rindex("}") + 1])
    assert exchange["requestHeader"]["requestApiKeyName"] == "STREAMS_GROUP_DESCRIBE"
    assert exchange["response"]["groups"] == [response]
    assert '"errorCode":69' in second
    later = response | {"groupEpoch": 9, "members": []}
    assert describes.unchanging(later) == describes.unchanging(response)
    assert describes.unchanging(response | {"topologyDescriptionStatus": 1}) != describes.unchanging(response)


@pytest.mark.parametrize(
    ("newest", "read", "kept", "said"),
    [
        pytest.param(-1, -2, HOUR, "true", id="a record waits for longer than it is kept"),
        pytest.param(-1, -2, 3 * HOUR, "false", id="it is kept for longer"),
        pytest.param(-3, -2, HOUR, "false", id="nothing waits"),
        pytest.param(-1, -2, None, "false", id="it is kept for ever"),
        pytest.param(-1, None, HOUR, None, id="nobody knows when the topic was read"),
        pytest.param(None, -2, HOUR, None, id="the topic is empty"),
    ],
)
@pytest.mark.parametrize("source", ["files", "kafka"])
def test_dead_letters_that_wait_too_long_are_told(
    newest: int | None, read: int | None, kept: timedelta | None, said: str | None, source: str, settings: Settings
) -> None:
    told = load(
        warehouse=settings.warehouse,
        landing=settings.landing,
        dlq={"source": source},
        kafka={"bootstrap_servers": "a:1"},
    )
    if read is not None and source == "files":
        store(told, "bronze.dlq_records", {"cluster": "default", "_ingested_at": NOW + read * HOUR})
    if read is not None and source == "kafka":
        progress.note_read(Warehouse(told), "bronze.dlq_records", ["dlq.a"], NOW + read * HOUR)
    retention = "-1" if kept is None else str(round(kept.total_seconds() * 1000))
    values = {"retention.ms": (retention, None), "is_outrun": (None, None)}
    subjects = [Subject(kind, "dlq.a", "present", values) for kind in ("topic", "group")]
    answer = Answer(NOW, subjects)
    if newest is not None:
        answer.newest_at["dlq.a"] = round((NOW + newest * HOUR).timestamp() * 1000)

    topic, group = with_waiting(told, answer)

    assert topic.value("is_outrun") == said
    assert group.value("is_outrun") is None
