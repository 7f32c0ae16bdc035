"""Forget a person when told: a plan, resumable steps, and a proof that the value is in no file of the warehouse.

Rows stay, with their grain, their times and all that is counted, and lose their content. So counts stay, and a row is
what keeps a file or a topic from bringing the record back. `docs/privacy.md` says what is erased, and what is not.
"""

from __future__ import annotations

import base64
import contextlib
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from expectations.quality import ERASED_RECORDS, ERASURES
from pipelines.columns.profiles import profiles_of
from pipelines.commands.erase_files import audit, erase_others, is_other, landed_files, proved
from pipelines.commands.erasures import PURPOSE, UNDER_WAY, Erased, Erasure, UnderWay, keep, under_way_of
from pipelines.commands.maintain import unless_backed_up
from pipelines.commands.selection import DEAD_LETTERS, Selected, Selector, select
from pipelines.commands.stored import stored
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import translated
from pipelines.erasure import Words
from pipelines.incidents import signature
from pipelines.settings import Settings
from pipelines.stores import lock
from pipelines.warehouse import append, backups, erased, rewriting, search
from pipelines.warehouse.redaction import ACKNOWLEDGEMENTS, Letter, Redaction, contents_of
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyarrow import Table as ArrowTable  # type: ignore[import-untyped]


ERRORS = "silver.dlq_errors"
HASHES = {"top_keys", "least_keys", "attributes", "attribute_value"}  # columns with hashes of values
OWN = (ERASURES.table, ERASED_RECORDS.table)


def plan(settings: Settings, selector: Selector) -> Erasure:
    """Return what an erasure would do; nothing is written.

    Raises UsageError: there is no warehouse, only Spark opens it, or a stage has still to read what would go.
    """
    warehouse = Warehouse(settings)
    found, redaction = _begun(warehouse, selector, secrets.token_bytes(16), None)
    done = Erasure("", selector.kind, len(found.rows), acknowledgements=len(found.acknowledgements))
    planned = {loss.table: loss for loss in _planned(warehouse, stored(warehouse, "data is erased"), redaction)}
    done.tables = [loss for loss in planned.values() if loss.cells]
    rewriting.refuse_unread(warehouse, [*planned])
    others = [name for name in warehouse.store.walk() if is_other(name)]
    done.others = sum(search.holds(warehouse.store.read(name) or b"", redaction.words) for name in others)
    done.landed = landed_files(settings, redaction.words)
    return done


