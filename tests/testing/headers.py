"""A second decoder of headers, written from the rules alone, to compare with Spark's decoder.

It knows the profiles by name and shares no code with ``pipelines.columns.headers``. OWN has profiles of settings:
``own-a`` (binary, with a prefix), ``own-b`` (shares a header with own-a), ``own-c`` (shares a header with Spring) and
``own-d`` (an envelope).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Header = tuple[str | None, bytes | None] | None

SETS = {  # mandatory headers in the order in which writers put them; topic, partition, offset and group by position
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
OWN = {
    "own-a": ("x-topic", "x-partition", "x-offset"),
    "own-b": ("x-topic", "x-where"),
    "own-c": ("kafka_dlt-original-topic", "x-js-partition", "x-js-offset"),
    "own-d": (),
}
RIVALS = {"own-b": ("own-a",), "spring-kafka": ("own-c",)}  # who wins if both are complete
PREFIX = "x-retry-"  # of own-a
COORDINATES: dict[str, tuple[str | None, ...]] = {
    **SETS,
    **OWN,
    "kip-1317": SETS["kip-1317"][1:5],
    "own-b": ("x-topic", "x-where", None),
    "own-d": (None, None, None),
}
OPTIONAL: dict[str, tuple[str, ...]] = {
    "own-a": ("x-group",),
    "own-b": (),
    "own-c": (),
    "own-d": ("x-envelope",),
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
SHARE_GROUP = ("kip-1317", "kip-1191")
GROUPS = {"spring-kafka": "kafka_dlt-original-consumer-group", "own-a": "x-group"}
BINARY = ("spring-kafka", "own-a")
DECIMAL = re.compile(rb"0|[1-9][0-9]*")


@dataclass
class Set:
    """One writer's mandatory headers within a record: the place of the last, and the coordinates they give."""

    profile: str
    at: int
    complete: bool
    coordinates: list[Any] = field(default_factory=list)


def told(headers: Iterable[Header] | None, value: bytes | None = None, own: bool = False) -> dict[str, Any]:
    """Return the values of the decoder's columns; ``original`` holds topic, partition and offset as text."""
    record = [*headers] if headers is not None else []
    names = SETS | OWN if own else SETS
    envelope = _envelope(value) if own else {}
    found = {profile: sets_of(profile, record, envelope, names[profile]) for profile in names}
    whole = {profile: sum(one.complete for one in sets) for profile, sets in found.items()}
    beaten = {one for one in names if any(whole.get(rival) for rival in RIVALS.get(one, ()))}
    sets = sorted((one for profile in names if profile not in beaten for one in found[profile]), key=lambda one: one.at)
    last = _own(sets)
    if last:
        profile: str | None = "kip-1317" if len(last) == 2 else last[0].profile
    else:
        order = sorted(names, key=lambda one: own and one in SETS and one in RIVALS)
        profile = next((one for one in order if _has_some(one, record, envelope)), None)
    writers = {one.profile for one in last} or {profile}
    shown = {one for one in names if whole[one]} | writers
    reserved = {name for one in shown if one for name in (*names[one], *OPTIONAL[one])}
    prefix = PREFIX if "own-a" in shown else None
    if len(last) < 2 and profile:
        whole[profile] = max(whole[profile], 1)
    return {
        "header_profile": profile,
        "header_profiles": writers - {None} if all(one.complete for one in last) else {profile},
        "earlier_hops": _hops([one for one in sets if one not in last]),
        "reserved_header_collision": _collides(record, names, whole),
        "user_headers": [
            header
            for header in record
            if _name(header) not in reserved and not (prefix and (_name(header) or "").startswith(prefix))
        ],
        "original": _original(profile, record, envelope),
        "delivery_count": _text("", 0, _last(record, "__dlq.errors.delivery.count")) if "kip-1191" in writers else None,
    }


def _envelope(value: bytes | None) -> dict[str, str]:
    """The topic, partition and offset that an envelope contains, as text."""
    try:
        said = json.loads((value or b"").decode())
    except ValueError:
        return {}
    if not isinstance(said, dict):
        return {}
    return {name: str(said[name]) for name in ("t", "p", "o") if said.get(name) is not None}


def _has_some(profile: str, record: list[Header], envelope: dict[str, str]) -> bool:
    names = (*{**SETS, **OWN}[profile], *OPTIONAL[profile])
    if profile == "own-a" and any((_name(header) or "").startswith(PREFIX) for header in record):
        return True
    return any(_name(header) in names for header in record) or (profile == "own-d" and bool(envelope))


def _original(profile: str | None, record: list[Header], envelope: dict[str, str]) -> list[str | None]:
    if profile is None:
        return [None] * 3
    if profile == "own-d":
        return [envelope.get(name) or None for name in ("t", "p", "o")]
    names = COORDINATES[profile][:3]
    return [name and _text(profile, part, _last(record, name)) for part, name in enumerate(names)]


