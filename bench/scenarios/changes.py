"""What changes around incidents: topologies, settings of producers, starts of brokers, as lines that land."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from bench.scenarios.errors import uuid
from bench.scenarios.times import HOUR, MINUTE, moment
from tests.testing.requests import BEGIN, chain, exchange, logged


def _chain(source: str, sink: str, steps: Iterable[str], stores: Sequence[str]) -> dict[str, Any]:
    """Return a topology description with one chain of processors, named as Streams names them."""
    names = [f"KSTREAM-{step}-{number:010}" for number, step in enumerate(("SOURCE", *steps, "SINK"))]
    return chain(names, source, sink, stores)


def _since_begin(at: int) -> float:
    """Return the seconds from which builders make a time in ms since 1970."""
    return (moment(at) - BEGIN).total_seconds()


class Changes:
    """What producers, brokers and applications of a topic tell of changes, as lines with their times."""

    def __init__(self, random: Random, start: int) -> None:
        """Begin with nothing that changed; the main incident begins at ``start``."""
        self.random, self.start = random, start
        self.requests: list[tuple[int, str]] = []
        self.producers: list[tuple[int, str]] = []
        self.starts: list[tuple[int, str]] = []

    def push(self, group: str, source: str, sink: str, changes: Sequence[int]) -> None:
        """Log a first push 60 to 100 hours before, the same again, refused ones, and those that change the topology."""
        r = self.random
        first = self.start - r.randrange(60 * HOUR, 100 * HOUR)
        member, connection = uuid(r), f"10.0.{r.randrange(256)}.{r.randrange(256)}:{r.randrange(30000, 60000)}"
        connection = f"10.0.0.1:9092-{connection}-0-14"
        steps = ["FILTER", "MAPVALUES", "AGGREGATE"][: r.randrange(1, 4)]
        stores = [f"{group}-store"] if r.random() < 0.5 else []

        def log(at: int, api: str, request: dict[str, Any], response: dict[str, Any]) -> None:
            number, client = len(self.requests) + 1, f"{group}-StreamThread-1-consumer"
            line = exchange(api, _since_begin(at), request, response, number, client=client, connection=connection)
            self.requests.append((at, line))

        def push(at: int, wire: dict[str, Any], epoch: int, error: int = 0) -> None:
            heartbeat = {"groupId": group, "memberId": member, "memberEpoch": 0}
            heartbeat |= {"topology": {"epoch": epoch, "subtopologies": []}, "shutdownApplication": False}
            asked: dict[str, Any] = {"errorCode": 0, "errorMessage": None, "memberId": member, "memberEpoch": 1}
            asked["status"] = []
            log(at - 250, "STREAMS_GROUP_HEARTBEAT", heartbeat, asked | {"topologyDescriptionRequired": True})
            request = {"groupId": group, "memberId": member, "topologyEpoch": epoch, "topologyDescription": wire}
            text = f"Topology epoch {epoch} does not match the group's current topology epoch 0." if error else None
            answer = {"errorCode": error, "errorMessage": text}
            log(at, "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE", request, answer)

        wire = _chain(source, sink, steps, stores)
        push(first, wire, 0)
        if r.random() < 0.5:
            push(self.start - r.randrange(45 * MINUTE, 3 * HOUR), wire, 0)
        if r.random() < 0.3:
            push(self.start - r.randrange(45 * MINUTE, 3 * HOUR), _chain(source, sink, ["BRANCH"], []), 9, error=42)
        for at in changes:
            steps = [*steps, r.choice(("FLATMAP", "PEEK", "TRANSFORM", "JOIN"))]
            push(at, _chain(source, sink, steps, stores), 0)

    def start_broker(self, at: int, node: int) -> None:
        """Log the end of a broker's start, and lines around it that are none."""
        said = (
            f"[GroupCoordinator id={node}] Starting up. (org.apache.kafka.coordinator.group.GroupCoordinatorService)",
            f"[GroupCoordinator id={node}] Startup complete. "
            "(org.apache.kafka.coordinator.group.GroupCoordinatorService)",
            f"[BrokerServer id={node}] Transition from STARTING to STARTED (kafka.server.BrokerServer)",
            "Kafka version: 4.4.0 (org.apache.kafka.common.utils.internals.AppInfoParser)",
            f"[KafkaRaftServer nodeId={node}] Kafka Server started (kafka.server.KafkaRaftServer)",
        )
        for index, text in enumerate(said):
            when = at - 40 * (len(said) - 1 - index)
            self.starts.append((when, logged(_since_begin(when), text, "INFO")))

    def state(self, client: str, topic: str, changed_at: int | None = None, first: int | None = None) -> None:
        """State a producer's settings days before and, if it changed, what it lost shortly before the incident.

        A new client states its settings for the first time.
        """
        r = self.random
        stated: dict[str, Any] = {"client_id": client, "topic": topic, "client_version": "4.1.0"}
        stated |= {"enable_idempotence": "true", "broker_version": "4.4.0", "message_format_version": "2"}
        times = [(self.start - r.randrange(60 * HOUR, 100 * HOUR) if first is None else first, stated)]
        if first is None and changed_at is not None:
            off = {"enable_idempotence": "false"}
            old = {"enable_idempotence": "requested", "message_format_version": "1"}
            times.append((changed_at, stated | r.choice((off, old))))
        elif first is None and r.random() < 0.5:
            times.append((self.start - r.randrange(MINUTE, 3 * HOUR), stated))
        for at, said in times:
            self.producers.append((at, json.dumps(said | {"stated_at": at})))
