"""Requests that kafka-clients does not send: those of members of streams groups (KIP-1071, KIP-1331).

Requests and responses have the form of Kafka's request log: JSON of the wire's schema.
"""

from __future__ import annotations

import json
import socket
import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Self

from local.kafka_client import KafkaClient
from pipelines.errors import EnvironmentLacking

_TIMEOUT_SECONDS, _AGAIN_SECONDS = 20.0, 0.2
_UNREADY = (14, 15, 16)


class Connection:
    """A connection to a broker's plain listener, with one request at a time; errors are in the responses."""

    def __init__(self, client: KafkaClient, client_id: str) -> None:
        """Connect to the first of the client's bootstrap servers; raises EnvironmentLacking: it cannot be reached."""
        self._client = client
        self._client_id = client_id
        self._numbers = count(1)
        host, _, port = client.bootstrap_servers.partition(",")[0].rpartition(":")
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS)
        except OSError as error:
            raise EnvironmentLacking(f"The broker at {host}:{port} cannot be reached: {error.strerror}.") from None
        self._stream = self._socket.makefile("rb")
        software = {"clientSoftwareName": "apache-kafka-java", "clientSoftwareVersion": "4.4.0"}
        self.exchange("API_VERSIONS", 3, software)  # so that the broker knows and logs the client's software

    def __enter__(self) -> Self:
        """Return this connection."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close this connection."""
        self._stream.close()
        self._socket.close()

    def exchange(self, api: str, version: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return its response; fields that ``body`` leaves out have the schema's defaults."""
        kafka = self._client.jvm.org.apache.kafka.common
        kind = kafka.message.ApiMessageType.valueOf(api)
        name = "".join(part.capitalize() for part in api.split("_"))
        requests = getattr(kafka.message, f"{name}RequestDataJsonConverter")
        responses = getattr(kafka.message, f"{name}ResponseDataJsonConverter")

        defaults = json.loads(requests.write(kind.newRequest(), version).toString())
        request = requests.read(self._client.json.readTree(json.dumps({**defaults, **body})), version)
        key = kafka.protocol.ApiKeys.forId(kind.apiKey())
        header = kafka.requests.RequestHeader(key, version, self._client_id, next(self._numbers))
        frame = kafka.requests.RequestUtils.serialize(header.data(), header.headerVersion(), request, version).array()
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

        (size,) = struct.unpack(">i", self._read(4))
        answer = self._client.jvm.java.nio.ByteBuffer.wrap(self._read(size))
        kafka.requests.ResponseHeader.parse(answer, kind.responseHeaderVersion(version))
        response = kind.newResponse()
        response.read(kafka.protocol.ByteBufferAccessor(answer), version)
        decoded: dict[str, Any] = json.loads(responses.write(response, version).toString())
        return decoded

    def join(self, group: str, member: str, description: Mapping[str, Any], epoch: int = 0) -> dict[str, Any]:
        """Join a streams group with the topology of a description."""
        body = {
            "groupId": group,
            "memberId": member,
            "memberEpoch": 0,
            "rebalanceTimeoutMs": 300_000,
            "processId": str(uuid.uuid5(uuid.NAMESPACE_OID, member)),
            "topology": {"epoch": epoch, "subtopologies": _subtopologies(group, description["subtopologies"])},
            **{name: [] for name in ("activeTasks", "standbyTasks", "warmupTasks")},
            **{name: [] for name in ("clientTags", "taskOffsets", "taskEndOffsets")},
        }
        return self._of_groups([group], "STREAMS_GROUP_HEARTBEAT", 1, body)

    def heartbeat(self, group: str, member: str, member_epoch: int) -> dict[str, Any]:
        """Send the heartbeat of a member that has joined; epoch -1 leaves the group."""
        body = {"groupId": group, "memberId": member, "memberEpoch": member_epoch}
        return self._of_groups([group], "STREAMS_GROUP_HEARTBEAT", 1, body)

    def leave(self, group: str, member: str) -> dict[str, Any]:
        """Leave a streams group."""
        return self.heartbeat(group, member, -1)

    def push(self, group: str, member: str, description: Mapping[str, Any], epoch: int = 0) -> dict[str, Any]:
        """Push a topology description, in the wire's schema."""
        body = {"groupId": group, "memberId": member, "topologyEpoch": epoch, "topologyDescription": dict(description)}
        return self._of_groups([group], "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE", 0, body)

    def describe(self, *groups: str, topology: bool = True) -> list[dict[str, Any]]:
        """Describe streams groups, with or without their topology descriptions; return the response for each group."""
        body = {"groupIds": list(groups), "includeTopologyDescription": topology}
        described: list[dict[str, Any]] = self._of_groups(groups, "STREAMS_GROUP_DESCRIBE", 1, body)["groups"]
        return described

    def delete(self, *groups: str) -> list[dict[str, Any]]:
        """Delete groups; return the result for each group."""
        body = {"groupsNames": list(groups)}
        results: list[dict[str, Any]] = self._of_groups(groups, "DELETE_GROUPS", 3, body)["results"]
        return results

    def _of_groups(self, groups: Sequence[str], api: str, version: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request about groups, and repeat it until their coordinator is ready, as Kafka's clients do."""
        until = time.monotonic() + _TIMEOUT_SECONDS
        if any(groups):  # a request without a group id is refused without a coordinator
            coordinators = {"keyType": 0, "coordinatorKeys": [group for group in groups if group]}
            while _unready(self.exchange("FIND_COORDINATOR", 6, coordinators)) and time.monotonic() < until:
                time.sleep(_AGAIN_SECONDS)
        while _unready(response := self.exchange(api, version, body)) and time.monotonic() < until:
            time.sleep(_AGAIN_SECONDS)
        return response

    def _read(self, size: int) -> bytes:
        try:
            read = self._stream.read(size)
        except OSError as error:
            raise EnvironmentLacking(f"The broker did not answer: {error.strerror or error}.") from None
        if len(read) < size:
            raise EnvironmentLacking("The broker closed the connection instead of answering.")
        return read


def _unready(response: Mapping[str, Any]) -> bool:
    """Tell whether the coordinator of any group is loading, not available or on another broker."""
    parts = [response, *(part for name in ("groups", "results", "coordinators") for part in response.get(name, ()))]
    return any(part.get("errorCode") in _UNREADY for part in parts)


def _subtopologies(group: str, described: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the subtopologies that a member sends when it joins; internal topics have the group's name in theirs."""
    internal = f"{group}-"
    subtopologies = []
    for subtopology in described:
        nodes = subtopology["nodes"]
        sources = [topic for node in nodes for topic in node["sourceTopics"]]
        sinks = [node["sinkTopic"] for node in nodes if node["sinkTopic"]]
        stores = sorted({store for node in nodes for store in node["stores"]})
        subtopologies.append(
            {
                "subtopologyId": subtopology["subtopologyId"],
                "sourceTopics": [topic for topic in sources if not topic.startswith(internal)],
                "sourceTopicRegex": [],
                "stateChangelogTopics": [_topic(f"{internal}{store}-changelog", compacted=True) for store in stores],
                "repartitionSinkTopics": [topic for topic in sinks if topic.startswith(internal)],
                "repartitionSourceTopics": [
                    _topic(topic, partitions=2) for topic in sources if topic.startswith(internal)
                ],
                "copartitionGroups": [],
            }
        )
    return subtopologies


def _topic(name: str, partitions: int = 0, compacted: bool = False) -> dict[str, Any]:
    settings = [{"key": "cleanup.policy", "value": "compact"}] if compacted else []
    return {"name": name, "partitions": partitions, "replicationFactor": 0, "topicConfigs": settings}
