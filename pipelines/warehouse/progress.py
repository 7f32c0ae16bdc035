"""How far each stage has read: one small state file per table, written after the data that it describes.

A run fixes a batch (``pending``) before it writes any of it, so that a rerun after a crash or a failed gate takes
exactly the same rows. The file only saves work: whatever it says, rows go through the same insert on the grain.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pipelines import moments
from pipelines.kafka.offsets import Gap, OffsetRange, TopicPosition, TopicProgress
from pipelines.sources.landing import LandedFile
from pipelines.stores.base import STATE
from pipelines.warehouse import clock
from pipelines.warehouse.tables import Warehouse

REMEMBERED_FOR = timedelta(days=7)  # a file that is gone, after its last change
MOST_DIRECTORIES = 20  # whose files are remembered beside those of the last one


@dataclass(frozen=True)
class Batch:
    """A range of an input table's versions: after ``start`` (None: from the beginning), up to and including ``end``."""

    start: int | None
    end: int


@dataclass(frozen=True)
class Reading:
    """How far an input table is read: its Delta id and the last version read (None: nothing yet)."""

    table_id: str
    version: int | None = None


@dataclass(frozen=True)
class Held:
    """A scope whose rows are held: since when, why, how many, and under which contract and settings they were judged.

    If the scope is a file, whose lines name no topic, ``others`` counts the other lines of that file.
    """

    since: str
    message: str
    rows: int
    under: str
    others: int = 0


@dataclass(frozen=True)
class Progress:
    """What a stage has read of its inputs.

    ``target_id`` and the ids in ``inputs`` are Delta table ids: another id means another table, hence a full re-read.
    ``target_version`` is the version of the stage's own table after its last write. ``pending`` is the fixed batch, by
    input. ``files`` is what the landing ``directory`` held, by source. ``elsewhere`` has the same for the directories
    that were read before: each cluster has its own. ``topics`` is how far topics are read, by the setting ``cluster``.

    ``again`` names the held scopes that the fixed batch judges again (None: not fixed yet). ``decided`` is the gate's
    decision about the batch, fixed before anything is written. ``held`` already reflects that decision, which keeps
    what was held before it in ``held_before``. Its ``history`` and ``contract`` take effect when the batch is done.
    ``under`` says under which contract and settings a batch that is held as a whole was judged. ``contract`` is the
    contract of ``history``. ``held_id`` and ``held_version`` belong to the table of held rows, ``quarantine_id`` and
    ``quarantine_version`` to the quarantine. ``home`` is the cluster whose scopes do not name it, that of the first
    run.
    """

    target_id: str | None = None
    target_version: int | None = None
    inputs: dict[str, Reading] = field(default_factory=dict)
    pending: dict[str, Batch] = field(default_factory=dict)
    blocked_since: str | None = None
    message: str | None = None
    directory: str | None = None
    files: dict[str, LandedFile] = field(default_factory=dict)
    elsewhere: dict[str, dict[str, LandedFile]] = field(default_factory=dict)
    topics: dict[str, TopicProgress] = field(default_factory=dict)
    again: tuple[str, ...] | None = None
    decided: dict[str, Any] | None = None
    held: dict[str, Held] = field(default_factory=dict)
    history: dict[str, Any] = field(default_factory=dict)
    contract: str | None = None
    under: str | None = None
    held_id: str | None = None
    held_version: int | None = None
    quarantine_id: str | None = None
    quarantine_version: int | None = None
    home: str | None = None

    def files_in(self, directory: Path) -> dict[str, LandedFile]:
        """Return what a landing directory held when it was read, by source."""
        return self.files if str(directory) == self.directory else self.elsewhere.get(str(directory), {})

    def with_files(
        self, directory: Path, files: Mapping[str, LandedFile], there: Collection[str] | None = None
    ) -> Progress:
        """Return the progress after more files of a landing directory are read.

        A file that is no longer ``there`` (None: all are) is forgotten, unless it changed lately and so may come back.
        """
        others = {name: read for name, read in self.elsewhere.items() if name != str(directory)}
        if self.directory is not None and self.directory != str(directory):
            others[self.directory] = self.files
        others = dict(list(others.items())[-MOST_DIRECTORIES:])
        since = (moments.now() - REMEMBERED_FOR).timestamp() * 1e9
        known = {
            source: file
            for source, file in self.files_in(directory).items()
            if there is None or source in there or file.modified_ns >= since
        }
        return replace(self, directory=str(directory), files={**known, **files}, elsewhere=others)

    def within_a_batch(self, cluster: str, reads_topics: bool = True) -> bool:
        """Tell whether a run ended before it completed its batch; of topics only those of the given cluster count.

        If the feed ``reads_topics`` no more, their batch waits until it does again.
        """
        topic_progress = self.topics.get(cluster, TopicProgress())
        return bool(self.pending or topic_progress.gaps or (reads_topics and topic_progress.pending))

    def is_ahead_of(self, version: int | None) -> bool:
        """Tell whether the progress records a later version of the stage's own table than the given one."""
        return (self.target_version or 0) > (version or 0)

    def done(self, target_version: int) -> Progress:
        """Return the progress after the pending batch is completed."""
        read = {table: replace(self.inputs[table], version=batch.end) for table, batch in self.pending.items()}
        inputs = self.inputs | read
        said = self.decided or {}
        past = replace(self, pending={}, blocked_since=None, message=None, under=None, again=None, decided=None)
        history, contract = said.get("history", self.history), said.get("contract", self.contract)
        return replace(past, inputs=inputs, target_version=target_version, history=history, contract=contract)

    def before_the_decision(self) -> Progress:
        """Return the progress without the gate's decision about the pending batch."""
        saved = (self.decided or {}).get("held_before")
        held = self.held if saved is None else {scope: Held(**values) for scope, values in saved.items()}
        return replace(self, decided=None, held=held)

    def version_of(self, table: str) -> int | None:
        """Return the last version of an input whose batch is completed; None if there is none."""
        reading = self.inputs.get(table)
        return reading.version if reading else None

    def reached(self, table: str) -> int | None:
        """Return the last version of an input that is read or in the pending batch; None if there is none."""
        batch = self.pending.get(table)
        return batch.end if batch else self.version_of(table)


