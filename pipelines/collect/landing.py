"""What a cluster says -> landing/cluster-settings, landing/streams-requests: only what changed since the last time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from expectations.rules import counted
from pipelines.collect import asking, describes, state
from pipelines.collect.asking import CLUSTER, MISSING, Answer, Subject
from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.settings import Settings
from pipelines.stores.directory import replace_text
from pipelines.warehouse import jvmless, progress
from pipelines.warehouse.tables import Warehouse

DESCRIBES = "streams-requests"
BRONZE = "bronze.cluster_settings"
DEAD_LETTERS = "bronze.dlq_records"
DAY_MILLIS = 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Collected:
    """What one round of questions found and landed; ``files`` are new."""

    asked_at: datetime
    topics: int
    groups: int
    brokers: int
    streams_groups: int
    changed: int
    files: tuple[str, ...]
    remarks: tuple[str, ...]

    def __str__(self) -> str:
        """Return it in words."""
        there = (
            counted(self.topics, "topic"),
            counted(self.groups, "share group"),
            counted(self.streams_groups, "streams group"),
            counted(self.brokers, "broker"),
        )
        news = f"{counted(self.changed, 'change')}, landed in {', '.join(self.files)}" if self.files else "no change"
        return f"The cluster has {', '.join(there[:-1])} and {there[-1]}: {news}."

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "asked_at": self.asked_at.isoformat(),
            "topics": self.topics,
            "groups": self.groups,
            "brokers": self.brokers,
            "streams_groups": self.streams_groups,
            "changed": self.changed,
            "files": list(self.files),
            "remarks": list(self.remarks),
        }


def collect(settings: Settings, everything: bool = False) -> Collected:
    """Ask the cluster and land what changed, or ``everything``; a day after the last line about the cluster, another.

    Raises AfterlogError: no cluster is set, it does not answer, or the landing directory cannot be written.
    """
    if not settings.kafka.bootstrap_servers:
        raise UsageError("There is no cluster to ask: set bootstrap_servers under [kafka].")
    directory = settings.landing_of(state.DIRECTORY)
    try:
        with _alone(directory):
            return _collect(settings, directory, everything)
    except OSError as error:
        raise EnvironmentLacking(
            f"{error.filename or directory} cannot be written ({error.strerror}): free some space or fix permissions."
        ) from None


def of_several(collected: Mapping[str, Collected]) -> dict[str, Any]:
    """Return what several clusters have as JSON: the sums, and what each has."""
    each = [{"cluster": name, **done.as_json()} for name, done in collected.items()]
    counts = {
        name: sum(cluster[name] for cluster in each)
        for name in ("topics", "groups", "brokers", "streams_groups", "changed")
    }
    listed = {name: [text for cluster in each for text in cluster[name]] for name in ("files", "remarks")}
    return {"asked_at": max(cluster["asked_at"] for cluster in each), **counts, **listed, "clusters": each}


class Collector:
    """Asks a cluster again and again, at most every so many seconds."""

    def __init__(self, settings: Settings, every_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Take whom to ask, and how often."""
        self.settings = settings
        self.every_seconds = every_seconds
        self.clock = clock
        self.due_at = clock()

    def ask_if_due(self) -> tuple[str, ...]:
        """Ask if it is time; return sentences on what was refused."""
        if self.clock() < self.due_at:
            return ()
        self.due_at = self.clock() + self.every_seconds
        return collect(self.settings).remarks


def line_of(subject: Subject, at: datetime) -> str:
    """Return the line about a subject."""
    values = [
        {"name": name, "value": value, "source": source} for name, (value, source) in sorted(subject.values.items())
    ]
    head = {"observed_at": _millis(at), "kind": subject.kind, "name": subject.name, "state": subject.state}
    return json.dumps({**head, "settings": values}, separators=(",", ":"))


def with_waiting(settings: Settings, answer: Answer) -> list[Subject]:
    """Return the subjects; of DLQ topics it is told whether a record waits to be landed for longer than they keep it.

    A topic's last landing is the last time when it was read to its end or, of landed files, when the last rows landed.
    """
    warehouse = Warehouse(settings)
    if not answer.newest_at or not warehouse.opens_tables:
        return answer.subjects
    last = progress.read_until(warehouse, DEAD_LETTERS)
    if settings.topics_of("dlq") is None:
        landed_at = jvmless.greatest(warehouse, DEAD_LETTERS, "_ingested_at", answer.asked_at)
        last = {} if landed_at is None else dict.fromkeys(answer.newest_at, landed_at)
    subjects = []
    for subject in answer.subjects:
        newest, kept = answer.newest_at.get(subject.name), subject.value("retention.ms")
        if subject.kind == asking.TOPIC and newest is not None and kept is not None and subject.name in last:
            since = _millis(last[subject.name])
            is_outrun = newest > since and 0 <= int(kept) < _millis(answer.asked_at) - since
            subject = replace(subject, values={**subject.values, "is_outrun": ("true" if is_outrun else "false", None)})
        subjects.append(subject)
    return subjects