def erase(
    settings: Settings,
    selector: Selector,
    announce: Callable[[str], object] = lambda step: None,
    copies: Sequence[str] = (),
    back_up: Callable[[str], object] = lambda place: None,
) -> Erasure:
    """Erase what a selector names; ``announce`` is called with the name of each step that is done.

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
        under_way = under_way_of(warehouse, selector)
        secret = bytes.fromhex(under_way.secret)
        found, redaction = _begun(warehouse, selector, secret, under_way)
        planned = [loss.table for loss in _planned(warehouse, tables, redaction)]
        goes = [table for table in tables if table in planned or table in under_way.committed]
        rewriting.refuse_unread(warehouse, goes)
        keep(warehouse, under_way, redaction)
        announce("begun")
        erased.add(warehouse, [_noted(under_way, DEAD_LETTERS, row, True) for row in found.letters])
        announce("noted")
        for table in goes:
            _erase_table(warehouse, table, redaction, under_way, announce)
        renamed = {old.encode(): new.encode() for old, new in redaction.fingerprints.items()}
        redaction.words = Words({**redaction.words.replaced_by, **renamed})
        erase_others(warehouse, redaction.words, under_way)
        announce("others")
    for place in copies:
        back_up(place)
        announce(f"backups in {place}")
    with _alone(warehouse):
        done = proved(warehouse, stores, selector, under_way, redaction, len(found.rows))
        done.acknowledgements = len(found.acknowledgements)
        announce("proved")
        audit(warehouse, done, under_way)
        announce("audited")
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


def _begun(
    warehouse: Warehouse, selector: Selector, secret: bytes, under_way: UnderWay | None
) -> tuple[Selected, Redaction]:
    """Return which records an erasure is about, with what takes them out of tables."""
    known = erased.of_erasure(warehouse, under_way.erasure_id) if under_way else []
    found = select(warehouse, selector, secret, known)
    values = [*found.values, *(base64.b64decode(word) for word in (under_way.words if under_way else ()))]
    words = Words.of(values, secret)
    shared = found.shared
    hashes: dict[int, int] = {}
    fingerprints: dict[str, str] = {}
    if under_way:
        shared.headers |= {(name, base64.b64decode(value)) for name, value in under_way.headers}
        shared.prefixes |= {base64.b64decode(prefix) for prefix in under_way.prefixes}
        hashes, fingerprints = dict(under_way.hashes), under_way.fingerprints
        if selector.finds_words:
            under_way.words = [base64.b64encode(value).decode() for value in dict.fromkeys(values)]
    profiles = profiles_of(warehouse.settings.dlq)
    ids: dict[Letter, set[str | None]] = {}
    for row in found.letters:
        ids.setdefault((row["cluster"], *row["coordinate"]), set()).add(row["topic_id"])
    acknowledged = frozenset(found.acknowledgements)
    return found, Redaction(secret, words, found.rows, acknowledged, ids, shared, profiles, hashes, fingerprints)


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
    if redaction.acknowledgements and table.endswith(ACKNOWLEDGEMENTS):
        return True
    if redaction.rows and contents_of(table) and (table.endswith(".dlq_records") or "dlq_offset" in columns):
        return True
    if redaction.hashes and columns & HASHES:
        return True
    return bool(search.search(warehouse.store, redaction.words, warehouse.table_path(table)).found)


def _noted(under_way: UnderWay, table: str, row: Mapping[str, Any], is_whole: bool) -> dict[str, Any]:
    topic, partition, offset = row.get("coordinate") or (None, None, None)
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
    under_way: UnderWay,
    announce: Callable[[str], object],
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
            keep(warehouse, under_way, redaction)
            announce(f"{table} is ready")

        rewriting.rewrite(warehouse, table, change, mark, ready)
        announce(f"{table} is committed")
    before = under_way.committed[table]
    rewriting.follow(warehouse, table, before, before + 1)
    announce(f"progress follows {table}")
    rewriting.cut(warehouse, table)  # also if others wrote since an earlier process was killed: all stages read that
    announce(f"{table} has no past")


def _named(rows: ArrowTable, changed: list[bool], redaction: Redaction) -> Iterator[dict[str, Any]]:
    """Yield how the changed rows of a table of bronze are known, those of whole records left out."""
    names = [name for name in ("cluster", "_bronze_id", "topic", "topic_id", "partition", "offset", "timestamp")]
    if not {"topic_id", "offset", "timestamp", "partition"} <= {*rows.column_names}:
        names = names[:2]
    for row, is_changed in zip(rows.select(names).to_pylist(), changed, strict=True):
        if is_changed and (row["cluster"], row["_bronze_id"]) not in redaction.rows:
            coordinate = {"coordinate": (row["topic"], row["partition"], row["offset"])} if "topic" in row else {}
            yield row | coordinate


def _renamed(warehouse: Warehouse, rows: ArrowTable, words: Words) -> dict[str, str]:
    """Return the new fingerprints of errors whose patterns hold a value."""
    patterns = rows.column("error_pattern").to_pylist()
    is_named = [text is not None and words.are_in(text.encode("utf-8", "surrogatepass")) for text in patterns]
    if not any(is_named):
        return {}
    import pyarrow as arrow

    chosen = rows.filter(arrow.array(is_named))
    clean = [words.replaced_text(text) for text in chosen.column("error_pattern").to_pylist()]
    index = chosen.column_names.index("error_pattern")
    chosen = chosen.set_column(index, "error_pattern", arrow.array(clean, arrow.string()))
    with sessions.connected(warehouse.root) as connection:
        connection.register("given", chosen)
        text = translated(f"SELECT fingerprint, {signature.fingerprint()} AS renamed FROM given")
        return dict(connection.execute(text).fetchall())