def load(warehouse: Warehouse, table: str) -> Progress | None:
    """Return a stage's progress; None if there is no file or if it cannot be parsed."""
    text = warehouse.store.text(file_of(table))
    return None if text is None else parsed(text)


def file_of(table: str) -> str:
    """Return where a warehouse has the progress of a stage."""
    return f"{STATE}/{table}.json"


def parsed(text: str) -> Progress | None:
    """Return the progress that a file says; None if it cannot be parsed."""
    try:
        values = json.loads(text)
        pending = {table: Batch(**batch) for table, batch in values.pop("pending").items()}
        inputs = {table: Reading(**reading) for table, reading in values.pop("inputs").items()}
        files = _files(values.pop("files"))
        elsewhere = {directory: _files(read) for directory, read in values.pop("elsewhere", {}).items()}
        topics = {cluster: _topic_progress(saved) for cluster, saved in values.pop("topics", {}).items()}
        held = {scope: Held(**values_of_scope) for scope, values_of_scope in values.pop("held", {}).items()}
        again = values.pop("again", None)
        again = None if again is None else tuple(again)
        return Progress(
            inputs=inputs,
            pending=pending,
            files=files,
            elsewhere=elsewhere,
            topics=topics,
            held=held,
            again=again,
            **values,
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def save(warehouse: Warehouse, table: str, progress: Progress) -> None:
    """Replace a stage's progress in one step; the clock is noted first, as rows are written next."""
    clock.note(warehouse)
    values = asdict(replace(progress, files={}, elsewhere={}, history={}))  # asdict would copy each number in them
    values["history"] = progress.history
    values["files"] = _facts(progress.files)
    values["elsewhere"] = {directory: _facts(read) for directory, read in progress.elsewhere.items()}
    warehouse.store.write(file_of(table), json.dumps(values, ensure_ascii=True).encode())


def has_read(warehouse: Warehouse, table: str, reader: str) -> bool:
    """Tell whether a stage has read all of a table, and is within no batch."""
    known = load(warehouse, reader)
    reading = known.inputs.get(table) if known and not known.pending else None
    return reading is not None and (reading.table_id, reading.version) == warehouse.state(table)


def note_read(warehouse: Warehouse, table: str, topics: Iterable[str], at: datetime) -> None:
    """Note that topics were read up to the ends that they had at a moment; a run without news does this too.

    It is a file of its own: it is no progress, and a loss of it only leaves questions open.
    """
    noted = _noted(warehouse, table)
    noted[warehouse.cluster] = noted.get(warehouse.cluster, {}) | dict.fromkeys(topics, at.isoformat())
    warehouse.store.write(f"{STATE}/{table}.read.json", json.dumps(noted, ensure_ascii=True).encode())


def read_until(warehouse: Warehouse, table: str) -> dict[str, datetime]:
    """Return until when topics of the settings' cluster were read to their ends, by topic."""
    try:
        noted = _noted(warehouse, table).get(warehouse.cluster, {})
        return {topic: datetime.fromisoformat(at) for topic, at in noted.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _noted(warehouse: Warehouse, table: str) -> dict[str, dict[str, str]]:
    try:
        found = json.loads(warehouse.store.text(f"{STATE}/{table}.read.json") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _files(facts: Mapping[str, Sequence[int]]) -> dict[str, LandedFile]:
    return {source: LandedFile(source, *known) for source, known in facts.items()}


def _facts(files: Mapping[str, LandedFile]) -> dict[str, tuple[int, int]]:
    return {source: (file.size, file.modified_ns) for source, file in files.items()}


def _topic_progress(values: dict[str, Any]) -> TopicProgress:
    """Return the progress of topics from its JSON, in which partitions are text: every JSON key is."""

    def offsets(found: dict[str, int]) -> dict[int, int]:
        return {int(partition): int(offset) for partition, offset in found.items()}

    followed = {
        topic_id: TopicPosition(
            name=topic["name"],
            next=offsets(topic["next"]),
            doubtful=offsets(topic["doubtful"]),
            written=offsets(topic["written"]),
            seen=offsets(topic.get("seen", {})),  # earlier versions did not save it
        )
        for topic_id, topic in values["followed"].items()
    }
    gaps = (Gap(OffsetRange(**gap["span"]), gap["run_id"], gap["found_at"]) for gap in values["gaps"])
    pending = tuple(OffsetRange(**span) for span in values["pending"])
    return TopicProgress(followed, pending, tuple(gaps), values.get("cluster_id", ""))
