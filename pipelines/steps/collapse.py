"""Collapse on the grain: which candidates are new, which are duplicates, which conflict with existing rows.

All statements work on a few narrow columns; payloads are neither shuffled nor cached. If the census proves that no
grain repeats in the batch or exists in the table, there is nothing to decide. Spark and DuckDB read the same texts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from expectations import literals
from expectations.contract import Contract
from pipelines.steps.batch_rows import ArrowRows, SparkRows
from pipelines.warehouse.ranges import Range

CONFLICT = "grain.conflict"
MOST_RANGES = 100
OUTCOMES = ("refused", "duplicate", "conflict", "supersede", "identify")
SKIPPED = "_skipped"  # column of a candidate: true if the row belongs to other tables

_OUTCOME = """CASE
    WHEN _known THEN 'duplicate'
    WHEN NOT _valid AND (NOT _is_first OR _in_quarantine) THEN 'duplicate'
    WHEN NOT _valid THEN 'refused'
    WHEN _told THEN 'duplicate'
    WHEN _takes THEN IF(_supersedes, 'supersede', 'identify')
    WHEN _stands AND _supersedes AND _is_first THEN 'supersede'
    WHEN _stands AND (_as_existing AND NOT _supersedes OR _lossy) THEN 'duplicate'
    WHEN _stands AND NOT _supersedes THEN 'conflict'
    WHEN _is_first THEN NULL
    WHEN _lossy OR _as_first THEN 'duplicate'
    ELSE 'conflict' END"""
"""What becomes of a candidate:

- ``refused``: the row breaks rules that keep it out of the table;
- ``duplicate``: the table has a row from the same row of bronze; or the table or the batch has the grain with the
  same content; or it has the grain, and the row is a lossy copy; or the row breaks rules, and the quarantine or the
  batch has a row from the same row of bronze;
- ``conflict``: the same grain with other content; an existing row stays, and within a batch the lowest
  ``_bronze_id`` wins;
- ``supersede``: the lossless record that replaces a lossy copy in the table;
- ``identify``: a duplicate of an existing row without the contract's ``late_key`` column; the duplicate has that
  column and replaces the existing row;
