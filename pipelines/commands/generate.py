"""seed -> landing files: realistic dead-letter traffic of every header profile, with a ledger of the truth about it.

The truth of a batch assumes that one run lands all of its files. Then every line is accepted, quarantined with the
codes that the ledger lists, or a duplicate. The same arguments give the same bytes."""

from __future__ import annotations

import errno
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from expectations import rules
from pipelines.commands.generated_letters import iso
from pipelines.commands.generated_traffic import Record, State, Traffic
from pipelines.errors import EnvironmentLacking, UsageError

START = int(datetime(2026, 11, 18, tzinfo=UTC).timestamp()) * 1000
FIRST_SPAN = 3 * 24 * 3_600_000  # ms of traffic in batch 0
NEXT_SPAN = 3_600_000  # ms of traffic in each later batch
LINES_PER_FILE = 100_000
CHUNK = 1_000
REDELIVERED_SHARE = 0.006
CONFLICT_EVERY = 6  # one redelivered record in so many has other content under the same coordinates
CONFLICT = ("grain.conflict",)
_COMPACT = json.JSONEncoder(separators=(",", ":"))


def generate(
    records: int,
    seed: int,
    out: Path,
    *,
    batch: int = 0,
    start_offset: int = 0,
    bad_share: float = 0.01,
    advanced: Callable[[int], None] | None = None,
) -> Truth:
    """Write ``records`` lines below ``out/dlq`` and their truth below ``out/_truth``; return the paths of the truth.

    A batch above 0 continues the offsets and the time of the batch before it in the same directory, and covers an hour.
    ``start_offset`` is the first offset of every DLQ partition in batch 0. ``advanced`` is called from time to time
    with the number of lines added since.

    Raises UsageError: arguments are out of range, or the directory already holds other files or cannot be written.
    Raises EnvironmentLacking: no space is left.
    """
    if records < 1:
        raise UsageError(f"--records is {records}: give 1 or more.")
    if not 0 <= bad_share <= 1:
        raise UsageError(f"The share of bad records is {bad_share}: give a number from 0 to 1.")
    if batch < 0 or start_offset < 0:
        raise UsageError("Batch and start offset are numbers of 0 or more.")
    try:
        state = _state_before(batch, out) or State(START, start_offset, {}, {})
        redelivered = max(2, round(records * REDELIVERED_SHARE)) if records >= 20 else 0
        span = NEXT_SPAN if batch else FIRST_SPAN
        traffic = Traffic(records - redelivered, f"{seed}/{batch}", bad_share, state, span)
        return _write(traffic, records, redelivered, out, batch, advanced or (lambda lines: None))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise EnvironmentLacking(f"No space is left for generated files in {out}: free some, try again.") from None
        raise UsageError(f"Generated files cannot be kept in {out}: {error.strerror or error}.") from None


