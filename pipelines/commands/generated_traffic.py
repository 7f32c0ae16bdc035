"""A seed and a number of records -> dead letters in order of time, with incidents and defects."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from pipelines.commands.generated_defects import DEFECTS, Defect
from pipelines.commands.generated_flows import COLLIDING, COPYING, FLOWS, KEEPING_HEADERS, SECOND_HOP, SELF_LOOP, Flow
from pipelines.commands.generated_letters import REJECTED, SHARE_GROUP, Error, Payload, captured_line

SEGMENT = 300_000


@dataclass(frozen=True)
class Record:
    """One generated line and the truth about it."""

    line: str
    flow: Flow
    dlq_partition: int
    dlq_offset: int
    value: bytes | None
    disposition: str | None
    kind: str
    incident: str | None = None
    poison_pill: str | None = None
    defect: Defect | None = None

    @property
    def profile(self) -> str | None:
        """The header profile that the line shows; None if its headers are gone or cannot be read."""
        return None if self.defect and self.defect.spoil else self.flow.profile


@dataclass
class State:
    """Where a batch ends and the next continues: time, next offsets of DLQ partitions, last offsets of sources."""

    at: int
    first_offset: int
    dlq: dict[tuple[str, int], int]
    source: dict[tuple[str, str, int], int]

    def to_json(self) -> dict[str, Any]:
        """Return the state in the form in which the summary keeps it."""
        dlq = [[*partition, offset] for partition, offset in self.dlq.items()]
        source = [[*partition, offset] for partition, offset in self.source.items()]
        return {"at": self.at, "first_offset": self.first_offset, "dlq": dlq, "source": source}

    @staticmethod
    def of_json(state: dict[str, Any]) -> State:
        """Return the state from a summary."""
        dlq = {(topic, partition): offset for topic, partition, offset in state["dlq"]}
        source = {(group, topic, partition): offset for group, topic, partition, offset in state["source"]}
        return State(state["at"], state["first_offset"], dlq, source)


@dataclass(frozen=True)
class Incident:
    """A period in which everything that one group reads fails."""

    name: str
    flow: Flow
    start: int
    end: int


@dataclass
class PoisonPill:
    """One source record that is dead-lettered again each time that somebody replays it."""

    name: str
    flow: Flow
    partition: int
    offset: int
    left: int


class Traffic:
    """The records of one batch in the order in which they were dead-lettered; endless, as the last moment repeats."""

    def __init__(self, records: int, seed: str, bad_share: float, state: State, span: int) -> None:
        """Begin where ``state`` ended; ``span`` is in milliseconds."""
        self.records, self.state, self.start, self.end = records, state, state.at, state.at + span
        self.segment = min(SEGMENT, span // 60)
        self.name = seed.partition("/")[2]
        self.random = random.Random(seed)
        self.bad_share, self.bad_owed = bad_share, self.random.random()
        self.defects = cycle(self.random.sample(DEFECTS, len(DEFECTS)))
        self.mix = [flow for flow in FLOWS for _ in range(flow.weight)]
        self.to_be_read_again: deque[tuple[int, int, Payload]] = deque(maxlen=500)
        self.pills: list[PoisonPill] = []
        days = max(1, round(span / 86_400_000))
        flows = self.random.sample(FLOWS, days)
        self.incidents = [self._incident(number, flow, span // days) for number, flow in enumerate(flows)]

    def _incident(self, number: int, flow: Flow, day: int) -> Incident:
        length = self.random.randint(3, 11) * self.segment
        start = self.start + number * day + self.random.randrange((day - length) // self.segment) * self.segment
        return Incident(f"incident-{self.name}-{number + 1}", flow, start, start + length)

    def __iter__(self) -> Iterator[Record]:
        """Yield the records."""
        for start, length, count, incident in self._segments():
            for position in range(count):
                yield self._next(start + int((position + self.random.random()) * length / count), incident)
        while True:
            yield self._next(self.end - 1, None)

    def _segments(self) -> Iterator[tuple[int, int, int, Incident | None]]:
        """Yield (start, length, records, incident): busy days, quiet nights, bursts, more records in an incident."""
        starts = range(self.start, self.end, self.segment)
        under_way = [next((i for i in self.incidents if i.start <= start < i.end), None) for start in starts]
        weights = [
            (1 - 0.7 * math.cos((start % 86_400_000) / 86_400_000 * math.tau))
            * self.random.lognormvariate(0, 0.7)
            * (6 if incident else 1)
            for start, incident in zip(starts, under_way, strict=True)
        ]
        share, done, total = 0.0, 0, sum(weights)
        for start, incident, weight in zip(starts, under_way, weights, strict=True):
            share += weight / total
            count = round(share * self.records) - done
            done += count
            yield start, self.segment, count, incident

    def _next(self, at: int, incident: Incident | None) -> Record:
        self.bad_owed += self.bad_share
        if self.bad_owed >= 1:
            self.bad_owed -= 1
            return self._bad(at)
        draw = self.random.random()
        if incident and draw < 0.75:
            return self._record(incident.flow, at, "incident", incident.flow.errors[-1], incident=incident.name)
        if draw > 0.985:
            return self._poison(at)
        draw = self.random.random()
        if draw < 0.01 and self.to_be_read_again:
            partition, offset, payload = self.to_be_read_again.popleft()
            return self._record(SECOND_HOP, at, "second_hop", REJECTED, (partition, offset), payload)
        if draw < 0.011:
            offset = self.state.dlq.setdefault((SELF_LOOP.dlq_topic, 0), self.state.first_offset + 1)
            return self._record(SELF_LOOP, at, "self_loop", REJECTED, (0, offset - 1))
        if draw < 0.013:
            flow = self.random.choice(COPYING)
            marker = (self.random.choice((b"\0\0\0\1", b"\0\0\0\0")), b"\0\0\0\0\0\0")
            return self._record(flow, at, "control_marker", flow.errors[-1], payload=marker)
        if draw < 0.018:
            return self._record(self.random.choice(COPYING), at, "headers_only", REJECTED, payload=(None, None))
        if draw < 0.023:
            flow = self.random.choice(KEEPING_HEADERS)
            return self._record(flow, at, "collision", flow.errors[0], user_headers=(COLLIDING,))
        flow = self.mix[int(self.random.random() * len(self.mix))]
        errors = flow.errors
        ordinary = errors if flow.profile in SHARE_GROUP else errors[:-1]
        return self._record(flow, at, "ordinary", ordinary[int(self.random.random() * len(ordinary))])

    def _poison(self, at: int) -> Record:
        under_way = [pill for pill in self.pills[-6:] if pill.left]
        if len(under_way) < 3:
            flow = self.random.choice(COPYING)
            partition = self.random.randrange(flow.partitions)
            name = f"poison-pill-{self.name}-{len(self.pills) + 1}"
            offset = self._source_offset(flow, partition, "")
            self.pills.append(PoisonPill(name, flow, partition, offset, self.random.randint(3, 12)))
            under_way.append(self.pills[-1])
        pill = self.random.choice(under_way)
        pill.left -= 1
        source = (pill.partition, pill.offset)
        return self._record(pill.flow, at, "poison_pill", pill.flow.errors[-1], source, poison_pill=pill.name)

    def _source_offset(self, flow: Flow, partition: int, kind: str) -> int:
        """Return the next failing offset: in an incident every record fails, otherwise one in many."""
        log = (flow.group, flow.topic, partition)
        gap = 1 if kind == "incident" else 1 + int(-math.log(1 - self.random.random()) * 40)
        offset = self.state.source.get(log, self.state.first_offset) + gap
        self.state.source[log] = offset
        return offset

    def _dlq_offset(self, flow: Flow, partition: int) -> int:
        log = (flow.dlq_topic, partition)
        offset = self.state.dlq.get(log, self.state.first_offset)
        self.state.dlq[log] = offset + 1
        return offset

    def _record(
        self,
        flow: Flow,
        at: int,
        kind: str,
        error: Error,
        source: tuple[int, int] | None = None,
        payload: Payload | None = None,
        user_headers: tuple[tuple[str, bytes], ...] = (),
        defect: Defect | None = None,
        **labels: str,
    ) -> Record:
        if source:
            partition, offset = source
        else:
            partition = int(self.random.random() * flow.partitions)
            offset = self._source_offset(flow, partition, kind)
        dlq_partition = partition % flow.dlq_partitions
        dlq_offset = self._dlq_offset(flow, dlq_partition)
        payload = payload or flow.payload(partition, offset)
        if flow.dlq_topic == "dlq.orders" and kind == "ordinary":
            self.to_be_read_again.append((dlq_partition, dlq_offset, payload))
        if flow in KEEPING_HEADERS and not defect:
            trace = f"00-{self.random.getrandbits(128):032x}-{self.random.getrandbits(64):016x}-01"
            user_headers = (("traceparent", trace.encode()), *user_headers)
        headers = (*user_headers, *flow.headers(partition, offset, at, error, defect.values if defect else ()))
        line = captured_line(flow.dlq_topic, dlq_partition, dlq_offset, at, flow.timestamp_type, payload, headers)
        line = defect.spoil(line) if defect and defect.spoil else line
        disposition = None if defect else error.disposition or None
        return Record(line, flow, dlq_partition, dlq_offset, payload[1], disposition, kind, defect=defect, **labels)

    def _bad(self, at: int) -> Record:
        defect = next(self.defects)
        flow = self.random.choice([flow for flow in FLOWS if flow.profile in defect.profiles])
        error = self.random.choice(flow.errors)
        partition = self.random.randrange(flow.partitions)
        source = partition, self._source_offset(flow, partition, "bad")
        return self._record(flow, at, "bad", error, source, defect=defect)