def sets_of(profile: str, record: list[Header], envelope: dict[str, str], mandatory: tuple[str, ...]) -> list[Set]:
    """The sets of a profile, oldest first: the last has each name's last occurrence, the one before the last but one.

    Any header of KIP-1317 makes a set, even an incomplete one. An envelope is the oldest of all sets.
    """
    if profile == "own-d":
        texts = [envelope.get(name, "").encode() for name in ("t", "p", "o")]
        told = [_coordinate(profile, part, text) for part, text in enumerate(texts)]
        return [Set(profile, -1, True, [*told, None])] if {"t", "o"} <= envelope.keys() else []
    places = {name: [place for place, header in enumerate(record) if _name(header) == name] for name in mandatory}
    count = min(map(len, places.values()))
    complete = count > 0
    if profile == "kip-1317" and not complete and any(places.values()):
        count = 1
    found = []
    for turn in range(count, 0, -1):
        here = {name: found_at[-turn] for name, found_at in places.items() if len(found_at) >= turn}
        values = {name: record[place][1] for name, place in here.items()}  # type: ignore[index]
        coordinates = [
            _coordinate(profile, part, values.get(name)) if name else None
            for part, name in enumerate(COORDINATES[profile])
        ]
        if profile in GROUPS:
            groups = [header for header in record if _name(header) == GROUPS[profile]]
            whose = groups[-turn][1] if len(groups) == count else None  # type: ignore[index]
            coordinates.append(_coordinate(profile, 3, whose))
        coordinates += [None] * (4 - len(coordinates))
        found.append(Set(profile, max(here.values()), complete, coordinates))
    return found


def _own(sets: list[Set]) -> list[Set]:
    """The last set, or both of a share group if no other writer's set ends between them or later."""
    if not sets:
        return []
    latest = {one.profile: one for one in sets}
    share_group = [latest[name] for name in SHARE_GROUP if name in latest]
    if len(share_group) == 2:
        first = min(one.at for one in share_group)
        if not any(one.profile not in SHARE_GROUP and one.at > first for one in sets):
            return share_group
    return [sets[-1]]


def _hops(older: list[Set]) -> list[tuple[Any, ...]]:
    hops: list[tuple[str, list[Any], bool]] = []
    for one in older:
        if one.profile in SHARE_GROUP and hops and hops[-1][2]:
            before = hops[-1]
            if before[0] != one.profile and before[0] in SHARE_GROUP:
                draft, shipped = (
                    (one.coordinates, before[1]) if one.profile == "kip-1317" else (before[1], one.coordinates)
                )
                both = [shipped[part] if value is None else value for part, value in enumerate(draft)]
                hops[-1] = ("kip-1317", both, False)
                continue
        hops.append((one.profile, one.coordinates, True))
    return [(profile, *coordinates) for profile, coordinates, _ in hops]


def _collides(record: list[Header], names: dict[str, tuple[str, ...]], whole: dict[str, int]) -> bool:
    most: dict[str, int] = {}
    for profile, mandatory in names.items():
        for name in (*mandatory, *OPTIONAL[profile]):
            most[name] = max(most.get(name, 0), whole[profile])
    return any(sum(_name(header) == name for header in record) > sets for name, sets in most.items())


def _coordinate(profile: str, part: int, value: bytes | None) -> Any:
    """The value as topic, partition, offset or group, or None if it is not valid."""
    if not value:
        return None
    if part in (0, 3):
        try:
            return value.decode("utf-8", "strict")
        except UnicodeDecodeError:
            return None
    most = 2**31 - 1 if part == 1 else 2**63 - 1
    if profile in BINARY:
        size, form = (4, ">i") if part == 1 else (8, ">q")
        number = struct.unpack(form, value)[0] if len(value) == size else -1
    else:
        number = int(value) if DECIMAL.fullmatch(value) and len(value) < 30 else -1
    return number if 0 <= number <= most else None


def _text(profile: str, part: int, value: bytes | None) -> str | None:
    """A header's value as text: non-UTF-8 bytes replaced, a binary number of wrong length in hexadecimal."""
    if not value:
        return None
    if profile not in BINARY or part == 0:
        return value.decode("utf-8", "replace")
    size, form = (4, ">i") if part == 1 else (8, ">q")
    return str(struct.unpack(form, value)[0]) if len(value) == size else f"0x{value.hex().upper()}"


def _last(record: list[Header], name: str) -> bytes | None:
    return next((header[1] for header in reversed(record) if header is not None and header[0] == name), None)


def _name(header: Header) -> str | None:
    return None if header is None else header[0]