- null: the row is accepted and was in quarantine.
"""


@dataclass(frozen=True)
class Census:
    """A batch's number of rows, whether a grain repeats in it, and ranges that hold its grains.

    ``skipped`` counts rows that belong to other tables; ``rows`` does not count them.
    """

    rows: int
    repeats: bool
    ranges: tuple[Range, ...] = ()
    skipped: int = 0


def census(judged: SparkRows | ArrowRows, contract: Contract) -> Census:
    """Count a batch by grain; rows that differ only in the ``late_key`` column count as one grain.

    The ranges hold every row of the table that has a grain of the batch: a range of the grain's last column for each
    value of ``ranges_per``, or one range for all if there are more than ``MOST_RANGES``. Rows whose last grain column
    is null break the contract: they repeat only if they come from the same row of bronze, and the ranges ignore them.
    Spark compares hashes of 64 bits instead of grains, which takes less than half the time: if two grains had one hash,
    the batch would be looked at as if a grain repeated.
    """
    *others, last = contract.known_grain
    others = list(contract.ranges_per) if contract.ranges_per is not None else others
    counted = judged.fetched(_census_text(others, last))
    wanted = [found for found in counted if not found[0]]
    known_ranges = [found for found in wanted if found[2] is not None]
    if len(known_ranges) > MOST_RANGES:
        least = min(found[2] for found in known_ranges)
        together: list[Range] = [{last: (least, max(found[3] for found in known_ranges))}]
    else:
        together = [
            {
                **{name: None if of is None else (of, of) for name, of in zip(others, per, strict=True)},
                last: (least, greatest),
            }
            for _, _, least, greatest, *per in known_ranges
        ]
    ((most,),) = judged.fetched(_most_text(contract, hashed=isinstance(judged, SparkRows))) if wanted else ((0,),)
    return Census(
        rows=sum(found[1] for found in wanted),
        repeats=most > 1,
        ranges=tuple(together),
        skipped=sum(found[1] for found in counted if found[0]),
    )


def _census_text(others: Sequence[str], last: str) -> str:
    """Return the statement for each value of ``others``: skipped or not, rows, least and greatest last."""
    wanted = {name: f"IF(NOT {SKIPPED}, `{name}`, NULL)" for name in (*others, last)}
    per = "".join(f", {wanted[name]} AS `_in{name}`" for name in others)
    return (
        f"SELECT {SKIPPED}, count(*), min({wanted[last]}), max({wanted[last]}){per} FROM {{rows}} "
        f"GROUP BY {', '.join([SKIPPED, *(wanted[name] for name in others)])}"
    )


def _most_text(contract: Contract, hashed: bool) -> str:
    """Return the statement for how many rows at most have one grain, or one hash of it, if there are rows."""
    keys = [_hash(contract)] if hashed else _keys(contract)
    per_grain = f"SELECT count(*) AS _rows FROM {{rows}} WHERE NOT {SKIPPED} GROUP BY {', '.join(keys)}"
    return f"SELECT max(_rows) FROM ({per_grain})"


def _keys(contract: Contract) -> list[str]:
    """Return what rows of one grain have in common, whatever their ``late_key`` column."""
    *_, last = contract.known_grain
    nameless = [f"IF(`{last}` IS NULL, `{name}`, NULL)" for name in contract.identity]
    return [*_quoted(contract.known_grain), *nameless]


def _hash(contract: Contract) -> str:
    """Return a hash of ``_keys``. The hash skips nulls, so it also gets which columns are null."""
    return f"xxhash64({', '.join([*_keys(contract), *(f'{key} IS NULL' for key in _quoted(contract.known_grain))])})"


def decided(
    contract: Contract,
    repeats: bool,
    existing_columns: Collection[str] | None = None,
    has_quarantine: bool = False,
) -> str:
    """Return the statement for the outcomes of candidates, by the contract's ``row``, that are not simply inserted.

    It reads judged ``{rows}``. ``repeats`` tells whether a grain can repeat among them. ``{existing_rows}`` are the
    table's rows within the census's ranges; they have the ``existing_columns`` (None: there are none).
    ``{quarantined}`` are the quarantine's rows, if it ``has_quarantine``. ``outcome`` is `_OUTCOME`.

    Rows with the ``late_key`` column take precedence. A row without it and with other content than theirs belongs to
    another incarnation. ``leaves_quarantine`` is true if the row was in quarantine and the table has it now.
    ``conflicts`` marks every conflict, even if ``outcome`` is ``duplicate`` because the quarantine, or another source
    in the batch, has the same row. For a row that supersedes or identifies another one, ``_replaces`` is the
    ``late_key`` column of the row to replace.
    """
    refused = _refused(contract)
    row = ", ".join(_quoted(contract.row))
    if not repeats and existing_columns is None and not has_quarantine:
        return (
            f"SELECT {row}, _broken_rules, 'refused' AS outcome, false AS leaves_quarantine, false AS conflicts, "
            f"CAST(NULL AS STRING) AS _replaces FROM {{rows}} WHERE {refused}"
        )
    named = ", ".join(dict.fromkeys(_quoted((*contract.row, *contract.grain))))
    rivals, in_order = _rivals(contract, contract.grain), _in_order(contract)
    late_key = f"`{contract.late_key}`" if contract.late_key else "CAST(NULL AS STRING)"
    return f"""
        WITH judged AS (
            SELECT {named}, _broken_rules, NOT {refused} AS _valid, {_content(contract)} AS _content,
                {_lossy(contract)} AS _lossy
            FROM {{rows}}
        ), beside AS ({_beside(contract, existing_columns)}
        ), met AS ({_identified(contract, repeats, existing_columns)}
        ), numbered AS (
            SELECT *, row_number() OVER (PARTITION BY {rivals}, _told ORDER BY {in_order}) AS _number,
                first_value(_content) OVER (PARTITION BY {rivals}, _told ORDER BY {in_order}) AS _first_content
            FROM ({_quarantined(contract, has_quarantine)})
        ), compared AS (
            SELECT *, _number = 1 AS _is_first, coalesce(_existing_lossy, false) AND NOT _lossy AS _supersedes,
                _content <=> _existing_content AS _as_existing, _content <=> _first_content AS _as_first
            FROM numbered
        ), found AS (
            SELECT *, {_OUTCOME} AS _outcome FROM compared
        ), leaving AS (
            SELECT *, coalesce(_outcome = 'conflict', false) AS conflicts,
                _in_quarantine AND (_known OR _valid AND NOT coalesce(_outcome = 'conflict', false))
                    AS leaves_quarantine
            FROM found
        ), again AS (
            SELECT *, row_number() OVER (
                PARTITION BY {", ".join(_quoted(contract.identity))}, conflicts ORDER BY `_source`) AS _copy
            FROM leaving WHERE _outcome IS NOT NULL OR leaves_quarantine
        )
        SELECT {row}, _broken_rules,
            IF(conflicts AND (_in_quarantine OR _copy > 1), 'duplicate', _outcome) AS outcome,
            leaves_quarantine, conflicts, IF(_takes, NULL, {late_key}) AS _replaces
        FROM again"""


def contested(contract: Contract) -> str:
    """Return the statement for those of a batch's ``{rows}`` that ``decided`` needs without rows to compare them with.

    There are none to compare if the table has no rows within the census's ranges, and the quarantine has none. Then
    ``decided`` needs three kinds of rows: refused ones, those whose grain occurs again (by its hash), and those whose
    last grain column is null (their hash includes their identity). All others are accepted without a comparison.
    """
    return f"""
        SELECT /*+ BROADCAST(repeated) */ each.* EXCEPT (_hash)
        FROM (SELECT *, {_hash(contract)} AS _hash FROM {{rows}}) AS each
        LEFT JOIN (
            SELECT {_hash(contract)} AS _hash FROM {{rows}} GROUP BY 1 HAVING count(*) > 1
        ) AS repeated ON repeated._hash = each._hash
        WHERE {_refused(contract)} OR repeated._hash IS NOT NULL OR each.`{contract.known_grain[-1]}` IS NULL"""


def _refused(contract: Contract) -> str:
    """Return the condition that the mask has the bit of a rule that keeps a row out of the table."""
    if all(rule.refuses for rule in contract.rules):
        return "(_broken_rules <> 0)"
    refusing = sum(1 << bit for bit, rule in enumerate(contract.rules) if rule.refuses)
    return f"((_broken_rules & {refusing}) <> 0)"


def _content(contract: Contract) -> str:
    return f"`{contract.content}`" if contract.content else "0"


def _existing_content(contract: Contract, existing_columns: Collection[str]) -> str:
    is_there = not contract.content or contract.content in existing_columns
    return _content(contract) if is_there else "CAST(NULL AS BIGINT)"  # written before the contract had it


def _lossy(contract: Contract) -> str:
    return f"coalesce(`{contract.lossy}`, false)" if contract.lossy else "false"


def _rivals(contract: Contract, grain: Sequence[str]) -> str:
    """Return what partitions rows by a grain; rows that break a rule compete only with their copies."""
    valid = [f"IF(_valid, {name}, NULL)" for name in _quoted(grain)]
    others = [f"IF(_valid, NULL, {name})" for name in _quoted(contract.identity)]
    return ", ".join(["_valid", *valid, *others])


def _in_order(contract: Contract) -> str:
    """Return the order of precedence."""
    return ", ".join(["_lossy", *_quoted(contract.identity), "`_source`"])


def _beside(contract: Contract, existing_columns: Collection[str] | None) -> str:
    """Add the existing row of each row's grain, and whether the table has a row from the same row of bronze."""
    if existing_columns is None:
        return """
            SELECT *, false AS _stands, CAST(NULL AS BIGINT) AS _existing_content, false AS _existing_lossy,
                false AS _known
            FROM judged"""
    content = _existing_content(contract, existing_columns)
    identity = ", ".join(_quoted(contract.identity))
    return f"""
            SELECT judged.*, coalesce(there._stands, false) AS _stands, there._existing_content,
                there._existing_lossy, coalesce(ids._known, false) AS _known
            FROM judged LEFT JOIN (
                SELECT {", ".join(_quoted(contract.grain))}, true AS _stands, {content} AS _existing_content,
                    {f"`{contract.lossy}`" if contract.lossy else "false"} AS _existing_lossy
                FROM {{existing_rows}}
            ) AS there ON {_same("judged", "there", contract.grain)}
            LEFT JOIN (SELECT DISTINCT {identity}, true AS _known FROM {{existing_rows}}) AS ids
                ON {_equal("judged", "ids", contract.identity)}"""