def _collect(settings: Settings, directory: Path, everything: bool) -> Collected:
    every = state.known(directory)
    known = every.get(settings.cluster, {})
    table_id = _table_id(settings)
    if everything or (known.get("table_id") and known["table_id"] != table_id):  # another warehouse: all is new to it
        kept = {name: known.get(name, {}) for name in ("subjects", "streams_groups")}
        known = {name: {key: ["", there] for key, (_, there) in landed.items()} for name, landed in kept.items()}
    before: dict[str, list[Any]] = known.get("subjects", {})
    streams: dict[str, list[Any]] = known.get("streams_groups", {})
    present = [(kind, name) for key, (_, is_there) in before.items() if is_there for kind, name in [_split(key)]]
    answer = asking.ask(settings, present, [name for name, (_, at) in streams.items() if at is not None])
    answer.subjects = with_waiting(settings, answer)
    # Statements are read in order of time, and clocks go back.
    at = answer.asked_at = max(answer.asked_at, EPOCH + timedelta(milliseconds=known.get("asked_at", -1) + 1))

    digests = {_key(subject): _digest(line_of(subject, EPOCH)) for subject in answer.subjects}
    changed = [subject for subject in answer.subjects if before.get(_key(subject), [""])[0] != digests[_key(subject)]]
    of_cluster = [subject for subject in answer.subjects if subject.kind == CLUSTER]
    landed = changed
    if changed or _millis(at) - known.get("landed_at", 0) >= DAY_MILLIS:  # it tells when all the rest was seen last
        landed = [*of_cluster, *(subject for subject in changed if subject.kind != CLUSTER)]

    described: dict[str, list[Any]] = {}
    news = []
    for group in answer.streams_groups:
        digest, last = _digest(_text(describes.unchanging(group.response))), streams.get(group.group)
        is_gone = group.response["errorCode"] != 0
        is_old = not is_gone and (last is None or _millis(at) - (last[1] or 0) >= DAY_MILLIS)
        if last is None or last[0] != digest or is_old:
            news.append(group.response)
            last = [digest, _millis(at)]
        described[group.group] = [digest, None if is_gone else last[1]]

    files = [
        _write(directory, f"settings-{_stamp(at)}.jsonl", (line_of(subject, at) for subject in landed)),
        _write(settings.landing_of(DESCRIBES), f"collected-{_stamp(at)}.log", describes.lines(news, at)),
    ]
    every[settings.cluster] = {
        "asked_at": _millis(at),
        "landed_at": _millis(at) if landed else known.get("landed_at", 0),
        "table_id": table_id or known.get("table_id"),
        "subjects": {_key(subject): [digests[_key(subject)], subject.state != MISSING] for subject in answer.subjects},
        "streams_groups": {**streams, **described},  # those that are refused stay known, to be asked about again
    }
    replace_text(directory / state.FILE, json.dumps(every))
    return _counted(answer, len(changed) + len(news), [file for file in files if file])


def _counted(answer: Answer, changed: int, files: list[str]) -> Collected:
    there = [subject.kind for subject in answer.subjects if subject.state != MISSING]
    return Collected(
        answer.asked_at,
        topics=there.count(asking.TOPIC),
        groups=there.count(asking.GROUP),
        brokers=there.count(asking.BROKER),
        streams_groups=sum(group.response["errorCode"] == 0 for group in answer.streams_groups),
        changed=changed,
        files=tuple(files),
        remarks=tuple(answer.remarks),
    )


def _write(directory: Path, name: str, lines: Iterable[str]) -> str | None:
    """Write a file that is complete when it appears; return its path, or None without any line."""
    text = "".join(f"{line}\n" for line in lines)
    if not text:
        return None
    directory.mkdir(parents=True, exist_ok=True)
    replace_text(directory / name, text)
    return os.fspath(directory / name)


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Let one process at a time ask and land."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _table_id(settings: Settings) -> str | None:
    """Return the id of the bronze table; None if it does not exist, or is not on this machine."""
    warehouse = Warehouse(settings)
    if not warehouse.opens_tables or warehouse.last_version(BRONZE) is None:
        return None
    try:
        return str(warehouse.state(BRONZE)[0])
    except AfterlogError:  # a run will tell what is wrong with the table
        return None


def _key(subject: Subject) -> str:
    return f"{subject.kind} {subject.name}"


def _split(key: str) -> tuple[str, str]:
    kind, _, name = key.partition(" ")
    return kind, name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def _millis(at: datetime) -> int:
    return round((at - EPOCH) / timedelta(milliseconds=1))


def _stamp(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%S}.{at.microsecond // 1000:03}Z"
