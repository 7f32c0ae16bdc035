"""How far each stage has read: one small state file a table, written after the data that it speaks of.

A batch is fixed (``pending``) before anything of it is written, so that a rerun after a crash, or after a broken gate,
takes exactly the same rows. The file only saves work: whatever it says, rows go through the same insert on the grain.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pipelines import storage
from pipelines.sources.landing import LandedFile


@dataclass(frozen=True)
class Batch:
    """A range of an input table's versions: after ``start`` (None: from the beginning) up to and with ``end``."""

    start: int | None
    end: int


@dataclass(frozen=True)
class Progress:
    """What a stage has read of its input.

    ``input_id`` and ``target_id`` are Delta table ids: another id means another table, hence a full re-read.
    ``version`` is the input's last version read (None: nothing yet); ``target_version`` the version of the stage's own
    table after its last write; ``files`` what the landing ``directory`` held, by source.
    """

    input_id: str | None = None
    target_id: str | None = None
    version: int | None = None
    target_version: int | None = None
    pending: Batch | None = None
    blocked_since: str | None = None
    message: str | None = None
    directory: str | None = None
    files: dict[str, LandedFile] = field(default_factory=dict)

    def done(self, **changes: Any) -> Progress:
        """Return the progress with the pending batch behind it."""
        return replace(self, pending=None, blocked_since=None, message=None, **changes)


def load(warehouse: str, table: str) -> Progress | None:
    """Return a stage's progress; None where there is none or where the file cannot be understood."""
    text = storage.read_text(warehouse, f"{table}.json")
    if text is None:
        return None
    try:
        values = json.loads(text)
        pending = values.pop("pending")
        files = {source: LandedFile(source, *facts) for source, facts in values.pop("files").items()}
        return Progress(pending=Batch(**pending) if pending else None, files=files, **values)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def save(warehouse: str, table: str, progress: Progress) -> None:
    """Replace a stage's progress in one step."""
    values = asdict(replace(progress, files={}))
    values["files"] = {source: (file.size, file.modified_ns) for source, file in progress.files.items()}
    storage.write_text(warehouse, f"{table}.json", json.dumps(values, ensure_ascii=True))