@dataclass(frozen=True)
class Truth:
    """The paths of a batch's truth: counts (``summary``) and a line for each generated line (``ledger``).

    Both are below ``_truth``, which landing ignores as it ignores every name that begins with ``_``.
    """

    summary: Path
    ledger: Path

    @staticmethod
    def of(out: Path, batch: int) -> Truth:
        """Return the paths of a batch's truth, which need not exist."""
        return Truth(out / "_truth" / f"batch-{batch:04}.json", out / "_truth" / f"batch-{batch:04}.jsonl")

    def __str__(self) -> str:
        """Say how much was written and where, for the command line."""
        counts = self.counts()
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in counts["outcomes"].items())
        where = self.summary.parent.parent
        lines = f"{rules.counted(counts['records'], 'line')} below {where / 'dlq'}"
        return f"{lines} (expected: {outcomes}); truth in {self.ledger}"

    def as_json(self) -> dict[str, Any]:
        """Return how much was written and where, for machines; the ledger and the summary say the rest."""
        counts = self.counts()
        facts = {name: counts[name] for name in ("records", "outcomes", "from", "to")}
        landed = self.summary.parent.parent / "dlq"
        return facts | {"landed": str(landed), "summary": str(self.summary), "ledger": str(self.ledger)}

    def counts(self) -> dict[str, Any]:
        """Return the summary: counts per outcome, kind, profile and violation, incidents, poison pills, time range."""
        counts = json.loads(self.summary.read_text(encoding="utf-8"))
        assert isinstance(counts, dict)
        return counts

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the ledger: file, line, bronze_id, coordinates, profile, kind, defect, outcome, violations ..."""
        with self.ledger.open(encoding="utf-8") as ledger:
            yield from map(json.loads, ledger)


def _state_before(batch: int, out: Path) -> State | None:
    """Return where the batch before ended, None for batch 0.

    Raises UsageError: the directory holds other files or this batch already, or lacks the batch before.
    """
    if batch == 0:
        landed = out / "dlq"
        if (out / "_truth").exists() or (landed.is_dir() and any(landed.iterdir())):
            raise UsageError(f"{out} holds files already: give an empty directory, or continue with --batch.")
        return None
    if Truth.of(out, batch).summary.exists():
        raise UsageError(f"Batch {batch} is in {out} already: continue with a later one.")
    before = Truth.of(out, batch - 1)
    if not before.summary.exists():
        raise UsageError(f"Batch {batch} continues batch {batch - 1}, which is not in {out}: generate that first.")
    return State.of_json(before.counts()["state"])


class _Files:
    """The files of a batch: written under temporary names, renamed at the end, the ledger first, the summary last."""

    def __init__(self, out: Path, batch: int) -> None:
        self.landed, self.truth, self.batch = out / "dlq", Truth.of(out, batch), batch
        self.written: list[Path] = []
        self.lines = LINES_PER_FILE
        self.name = ""
        for directory in (self.landed, self.truth.summary.parent):
            directory.mkdir(parents=True, exist_ok=True)
        self.open = ExitStack()
        self.file: IO[bytes]
        self.ledger = self.temporary(self.truth.ledger)

    def temporary(self, path: Path) -> IO[bytes]:
        """Open a file under a temporary name; it gets its own name when the batch is complete."""
        self.written.append(path)
        return self.open.enter_context(path.with_name(path.name + ".tmp").open("wb", buffering=1 << 20))

    def begin(self, name: str) -> None:
        """Open the next landed file and make it the current one."""
        self.name, self.lines = f"batch-{self.batch:04}-{name}.jsonl", 0
        self.file = self.temporary(self.landed / self.name)

    def add(self, line: str) -> int:
        """Write a line to the current file; return its number, from 1."""
        self.file.write(f"{line}\n".encode())
        self.lines += 1
        return self.lines

    def publish(self) -> None:
        """Close all files of the batch and give them their own names."""
        self.open.close()
        for path in self.written:
            path.with_name(path.name + ".tmp").rename(path)


def _write(
    traffic: Traffic, records: int, redelivered: int, out: Path, batch: int, advanced: Callable[[int], None]
) -> Truth:
    """Write traffic, then redeliveries: the same records, or other content under the same coordinates."""
    files = _Files(out, batch)
    tally: Counter[tuple[str | None, ...]] = Counter()
    violations: Counter[str] = Counter()
    again: list[tuple[Record, tuple[str, ...]]] = []

    def add(record: Record, codes: tuple[str, ...]) -> None:
        outcome = "duplicate" if record.kind == "duplicate" else "quarantined" if codes else "accepted"
        number = files.add(record.line)
        files.ledger.write(_entry(files.name, number, record, outcome, codes))
        pill = record.poison_pill
        tally[record.profile, record.kind, outcome, record.disposition, record.incident, pill] += 1
        if codes:
            violations.update(codes)
        if number % CHUNK == 0:
            advanced(CHUNK)

    with files.open:
        written, arriving = 0, iter(traffic)
        while written + len(again) < records:
            record = next(arriving)
            if files.lines == LINES_PER_FILE:
                files.begin(f"{written // LINES_PER_FILE:04}")
            codes = record.defect.violations if record.defect else ()
            due = len(again) < redelivered and written * redelivered >= len(again) * (records - redelivered)
            conflicting = len(again) % CONFLICT_EVERY == 1
            suits = not record.defect and not (conflicting and record.value is None)
            if due and suits and written + len(again) + 2 <= records:
                rival = replace(record, kind="duplicate")
                if conflicting:
                    other = re.sub('"value":"[^"]*"', '"value":"YW5vdGhlcg=="', record.line, count=1)
                    rival = replace(record, kind="conflict", line=other)
                    if _digest(record.line) > _digest(other):  # the lowest id wins
                        codes = CONFLICT
                again.append((rival, CONFLICT if conflicting and not codes else ()))
            add(record, codes)
            written += 1
        if again:
            files.begin("redelivered")
            for record, codes in again:
                add(record, codes)
        summary = files.temporary(files.truth.summary)
        summary.write(json.dumps(_summary(traffic, tally, violations), indent=1).encode())
    files.publish()
    return files.truth


def _digest(line: str) -> str:
    return sha256(line.encode()).hexdigest()


def _entry(file: str, number: int, record: Record, outcome: str, codes: tuple[str, ...]) -> bytes:
    """Return the ledger's line for a generated line, in JSON; ``disposition`` is what an accepted row shows."""
    entry = {"file": file, "line": number, "bronze_id": _digest(record.line), "dlq_topic": record.flow.dlq_topic}
    entry |= {"dlq_partition": record.dlq_partition, "dlq_offset": record.dlq_offset, "profile": record.profile}
    entry |= {"kind": record.kind, "defect": record.defect.name if record.defect else None, "outcome": outcome}
    entry |= {"violations": codes, "disposition": record.disposition}
    entry |= {"incident": record.incident, "poison_pill": record.poison_pill}
    return f"{_COMPACT.encode(entry)}\n".encode()


def _summary(traffic: Traffic, tally: Counter[tuple[str | None, ...]], violations: Counter[str]) -> dict[str, Any]:
    def counted(*positions: int, only: str | None = None) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for key, count in tally.items():
            if only in (None, key[2]) and key[positions[0]] is not None:
                counts["/".join(str(key[position]) for position in positions)] += count
        return dict(sorted(counts.items()))

    incidents, pills = counted(4, only="accepted"), counted(5, only="accepted")
    return {
        "records": tally.total(),
        "from": iso(traffic.start),
        "to": iso(traffic.end),
        "outcomes": counted(2),
        "profiles": counted(0, 2),
        "kinds": counted(1, 2),
        "dispositions": counted(3, only="accepted"),
        "violations": dict(sorted(violations.items())),
        "incidents": [
            {
                "name": incident.name,
                "consumer_group": incident.flow.group,
                "dlq_topic": incident.flow.dlq_topic,
                "from": iso(incident.start),
                "to": iso(incident.end),
                "records": incidents.get(incident.name, 0),
            }
            for incident in traffic.incidents
        ],
        "poison_pills": [
            {
                "name": pill.name,
                "consumer_group": pill.flow.group,
                "original_topic": pill.flow.topic,
                "original_partition": pill.partition,
                "original_offset": pill.offset,
                "records": pills.get(pill.name, 0),
            }
            for pill in traffic.pills
        ],
        "state": traffic.state.to_json() | {"at": traffic.end},
    }
