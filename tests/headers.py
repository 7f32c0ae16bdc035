"""What a record's headers say, told from the rules alone: a decoder to hold Spark's against.

It knows the profiles by name, and shares nothing with ``pipelines.headers``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Header = tuple[str | None, bytes | None] | None

SETS = {  # mandatory headers, in the order in which writers put them; topic, partition, offset, group by their place
    "kip-1317": (
        "_dlq.errors.disposition",
        "_dlq.errors.original.topic",
        "_dlq.errors.original.partition",
        "_dlq.errors.original.offset",
        "_dlq.errors.original.consumer.group",
        "_dlq.errors.timestamp",
    ),
    "kip-1191": ("__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset", "__dlq.errors.group"),
    "kafka-streams": ("__streams.errors.topic", "__streams.errors.partition", "__streams.errors.offset"),
    "kafka-connect": ("__connect.errors.topic", "__connect.errors.partition", "__connect.errors.offset"),
    "spring-kafka": ("kafka_dlt-original-topic", "kafka_dlt-original-partition", "kafka_dlt-original-offset"),
}
COORDINATES = {profile: names[1:5] if profile == "kip-1317" else names for profile, names in SETS.items()}
OPTIONAL = {
    "kip-1317": (),
    "kip-1191": ("__dlq.errors.delivery.count", "__dlq.errors.message"),
    "kafka-streams": tuple(f"__streams.errors.{name}" for name in ("exception", "message", "stacktrace")),
    "kafka-connect": tuple(
        f"__connect.errors.{name}"
        for name in (
            *("connector.name", "task.id", "stage", "class.name"),
            *("exception.class.name", "exception.message", "exception.stacktrace"),
        )
    ),
    "spring-kafka": tuple(
        f"kafka_dlt-{name}"
        for name in (
            *("original-timestamp", "original-timestamp-type", "original-consumer-group"),
            *("exception-fqcn", "exception-cause-fqcn", "exception-message", "exception-stacktrace"),
            *("key-exception-fqcn", "key-exception-message", "key-exception-stacktrace"),
        )
    ),
}
OTHERS = ("kafka-streams", "kafka-connect", "spring-kafka")
SPRINGS_GROUP = "kafka_dlt-original-consumer-group"
DECIMAL = re.compile(rb"0|[1-9][0-9]*")


@dataclass
class Set:
    """One writer's mandatory headers within a record: where it ends, and what it says."""

    profile: str
    at: int
    complete: bool
    coordinates: list[Any] = field(default_factory=list)


def told(headers: Iterable[Header] | None) -> dict[str, Any]:
    """Return what the decoder's columns of these names hold; ``original``: topic, partition, offset as text."""
    record = [*headers] if headers is not None else []
    sets = sorted((one for profile in SETS for one in sets_of(profile, record)), key=lambda one: one.at)
    own = _own(sets)
    if own:
        profile: str | None = "kip-1317" if len(own) == 2 else own[0].profile
    else:
        some = (name for name in SETS if any(_name(header) in (*SETS[name], *OPTIONAL[name]) for header in record))
        profile = next(some, None)
    writers = {one.profile for one in own} or {profile}
    shown = {one.profile for one in sets if one.complete} | writers
    reserved = {name for one in shown if one for name in (*SETS[one], *OPTIONAL[one])}
    return {
        "header_profile": profile,
        "header_profiles": writers - {None} if all(one.complete for one in own) else {profile},
        "earlier_hops": _hops([one for one in sets if one not in own]),
        "reserved_header_collision": _collides(record, sets, profile, alone=len(own) < 2),
        "user_headers": [header for header in record if _name(header) not in reserved],
        "original": [_text(profile, part, _last(record, name)) for part, name in enumerate(COORDINATES[profile][:3])]
        if profile
        else [None] * 3,
        "delivery_count": _text("", 0, _last(record, "__dlq.errors.delivery.count")) if "kip-1191" in writers else None,
    }


