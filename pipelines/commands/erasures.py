"""What an erasure did, or has still to do -> the file that it keeps until it is done, and what people are told."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from expectations.rules import counted
from pipelines import moments
from pipelines.commands import display
from pipelines.commands.check import Check
from pipelines.commands.selection import Selector
from pipelines.errors import UsageError
from pipelines.settings import Settings
from pipelines.warehouse.actions import account
from pipelines.warehouse.redaction import Redaction
from pipelines.warehouse.tables import Warehouse

UNDER_WAY = "_erasing.json"
MOST_NAMED = 20
PURPOSE = "afterlog erase"
NAMES = ("table", "rows", "cells")


@dataclass(frozen=True)
class Erased:
    """Rows and cells of a table in which something was, or would be, erased."""

    table: str
    rows: int
    cells: int


@dataclass
class Erasure:
    """What an erasure did, or would do.

    ``others`` counts files beside the tables: of state, pages, Data Docs. ``files`` were read to their end for the
    proof, and ``left`` names those in which something was found. ``landed`` are files that landed, which are not ours.
    ``acknowledgements`` are those of the records, or of what dead letters stand for.
    """

    erasure_id: str
    selector: str
    records: int = 0
    tables: list[Erased] = field(default_factory=list)
    others: int = 0
    files: int | None = None
    left: list[str] = field(default_factory=list)
    landed: int = 0
    acknowledgements: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the proof found nothing."""
        return self.files is not None and not self.left


@dataclass
class UnderWay:
    """What an erasure keeps until it is done, so that another process can go on with it.

    ``digest`` tells, with a salt, whether a selector is the same. ``words`` are those that the selector does not give.
    ``committed`` has, by table, the version before the erasure's commit.
    """

    erasure_id: str
    began_at: str
    by: str
    salt: str
    digest: str
    secret: str
    words: list[str] = field(default_factory=list)
    headers: list[tuple[str | None, str]] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    hashes: list[tuple[int, int]] = field(default_factory=list)
    fingerprints: dict[str, str] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    done: dict[str, tuple[int, int]] = field(default_factory=dict)
    others: int = 0


def under_way_of(warehouse: Warehouse, selector: Selector) -> UnderWay:
    """Return what an earlier process left of the same erasure, or a new one.

    Raises UsageError: what was left is of another selector.
    """
    text = warehouse.store.text(UNDER_WAY)
    if text is None:
        salt = secrets.token_hex(16)
        began_at = moments.now().isoformat()
        return UnderWay(secrets.token_hex(8), began_at, account(), salt, _digest(salt, selector), secrets.token_hex(16))
    left = UnderWay(**json.loads(text))
    if left.digest != _digest(left.salt, selector):
        raise UsageError(
            f"The erasure that began on {left.began_at[:19]} UTC is not done: give what it erases again, so that it "
            "is completed first."
        )
    return left


def _digest(salt: str, selector: Selector) -> str:
    said = json.dumps([selector.kind, selector.name, selector.value.hex()])
    return hashlib.scrypt(said.encode(), salt=bytes.fromhex(salt), n=2**14, r=8, p=1).hex()


def keep(warehouse: Warehouse, under_way: UnderWay, redaction: Redaction) -> None:
    """Save how far an erasure is."""
    under_way.headers = [
        (name, base64.b64encode(value).decode()) for name, value in redaction.shared.headers if value is not None
    ]
    under_way.prefixes = [base64.b64encode(prefix).decode() for prefix in redaction.shared.prefixes]
    under_way.hashes, under_way.fingerprints = [*redaction.hashes.items()], redaction.fingerprints
    warehouse.store.write(UNDER_WAY, json.dumps(asdict(under_way)).encode())


def checks(settings: Settings) -> Iterator[Check]:
    """Yield what `afterlog doctor` says of an erasure that is not done."""
    warehouse = Warehouse(settings)
    text = warehouse.store.text(UNDER_WAY) if warehouse.opens_tables else None
    if text is not None:
        began_at = json.loads(text)["began_at"][:19]
        remedy = "Give `afterlog erase` the same again: it goes on."
        yield Check("erasure", "error", f"The erasure that began on {began_at} UTC is not done.", remedy)


def show(done: Erasure, is_dry_run: bool) -> None:
    """Print a plan or what was done, in a few lines."""
    if done.tables:
        display.table(NAMES, [[loss.table, f"{loss.rows:,}", f"{loss.cells:,}"] for loss in done.tables], 1, {}, 0)
    verb = "would lose" if is_dry_run else "lost"
    tables = f"{counted(len(done.tables), 'table')} and {counted(done.others, 'other file')}"
    lost = counted(done.records, "record")
    lost += f" and {counted(done.acknowledgements, 'acknowledgement')}" if done.acknowledgements else ""
    print(f"{lost} {verb} all content; {tables} {'would change' if is_dry_run else 'changed'}.")
    if done.landed:
        print(
            f"{counted(done.landed, 'file')} in the landing directories {'hold' if done.landed > 1 else 'holds'} it "
            "still: they are not Afterlog's, so remove them yourself. They cannot bring it back."
        )
    if done.files is None:
        return
    if done.left:
        print(f"It was found in {len(done.left):,} of {done.files:,} files: {', '.join(done.left[:MOST_NAMED])}.")
    else:
        print(f"Proof: {done.files:,} files were read to their end, and it is in none of them ({done.erasure_id}).")


def as_json(done: Erasure) -> str:
    """Return a plan, or what was done, as one object."""
    return json.dumps(asdict(done))