def _identified(contract: Contract, repeats: bool, existing_columns: Collection[str] | None) -> str:
    """Match rows that have the contract's ``late_key`` column with rows that lack it.

    ``_told``: the row lacks the column and is a copy of a row that has it, in the table or in the batch. ``_takes``:
    the row has the column and replaces an existing row without it, because it has the same content or is the lossless
    record of that lossy copy. ``_stands`` becomes false for other rows without the column, as that existing row goes.
    """
    if not contract.late_key or (not repeats and existing_columns is None):
        return "SELECT *, false AS _told, false AS _takes FROM beside"
    assert contract.content is not None
    assert contract.lossy is not None
    named = f"(`{contract.late_key}` IS NOT NULL)"
    if existing_columns is None:
        nameless = """
            SELECT *, false AS _has_nameless, CAST(NULL AS BIGINT) AS _nameless_content,
                CAST(NULL AS BOOLEAN) AS _nameless_lossy, CAST(array() AS ARRAY<BIGINT>) AS _named
            FROM beside"""
    else:
        grain = ", ".join(_quoted(contract.known_grain))
        content, lossy = _existing_content(contract, existing_columns), _lossy(contract)
        nameless = f"""
            SELECT beside.*, coalesce(of_grain._has_nameless, false) AS _has_nameless,
                of_grain._nameless_content, of_grain._nameless_lossy,
                coalesce(of_grain._named, CAST(array() AS ARRAY<BIGINT>)) AS _named
            FROM beside LEFT JOIN (
                SELECT {grain}, count_if(NOT {named}) > 0 AS _has_nameless,
                    max(IF({named}, NULL, {content})) AS _nameless_content,
                    max(IF({named}, NULL, {lossy})) AS _nameless_lossy,
                    collect_set(IF({named}, {content}, NULL)) AS _named
                FROM {{existing_rows}} GROUP BY {grain}
            ) AS of_grain ON {_same("beside", "of_grain", contract.known_grain)}"""
    rivals = _rivals(contract, contract.known_grain)
    kept = ", ".join(dict.fromkeys(_quoted((*contract.row, *contract.grain))))
    return f"""
            SELECT {kept}, _broken_rules, _valid, _content, _lossy, _known, _existing_content,
                IF(_takes, _nameless_lossy, _existing_lossy) AS _existing_lossy, _takes,
                _stands AND NOT (NOT {named} AND _is_taken) AS _stands,
                coalesce(_valid AND NOT {named} AND (array_contains(_told_by, _content)
                    OR _lossy AND size(_told_by) > 0), false) AS _told
            FROM (
                SELECT *, _could_take AND _turn = 1 AS _takes,
                    max(_could_take) OVER (PARTITION BY {rivals}) AS _is_taken,
                    concat(_named, collect_list(IF(_arrives, _content, NULL)) OVER (PARTITION BY {rivals})) AS _told_by
                FROM (
                    SELECT *, row_number() OVER (PARTITION BY {rivals}, _could_take ORDER BY {_in_order(contract)})
                        AS _turn
                    FROM (
                        SELECT *, _arrives AND _has_nameless AND coalesce(
                            _content <=> _nameless_content OR _nameless_lossy AND NOT _lossy, false) AS _could_take
                        FROM (
                            SELECT *, _valid AND {named} AND NOT _stands AND row_number() OVER (
                                PARTITION BY {_rivals(contract, contract.grain)} ORDER BY {_in_order(contract)}
                            ) = 1 AS _arrives
                            FROM ({nameless})
                        )
                    )
                )
            )"""


def _quarantined(contract: Contract, has_quarantine: bool) -> str:
    """Add whether the quarantine has a row from the same row of bronze."""
    if not has_quarantine:
        return "SELECT met.*, false AS _in_quarantine FROM met"
    return (
        f"SELECT met.*, coalesce(of_quarantine._is_there, false) AS _in_quarantine FROM met "
        f"LEFT JOIN (SELECT {', '.join(_quoted(contract.identity))}, true AS _is_there FROM {{quarantined}}) "
        f"AS of_quarantine ON {_equal('met', 'of_quarantine', contract.identity)}"
    )


def _quoted(names: Iterable[str]) -> list[str]:
    return [literals.spark_name(name) for name in names]


def _equal(left: str, other: str, keys: Sequence[str]) -> str:
    """Return the condition that two rows have the same keys; a null is no key."""
    return " AND ".join(f"{left}.{name} = {other}.{name}" for name in _quoted(keys))


def _same(left: str, other: str, keys: Sequence[str]) -> str:
    """Return the condition that two rows have the same keys, compared null-safe."""
    return " AND ".join(f"{left}.{name} <=> {other}.{name}" for name in _quoted(keys))