def sets_of(profile: str, record: list[Header]) -> list[Set]:
    """The sets of a profile, oldest first: the last one has each name's last occurrence, the one before the one before.

    Any header of KIP-1317 makes a set, which is not complete.
    """
    places = {name: [place for place, header in enumerate(record) if _name(header) == name] for name in SETS[profile]}
    count = min(map(len, places.values()))
    complete = count > 0
    if profile == "kip-1317" and not complete and any(places.values()):
        count = 1
    found = []
    for turn in range(count, 0, -1):
        here = {name: found_at[-turn] for name, found_at in places.items() if len(found_at) >= turn}
        values = {name: record[place][1] for name, place in here.items()}  # type: ignore[index]
        coordinates = [_coordinate(profile, part, values.get(name)) for part, name in enumerate(COORDINATES[profile])]
        if profile == "spring-kafka":
            groups = [header for header in record if _name(header) == SPRINGS_GROUP]
            whose = groups[-turn][1] if len(groups) == count else None  # type: ignore[index]
            coordinates.append(_coordinate(profile, 3, whose))
        coordinates += [None] * (4 - len(coordinates))
        found.append(Set(profile, max(here.values()), complete, coordinates))
    return found


def _own(sets: list[Set]) -> list[Set]:
    """The set that was written last; of a share group perhaps both, if nobody else's ends between them or later."""
    if not sets:
        return []
    latest = {one.profile: one for one in sets}
    share_group = [latest[name] for name in ("kip-1317", "kip-1191") if name in latest]
    if len(share_group) == 2:
        first = min(one.at for one in share_group)
        if not any(one.profile in OTHERS and one.at > first for one in sets):
            return share_group
    return [sets[-1]]


def _hops(older: list[Set]) -> list[tuple[Any, ...]]:
    hops: list[tuple[str, list[Any], bool]] = []
    for one in older:
        if one.profile not in OTHERS and hops and hops[-1][2]:
            before = hops[-1]
            if before[0] != one.profile and before[0] not in OTHERS:
                draft, shipped = (
                    (one.coordinates, before[1]) if one.profile == "kip-1317" else (before[1], one.coordinates)
                )
                both = [shipped[part] if value is None else value for part, value in enumerate(draft)]
                hops[-1] = ("kip-1317", both, False)
                continue
        hops.append((one.profile, one.coordinates, True))
    return [(profile, *coordinates) for profile, coordinates, _ in hops]


def _collides(record: list[Header], sets: list[Set], profile: str | None, *, alone: bool) -> bool:
    for name in SETS:
        whole = sum(one.complete for one in sets if one.profile == name)
        if name == profile and alone:
            whole = max(whole, 1)
        if any(sum(_name(header) == one for header in record) > whole for one in (*SETS[name], *OPTIONAL[name])):
            return True
    return False


def _coordinate(profile: str, part: int, value: bytes | None) -> Any:
    """The value as topic, partition, offset or group; None where it is none."""
    if not value:
        return None
    if part in (0, 3):
        try:
            return value.decode("utf-8", "strict")
        except UnicodeDecodeError:
            return None
    most = 2**31 - 1 if part == 1 else 2**63 - 1
    if profile == "spring-kafka":
        size, form = (4, ">i") if part == 1 else (8, ">q")
        number = struct.unpack(form, value)[0] if len(value) == size else -1
    else:
        number = int(value) if DECIMAL.fullmatch(value) and len(value) < 30 else -1
    return number if 0 <= number <= most else None


def _text(profile: str, part: int, value: bytes | None) -> str | None:
    """A header's value as text: bytes that are not UTF-8 replaced, a binary number of a wrong length in hexadecimal."""
    if not value:
        return None
    if profile != "spring-kafka" or part == 0:
        return value.decode("utf-8", "replace")
    size, form = (4, ">i") if part == 1 else (8, ">q")
    return str(struct.unpack(form, value)[0]) if len(value) == size else f"0x{value.hex().upper()}"


def _last(record: list[Header], name: str) -> bytes | None:
    return next((header[1] for header in reversed(record) if header is not None and header[0] == name), None)


def _name(header: Header) -> str | None:
    return None if header is None else header[0]
