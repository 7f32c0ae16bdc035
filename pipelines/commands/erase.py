"""Forget a person when told: a plan, resumable steps, and a proof that the value is in no file of the warehouse.

Rows stay, with their grain, their times and all that is counted, and lose their content. So counts stay, and a row is
what keeps a file or a topic from bringing the record back. `docs/privacy.md` says what is erased, and what is not.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expectations.quality import ERASED_RECORDS, ERASURES
from expectations.rules import counted
from pipelines import moments
from pipelines.columns.profiles import profiles_of
from pipelines.commands import display
from pipelines.commands.check import Check
from pipelines.commands.maintain import unless_backed_up
from pipelines.commands.selection import DEAD_LETTERS, Selected, Selector, select
from pipelines.commands.stored import stored
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import translated
from pipelines.erasure import Words
from pipelines.errors import UsageError
from pipelines.incidents import signature
from pipelines.settings import Settings
from pipelines.stores import lock, places
from pipelines.stores.base import Store
from pipelines.warehouse import alert_log, append, backups, databases, erased, jvmless, rewriting, search
from pipelines.warehouse.actions import account
from pipelines.warehouse.redaction import Place, Redaction, contents_of
from pipelines.warehouse.search import Searched
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyarrow import Table as ArrowTable  # type: ignore[import-untyped]

UNDER_WAY = "_erasing.json"
ERRORS = "silver.dlq_errors"
HASHES = {"top_keys", "least_keys", "attributes", "attribute_value"}  # columns with hashes of values
OWN = (ERASURES.table, ERASED_RECORDS.table)
MOST_NAMED = 20
GONE = ("_staged/", "_reports/")  # what is made again, or was left by a crash: it goes if a value is in it
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
    """

    erasure_id: str
    selector: str
    records: int = 0
    tables: list[Erased] = field(default_factory=list)
    others: int = 0
    files: int | None = None
    left: list[str] = field(default_factory=list)
    landed: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the proof found nothing."""
        return self.files is not None and not self.left


@dataclass
class _UnderWay:
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


def plan(settings: Settings, selector: Selector) -> Erasure:
    """Return what an erasure would do; nothing is written.

    Raises UsageError: there is no warehouse, only Spark opens it, or a stage has still to read what would go.
    """
    warehouse = Warehouse(settings)
    found, redaction = _begun(warehouse, selector, secrets.token_bytes(16), None)
    done = Erasure("", selector.kind, records=len(found.rows))
    planned = {one.table: one for one in _planned(warehouse, stored(warehouse, "data is erased"), redaction)}
    done.tables = [one for one in planned.values() if one.cells]
    rewriting.refuse_unread(warehouse, [*planned])
    others = [name for name in warehouse.store.walk() if _is_other(name)]
    done.others = sum(search.holds(warehouse.store.read(name) or b"", redaction.words) for name in others)
    done.landed = _landed(settings, redaction.words)
    return done


def erase(
    settings: Settings,
    selector: Selector,
    told: Callable[[str], object] = lambda step: None,
    copies: Sequence[str] = (),
    back_up: Callable[[str], object] = lambda place: None,
) -> Erasure:
    """Erase what a selector names; ``told`` is called with the name of each step that is done.

    ``back_up`` makes a backup in each place of ``copies`` and removes older ones, so that none there has it. A process
    that is killed leaves what the next one with the same selector goes on with.

    Raises UsageError: as ``plan``, or another erasure is not done yet. WriterBusy: another process writes, or makes a
    backup.
    """
    warehouse = Warehouse(settings)
    warehouse.refuse_spark_only("data is erased")
    stores = [*map(backups.place_of, copies)]
    with _alone(warehouse):
        tables = stored(warehouse, "data is erased")
        under_way = _under_way(warehouse, selector)
        secret = bytes.fromhex(under_way.secret)
        found, redaction = _begun(warehouse, selector, secret, under_way)
        planned = [one.table for one in _planned(warehouse, tables, redaction)]
        goes = [table for table in tables if table in planned or table in under_way.committed]
        rewriting.refuse_unread(warehouse, [table for table in goes if table not in under_way.committed])
        _keep(warehouse, under_way, redaction)
        told("begun")
        _note_whole(warehouse, under_way, found)
        told("noted")
        for table in goes:
            _erase_table(warehouse, table, redaction, under_way, told)
        renamed = {old.encode(): new.encode() for old, new in redaction.fingerprints.items()}
        redaction.words = Words({**redaction.words.replaced_by, **renamed})
        _erase_others(warehouse, redaction.words, under_way)
        told("others")
    for place in copies:
        back_up(place)
        told(f"backups in {place}")
    with _alone(warehouse):
        done = _proved(warehouse, stores, selector, under_way, redaction, len(found.rows))
        told("proved")
        _audit(warehouse, done, under_way)
        told("audited")
        warehouse.store.remove(UNDER_WAY)
    return done


@contextlib.contextmanager
def _alone(warehouse: Warehouse) -> Iterator[None]:
    """Hold the locks of all that writes or copies."""
    with (
        unless_backed_up(warehouse, PURPOSE),
        lock.writer(warehouse.settings, PURPOSE),
        warehouse.store.lock(append.REPLAYS_LOCK, PURPOSE, math.inf),
    ):
        yield


def _under_way(warehouse: Warehouse, selector: Selector) -> _UnderWay:
    """Return what an earlier process left of the same erasure, or a new one.

    Raises UsageError: what was left is of another selector.
    """
    text = warehouse.store.text(UNDER_WAY)
    if text is None:
        salt = secrets.token_hex(16)
        began_at = moments.now().isoformat()
        return _UnderWay(
            secrets.token_hex(8), began_at, account(), salt, _digest(salt, selector), secrets.token_hex(16)
        )
    left = _UnderWay(**json.loads(text))
    if left.digest != _digest(left.salt, selector):
        raise UsageError(
            f"The erasure that began on {left.began_at[:19]} UTC is not done: give what it erases again, so that it "
            "is completed first."
        )
    return left


def _digest(salt: str, selector: Selector) -> str:
    said = json.dumps([selector.kind, selector.name, selector.value.hex()])
    return hashlib.scrypt(said.encode(), salt=bytes.fromhex(salt), n=2**14, r=8, p=1).hex()


def _begun(
    warehouse: Warehouse, selector: Selector, secret: bytes, under_way: _UnderWay | None
) -> tuple[Selected, Redaction]:
    """Return which records an erasure is about, with what takes them out of tables."""
    known = erased.of_erasure(warehouse, under_way.erasure_id) if under_way else []
    found = select(warehouse, selector, secret, known)
    values = [*found.values, *(base64.b64decode(one) for one in (under_way.words if under_way else ()))]
    words = Words.of(values, secret)
    told = found.told
    hashes: dict[int, int] = {}
    fingerprints: dict[str, str] = {}
    if under_way:
        told.headers |= {(name, base64.b64decode(value)) for name, value in under_way.headers}
        told.prefixes |= {base64.b64decode(one) for one in under_way.prefixes}
        hashes, fingerprints = dict(under_way.hashes), under_way.fingerprints
        if selector.finds_words:
            under_way.words = [base64.b64encode(one).decode() for one in dict.fromkeys(values)]
    profiles = profiles_of(warehouse.settings.dlq)
    ids: dict[Place, set[str | None]] = {}
    for row in found.letters:
        ids.setdefault((row["cluster"], *row["place"]), set()).add(row["topic_id"])
    return found, Redaction(secret, words, found.rows, ids, told, profiles, hashes, fingerprints)


def _keep(warehouse: Warehouse, under_way: _UnderWay, redaction: Redaction) -> None:
    """Save how far an erasure is."""
    under_way.headers = [
        (name, base64.b64encode(value).decode()) for name, value in redaction.told.headers if value is not None
    ]
    under_way.prefixes = [base64.b64encode(one).decode() for one in redaction.told.prefixes]
    under_way.hashes, under_way.fingerprints = [*redaction.hashes.items()], redaction.fingerprints
    warehouse.store.write(UNDER_WAY, json.dumps(asdict(under_way)).encode())


def _planned(warehouse: Warehouse, tables: Sequence[str], redaction: Redaction) -> Iterator[Erased]:
    """Yield the tables of which something goes, and be it only from their past, in the order data flows.

    All of them are looked at: what goes from one tells which hashes and names of errors go from the next.
    """
    for table in tables:
        rows = cells = 0
        for _, content in rewriting.rows_of(warehouse, table):
            _, changed, of_file = _changed(warehouse, table, content, redaction)
            rows, cells = rows + sum(changed), cells + of_file
        if cells or _loses_its_past(warehouse, table, redaction):
            yield Erased(table, rows, cells)


def _changed(
    warehouse: Warehouse, table: str, rows: ArrowTable, redaction: Redaction
) -> tuple[ArrowTable, list[bool], int]:
    """Return rows of a table as ``Redaction.of`` does; what it learns of them is kept."""
    if table == ERRORS:
        redaction.fingerprints |= _renamed(warehouse, rows, redaction.words)
    return redaction.of(table, rows)


def _loses_its_past(warehouse: Warehouse, table: str, redaction: Redaction) -> bool:
    """Tell whether older files or the log of a table can hold what is to be erased."""
    if table in OWN or warehouse.was_never_written(table):
        return False
    columns = {field.name for field in warehouse.opened_table(table).schema().fields}
    if redaction.rows and contents_of(table) and (table.endswith(".dlq_records") or "dlq_offset" in columns):
        return True
    if redaction.hashes and columns & HASHES:
        return True
    return bool(search.search(warehouse.store, redaction.words, warehouse.place(table)).found)


def _note_whole(warehouse: Warehouse, under_way: _UnderWay, found: Selected) -> None:
    """Note the records that are forgotten, before anything of them is erased."""
    erased.add(warehouse, [_noted(under_way, DEAD_LETTERS, row, True) for row in found.letters])


def _noted(under_way: _UnderWay, table: str, row: Mapping[str, Any], is_whole: bool) -> dict[str, Any]:
    topic, partition, offset = row.get("place") or (None, None, None)
    return {
        "erasure_id": under_way.erasure_id,
        "erased_at": datetime.fromisoformat(under_way.began_at),
        "cluster": row["cluster"],
        "table": table,
        "bronze_id": row["_bronze_id"],
        "dlq_topic": topic,
        "dlq_topic_id": row.get("topic_id"),
        "dlq_partition": partition,
        "dlq_offset": offset,
        "dlq_timestamp": row.get("timestamp"),
        "is_whole": is_whole,
    }


def _erase_table(
    warehouse: Warehouse,
    table: str,
    redaction: Redaction,
    under_way: _UnderWay,
    told: Callable[[str], object],
) -> None:
    """Take out of a table, and of its past, what is to be erased."""
    mark = f"afterlog-erase-{under_way.erasure_id}"
    before = under_way.committed.get(table)
    is_committed = before is not None and warehouse.was_committed(table, before, mark)
    if not is_committed:
        touched: list[dict[str, Any]] = []
        version = warehouse.last_version(table)
        assert version is not None
        counts = [0, 0]

        def change(content: ArrowTable) -> tuple[ArrowTable, int, int]:
            clean, changed, cells = _changed(warehouse, table, content, redaction)
            if table.startswith("bronze."):
                touched.extend(_named(clean, changed, redaction))
            counts[0] += sum(changed)
            counts[1] += cells
            return clean, sum(changed), cells

        def ready() -> None:
            erased.add(warehouse, [_noted(under_way, table, row, False) for row in touched])
            under_way.committed[table] = version
            under_way.done[table] = (counts[0], counts[1])
            _keep(warehouse, under_way, redaction)
            told(f"{table} is ready")

        rewriting.rewrite(warehouse, table, change, mark, ready)
        told(f"{table} is committed")
    before = under_way.committed[table]
    rewriting.follow(warehouse, table, before, before + 1)
    told(f"progress follows {table}")
    if warehouse.last_version(table) == before + 1:
        rewriting.cut(warehouse, table)
    told(f"{table} has no past")


def _named(rows: ArrowTable, changed: list[bool], redaction: Redaction) -> Iterator[dict[str, Any]]:
    """Yield how the changed rows of a table of bronze are known, those of whole records left out."""
    names = [name for name in ("cluster", "_bronze_id", "topic", "topic_id", "partition", "offset", "timestamp")]
    if not {"topic_id", "offset", "timestamp", "partition"} <= {*rows.column_names}:
        names = names[:2]
    for row, is_changed in zip(rows.select(names).to_pylist(), changed, strict=True):
        if is_changed and (row["cluster"], row["_bronze_id"]) not in redaction.rows:
            place = {"place": (row["topic"], row["partition"], row["offset"])} if "topic" in row else {}
            yield row | place


def _renamed(warehouse: Warehouse, rows: ArrowTable, words: Words) -> dict[str, str]:
    """Return the new fingerprints of errors whose patterns hold a value."""
    patterns = rows.column("error_pattern").to_pylist()
    is_named = [text is not None and words.are_in(text.encode("utf-8", "surrogatepass")) for text in patterns]
    if not any(is_named):
        return {}
    import pyarrow as arrow

    chosen = rows.filter(arrow.array(is_named))
    clean = [words.replaced_text(text) for text in chosen.column("error_pattern").to_pylist()]
    place = chosen.column_names.index("error_pattern")
    chosen = chosen.set_column(place, "error_pattern", arrow.array(clean, arrow.string()))
    with sessions.connected(warehouse.root) as connection:
        connection.register("given", chosen)
        text = translated(f"SELECT fingerprint, {signature.fingerprint()} AS renamed FROM given")
        return dict(connection.execute(text).fetchall())


def _is_other(name: str) -> bool:
    """Tell whether a file is of no table: state, pages, what a crash left."""
    return name.startswith("_") and name != UNDER_WAY


def _erase_others(warehouse: Warehouse, words: Words, under_way: _UnderWay) -> None:
    """Take values out of files of state, and remove pages that show them: `afterlog report` makes them again."""
    store = warehouse.store
    for name in [*store.walk()]:
        if not _is_other(name):
            continue
        content = store.read(name)
        if content is None or not (words.are_in(name.encode()) or search.holds(content, words)):
            continue
        under_way.others += 1
        store.checked()
        if name.startswith(alert_log.DIRECTORY):
            with store.lock(f"{name.rpartition('/')[0]}/{alert_log.LOCK}", PURPOSE, math.inf):  # it may be sent now
                store.write(name, search.without(store.read(name) or b"", words) or b"")
        elif name.startswith(GONE) or words.are_in(name.encode()):
            store.remove(name)
        elif content.startswith(search.SQLITE) or name.endswith(databases.BESIDE):
            databases.clean(store, databases.named(name), words)
        elif (clean := search.without(content, words)) is not None:
            store.write(name, clean)
    if (pages := _pages(warehouse)) is not None:
        for name in search.search(pages, words).found:
            under_way.others += 1
            pages.remove(name)
        _show_again(pages, "")
    _show_again(store, "_reports")


def _show_again(store: Store, directory: str) -> None:
    """Let the next `afterlog report` make all pages again that are missing, though no table has changed."""
    for name in [*store.walk(directory)]:
        if name.rpartition("/")[2] == erased.SHOWN:
            store.remove(name)


def _pages(warehouse: Warehouse) -> Store | None:
    """Return the directory of reports if it is not below the warehouse."""
    directory = warehouse.settings.reports()
    is_within = "://" not in warehouse.root and directory.is_relative_to(Path(warehouse.root))
    return None if is_within or not directory.is_dir() else places.of(str(directory))


def _proved(
    warehouse: Warehouse,
    copies: Sequence[Store],
    selector: Selector,
    under_way: _UnderWay,
    redaction: Redaction,
    records: int,
) -> Erasure:
    """Read every file again, and return what the erasure did."""
    stores = [("", warehouse.store), *((f"{place.root}/", place) for place in copies)]
    if (pages := _pages(warehouse)) is not None:
        stores.append(("", pages))
    searched = [(head, search.search(store, redaction.words)) for head, store in stores]
    found = [f"{head}{name}" for head, one in searched for name in (*one.found, *one.unread) if name != UNDER_WAY]
    done = Erasure(under_way.erasure_id, selector.kind, records)
    done.tables = [Erased(table, *counts) for table, counts in sorted(under_way.done.items()) if counts[1]]
    done.others = under_way.others
    done.files = sum(one.files for _, one in searched) - 1  # but for what is kept of the erasure until it is done
    done.left = [redaction.words.replaced_text(name) for name in dict.fromkeys(found)]
    done.landed = _landed(warehouse.settings, redaction.words)
    return done


def _landed(settings: Settings, words: Words) -> int:
    """Return how many files in landing directories hold a value: Afterlog does not remove what others wrote."""
    directories = dict.fromkeys(own.landing for own in settings.of_clusters())
    found: set[str] = set()
    for directory in directories:
        if "://" not in str(directory) and Path(str(directory)).is_dir():
            searched: Searched = search.search(places.of(str(directory)), words)
            found |= {f"{directory}/{name}" for name in searched.found}
    return len(found)


def _audit(warehouse: Warehouse, done: Erasure, under_way: _UnderWay) -> None:
    """Note what the erasure did: never what it erased."""
    facts = {
        "erasure_id": done.erasure_id,
        "began_at": datetime.fromisoformat(under_way.began_at),
        "finished_at": moments.now(),
        "erased_by": under_way.by,
        "selector": done.selector,
    }
    equal: Mapping[str, str | int] = {"erasure_id": done.erasure_id}
    if warehouse.exists(ERASURES.table) and jvmless.rows(warehouse, ERASURES.table, equal, ["erasure_id"]):
        return
    none = {"file_count": None, "left_count": None}
    rows = [
        {**facts, **none, "table": one.table, "row_count": one.rows, "cell_count": one.cells} for one in done.tables
    ]
    sums = {"row_count": sum(one.rows for one in done.tables), "cell_count": sum(one.cells for one in done.tables)}
    proof = {"table": None, "file_count": done.files, "left_count": len(done.left)}
    append.append(warehouse, ERASURES, [*rows, {**facts, **sums, **proof}])


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
        display.table(NAMES, [[one.table, f"{one.rows:,}", f"{one.cells:,}"] for one in done.tables], 1, {}, 0)
    verb = "would lose" if is_dry_run else "lost"
    tables = f"{counted(len(done.tables), 'table')} and {counted(done.others, 'other file')}"
    print(
        f"{counted(done.records, 'record')} {verb} all content; {tables} {'would change' if is_dry_run else 'changed'}."
    )
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
