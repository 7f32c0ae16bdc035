"""Builders of lines of the brokers' request log: pushes, heartbeats, describes and deletions of streams groups."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from typing import Any

BEGIN = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
KEYS = {
    "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE": (93, 0),
    "STREAMS_GROUP_HEARTBEAT": (88, 1),
    "STREAMS_GROUP_DESCRIBE": (89, 1),
    "DELETE_GROUPS": (42, 3),
    "METADATA": (3, 13),
}
_numbers = count(1)


def at(seconds: float = 0.0) -> datetime:
    """The time this many seconds after the test's beginning."""
    return BEGIN + timedelta(seconds=seconds)


def exchange(
    api: str,
    seconds: float,
    request: Mapping[str, Any],
    response: Mapping[str, Any],
    number: int | None = None,
    version: int | None = None,
    client: str = "app-1",
    connection: str = "127.0.0.1:9092-127.0.0.1:50000-0-1",
) -> str:
    """One line as ``kafka.request.logger`` of a 4.4 broker writes it at DEBUG."""
    key, newest = KEYS.get(api, (999, 0))
    version = newest if version is None else version
    number = next(_numbers) if number is None else number
    body = {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": key,
            "requestApiVersion": version,
            "correlationId": number,
            "clientId": client,
            "requestApiKeyName": api,
        },
        "request": dict(request),
        "response": {"throttleTimeMs": 0, **response},
        "connection": connection,
        "totalTimeMs": 9.008,
        "requestQueueTimeMs": 1.561,
        "localTimeMs": 7.161,
        "remoteTimeMs": 0.0,
        "throttleTimeMs": 0,
        "responseQueueTimeMs": 0.205,
        "sendTimeMs": 0.079,
        "securityProtocol": "PLAINTEXT",
        "principal": "User:ANONYMOUS",
        "listener": "PLAINTEXT",
        "clientInformation": {"softwareName": "apache-kafka-java", "softwareVersion": "4.4.0"},
    }
    return logged(
        seconds, f"Completed request:{json.dumps(body, separators=(',', ':'))} (kafka.request.logger)", "DEBUG"
    )


def logged(seconds: float, message: str, level: str = "ERROR") -> str:
    """An event of a broker's log; the message can have several lines."""
    moment = at(seconds)
    return f"[{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03}] {level} {message}"


def node(name: str, node_type: int = 2, successors: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """A node in the wire schema."""
    empty: dict[str, Any] = {"sourceTopics": [], "sinkTopic": None, "stores": []}
    return {"name": name, "nodeType": node_type, **empty, **more, "successors": list(successors)}


def description(*subtopologies: Sequence[dict[str, Any]], stores: Sequence[tuple[Any, Any]] = ()) -> dict[str, Any]:
    """A topology description in the wire schema, with subtopologies numbered from 0."""
    return {
        "subtopologies": [{"subtopologyId": str(id_), "nodes": list(nodes)} for id_, nodes in enumerate(subtopologies)],
        "globalStores": [{"source": source, "processor": processor} for source, processor in stores],
    }


def chain(names: Sequence[str], source: str, sink: str, stores: Sequence[str] = ()) -> dict[str, Any]:
    """A topology of nodes in a line, from a topic to another one; the first processor has the stores."""
    first = node(names[0], 1, [names[1]], sourceTopics=[source])
    processors = [node(name, 2, [after]) for name, after in pairwise(names[1:])]
    for processor in processors[:1]:
        processor["stores"] = list(stores)
    return description([first, *processors, node(names[-1], 3, sinkTopic=sink)])


def passing(source: str = "in", sink: str = "out", processor: str = "filter") -> dict[str, Any]:
    """A topology of three nodes: source, processor, sink."""
    return chain(["source", processor, "sink"], source, sink)


def push(
    seconds: float,
    group: str = "app",
    member: str = "m1",
    epoch: int = 0,
    error: int = 0,
    message: str | None = None,
    topology: Mapping[str, Any] | None = None,
    number: int | None = None,
    throttle: int = 0,
) -> str:
    """A push of a topology description."""
    request = {"groupId": group, "memberId": member, "topologyEpoch": epoch}
    wire = passing() if topology is None else topology
    answer = {"throttleTimeMs": throttle, "errorCode": error, "errorMessage": message}
    api = "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE"
    return exchange(api, seconds, {**request, "topologyDescription": wire}, answer, number)


def heartbeat(
    seconds: float,
    group: str = "app",
    member: str = "m1",
    member_epoch: int = 0,
    topology_epoch: int | None = 0,
    required: bool = False,
    error: int = 0,
    statuses: Sequence[int] | None = None,
) -> str:
    """A heartbeat: member epoch 0 joins, -1 and -2 leave, others are steady; ``statuses`` None: as the last ones."""
    topology = None if topology_epoch is None else {"epoch": topology_epoch, "subtopologies": []}
    request = {"groupId": group, "memberId": member, "memberEpoch": member_epoch, "topology": topology}
    said = None if statuses is None else [{"statusCode": code, "statusDetail": f"status {code}"} for code in statuses]
    answer = {"errorCode": error, "errorMessage": None, "status": said, "topologyDescriptionRequired": required}
    return exchange("STREAMS_GROUP_HEARTBEAT", seconds, request, answer)


def steady(seconds: float, group: str = "app", member: str = "m1", **more: Any) -> str:
    """A heartbeat that only tells that the member lives."""
    return heartbeat(seconds, group, member, 2, None, **more)


def described(
    group: str = "app", status: int | None = 3, epoch: int = 0, error: int = 0, **more: Any
) -> dict[str, Any]:
    """What a describe response says about one group; ``status`` None leaves the status out, as versions before 1 do."""
    said: dict[str, Any] = {"errorCode": error, "errorMessage": None, "groupId": group, "groupState": "Stable"}
    said |= {"groupEpoch": 1, "topology": None if error else {"epoch": epoch, "subtopologies": []}, "members": []}
    said |= {} if status is None else {"topologyDescriptionStatus": status}
    return said | {"topologyDescription": passing() if status == 3 else None} | more


def describe(seconds: float, *groups: Mapping[str, Any], requested: bool = True, number: int | None = None) -> str:
    """A describe request for groups, and its response."""
    request = {"groupIds": [group["groupId"] for group in groups], "includeTopologyDescription": requested}
    return exchange("STREAMS_GROUP_DESCRIBE", seconds, request, {"groups": list(groups)}, number)


def delete(seconds: float, group: str = "app", error: int = 0, version: int | None = None) -> str:
    """A deletion request for a group, and its response."""
    result = {"groupId": group, "errorCode": error, "errorMessage": None}
    return exchange("DELETE_GROUPS", seconds, {"groupsNames": [group]}, {"results": [result]}, version=version)
