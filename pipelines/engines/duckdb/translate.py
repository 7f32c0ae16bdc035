"""Spark SQL -> DuckDB's SQL, with the same rows.

sqlglot translates the text. This module corrects what it does not know, by functions of its own (``MACROS``). Where the
engines would differ without a remedy, a statement is refused or ends with an error, so that Spark answers instead.
Times are UTC: DuckDB holds them without a zone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from pipelines.engines.choose import UnsupportedByDuckDB
from pipelines.engines.duckdb.functions import ALIKE, REPLACEMENT, SEED, number_of

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

MOST_ELEMENTS = 1_000_000  # of a sequence: its array is in memory
_BY_ZERO = "CASE WHEN divisor = 0 THEN error('division by zero') ELSE dividend {} divisor END"
_PLAIN = "'VARCHAR', 'BOOLEAN', 'TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT', 'HUGEINT'"
_SPACED = "regexp_matches(value, '^[\\x00-\\x20\\x7f]|[\\x00-\\x20\\x7f]$')"
_REFUSED = "CASE WHEN CAST(CASE WHEN {} IS NULL THEN 'false' ELSE '{}' END AS BOOLEAN) THEN NULL END"
"""An error that says why, unlike error() also where DuckDB takes no function with an effect."""
_NO_ORDER = "the order of null within a value"
_HAS_NULL = "len(list_filter({}, lambda item: item IS NULL)) > 0"
MACROS = (
    "spark_int(value) AS CASE WHEN typeof(value) = 'DOUBLE' THEN CAST(trunc(value) AS INT) ELSE CAST(value AS INT) END",
    f"spark_divide(dividend, divisor) AS {_BY_ZERO.format('/')}",
    f"spark_div(dividend, divisor) AS {_BY_ZERO.format('//')}",
    "spark_array_position(list, item) AS "
    "CASE WHEN list IS NOT NULL AND item IS NOT NULL THEN coalesce(list_position(list, item), 0) END",
    "spark_exists(met) AS CASE WHEN met IS NULL THEN NULL WHEN list_contains(met, true) THEN true "
    "WHEN len(list_filter(met, lambda one: one IS NULL)) > 0 THEN NULL ELSE false END",
    "spark_array_contains(list, item) AS CASE WHEN list IS NULL OR item IS NULL THEN NULL "
    "WHEN list_contains(list, item) THEN true WHEN len(list_filter(list, lambda one: one IS NULL)) = 0 THEN false END",
    f"spark_flatten(lists) AS CASE WHEN {_HAS_NULL.format('lists')} THEN NULL ELSE flatten(lists) END",
    f"spark_sequence(first, last) AS CASE WHEN abs(last - first) > {MOST_ELEMENTS} THEN error('a long sequence') "
    "WHEN first <= last THEN generate_series(first, last) ELSE generate_series(first, last, -1) END",
    "spark_length(value) AS CASE WHEN typeof(value) = 'BLOB' THEN octet_length(CAST(value AS BLOB)) "
    "ELSE length(CAST(value AS VARCHAR)) END",
    "spark_bigint_or_null(value) AS TRY_CAST(value AS BIGINT)",
    "spark_round(value, places) AS CAST(round(CAST(CAST(value AS VARCHAR) AS DECIMAL(38, 20)), places) AS DOUBLE)",
    "spark_other_text(value, kind) AS list_transform([value], lambda text: CASE WHEN text IS NULL THEN NULL "
    "WHEN kind = 'DOUBLE' AND (TRY_CAST(text AS DOUBLE) = 0 OR abs(TRY_CAST(text AS DOUBLE)) >= 1e-3 "
    "AND abs(TRY_CAST(text AS DOUBLE)) < 1e7) OR kind IN ('TIMESTAMP', 'DATE') AND length(text) <= 26 "
    "AND regexp_matches(text, '^[0-9]{4}-[0-9: .-]*$') THEN text "
    f"ELSE {_REFUSED.format('text', 'another text')} END)[1]",
    f"spark_text(value) AS CASE WHEN typeof(value) IN ({_PLAIN}) THEN CAST(value AS VARCHAR) "
    f"ELSE spark_other_text(CAST(value AS VARCHAR), typeof(value)) END",
    "spark_date(value) AS CASE WHEN year(value) BETWEEN 1 AND 9999 OR value IS NULL THEN value "
    f"ELSE {_REFUSED.format('value', 'a year')} END",
    "spark_seconds(first, last) AS (epoch_us(last) - epoch_us(first)) // 1000000",
    "spark_try_int(value) AS CASE WHEN regexp_full_match(value, '[+-]?[0-9]+') THEN TRY_CAST(value AS INT) "
    f"WHEN {_SPACED} THEN {_REFUSED.format('value', 'space around a number')} END",
    "spark_try_bigint(value) AS CASE WHEN regexp_full_match(value, '[+-]?[0-9]+') THEN TRY_CAST(value AS BIGINT) "
    f"WHEN {_SPACED} THEN {_REFUSED.format('value', 'space around a number')} END",
    "spark_try_boolean(value) AS CASE WHEN lower(value) IN ('t', 'true', 'y', 'yes', '1') THEN true "
    "WHEN lower(value) IN ('f', 'false', 'n', 'no', '0') THEN false "
    f"WHEN {_SPACED} THEN {_REFUSED.format('value', 'space around a word')} END",
    "spark_bigint(value) AS CASE WHEN typeof(value) = 'DOUBLE' THEN CAST(trunc(CAST(value AS DOUBLE)) AS BIGINT) "
    "WHEN typeof(value) <> 'VARCHAR' OR regexp_full_match(CAST(value AS VARCHAR), '[+-]?[0-9]+') "
    f"THEN CAST(value AS BIGINT) WHEN value IS NOT NULL THEN {_REFUSED.format('value', 'no number')} END",
    "spark_sum(total) AS CASE WHEN typeof(total) = 'HUGEINT' AND (total > 9223372036854775807 "
    f"OR total < -9223372036854775808) THEN {_REFUSED.format('total', 'no 64-bit number')} ELSE total END",
    "spark_array_join(list, between) AS coalesce(array_to_string(list, between), "
    "CASE WHEN list IS NOT NULL AND between IS NOT NULL THEN '' END)",
    "spark_binary(value) AS CASE WHEN typeof(value) = 'VARCHAR' THEN encode(CAST(value AS VARCHAR)) "
    "ELSE CAST(value AS BLOB) END",
    "spark_utf8_or_null(value) AS TRY(decode(value))",
    "spark_bytes(value, first, many) AS value[CAST(first AS BIGINT) : CAST(first + many - 1 AS BIGINT)]",
    "spark_of_hex(value) AS CAST('0x' || value AS BIGINT)",
    "spark_json(value) AS CASE WHEN typeof(value) = 'VARCHAR[]' THEN CAST(to_json(value) AS VARCHAR) "
    "ELSE error('JSON of other values than texts') END",
    "spark_timestamp_micros(value) AS make_timestamp(value)",
    "spark_pmod(dividend, divisor) AS CASE WHEN divisor = 0 THEN error('division by zero') "
    "WHEN dividend % divisor < 0 THEN (dividend % divisor + divisor) % divisor ELSE dividend % divisor END",
    f"spark_xxhash64(value) AS coalesce(xxhash64_of(spark_binary(value)), {SEED})",
    "spark_get(list, place) AS CASE WHEN place >= 0 THEN list[place + 1] END",
    "spark_set(list) AS list_distinct(list) || CASE WHEN list_count(list) < len(list) THEN [NULL] ELSE [] END",
    # The list becomes an item of one more list, so that it is computed once.
    "spark_array_distinct(list) AS list_transform([list], lambda it: CASE WHEN len(it) < 2 THEN it ELSE "
    "list_transform(list_sort(list_transform(list_distinct(it), lambda one: list_position(it, one)) || "
    "list_filter([list_position(it, NULL)], lambda one: one > 0)), lambda place: it[place]) END)[1]",
    f"spark_arrays_overlap(one, other) AS CASE WHEN list_has_any(one, other) THEN true WHEN len(one) > 0 "
    f"AND len(other) > 0 AND ({_HAS_NULL.format('one')} OR {_HAS_NULL.format('other')}) THEN NULL "
    "WHEN one IS NOT NULL AND other IS NOT NULL THEN false END",
    "spark_between(below, above, part) AS "
    "CASE WHEN below = above OR part = 0 THEN below ELSE (1 - part) * below + part * above END",
    "spark_of_sorted(sorted, place) AS spark_between(sorted[CAST(floor(place) AS BIGINT) + 1], "
    "sorted[CAST(ceil(place) AS BIGINT) + 1], place - floor(place))",
    "spark_share_of_sorted(sorted, share) AS spark_of_sorted(sorted, (len(sorted) - 1) * CAST(share AS DOUBLE))",
    "spark_percentile(value, share) AS "
    "spark_share_of_sorted(list_sort(list(CAST(value AS DOUBLE)) FILTER (WHERE value IS NOT NULL)), share)",
    "spark_ordered(value) AS CASE WHEN (typeof(value) LIKE 'STRUCT%' OR typeof(value) LIKE '%[]') "
    f"AND contains(CAST(value AS VARCHAR), 'NULL') THEN {_REFUSED.format('value', _NO_ORDER)} ELSE value END",
    "spark_ordered_items(list) AS CASE WHEN (typeof(list) LIKE 'STRUCT%' OR typeof(list) LIKE '%[][]') "
    f"AND contains(CAST(list AS VARCHAR), 'NULL') THEN {_REFUSED.format('list', _NO_ORDER)} ELSE list END",
)
"""What follows ``CREATE MACRO``: functions of DuckDB that do what Spark's do."""

_ALIKE = re.compile(
    r"""(?x)(?:
        [^\\\[\](){}*+?|.^$] | \\[AzdDnrt] | \\[!-/:-@\[-`{-~]  # characters, ends of the text, digits
        | \[\^?(?:[^\\\[\]&] | \\[dDnrt] | \\[!-/:-@\[-`{-~])+\]  # classes
        | \((?:\?:|(?!\?)) | \) | \| | \^  # groups
        | (?:[*+?] | \{[0-9]+(?:,[0-9]*)?\})\??(?![*+?{])  # quantifiers, but no possessive ones
    )*"""
)
"""Patterns that Java and RE2 search alike: without ``.``, ``$``, ``\\s``, flags and what else differs."""


_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"  # what $ matches in Java
_OF_THIS_MODULE = ("arrays_overlap", "get", "pmod", "timestamp_micros", "xxhash64")
_TRIES = {"INT": "spark_try_int", "BIGINT": "spark_try_bigint", "BOOLEAN": "spark_try_boolean"}


class Untranslatable(UnsupportedByDuckDB):
    """DuckDB cannot answer the statement, or cannot read a table as Spark does."""

    is_refusal = True


@lru_cache(maxsize=1024)
def parameters(text: str) -> set[str]:
    """Return the names of the parameters in a statement.

    Raises Untranslatable: it cannot be understood.
    """
    from sqlglot import exp

    return {str(found.name) for found in _parsed(text).find_all(exp.Placeholder)}


def _parsed(text: str) -> Expr:
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        return parse_one(text, read="spark")
    except SqlglotError as error:
        raise Untranslatable(str(error)) from None


@lru_cache(maxsize=1024)
def translated(text: str) -> str:
    """Return a statement of Spark SQL in DuckDB's SQL.

    sqlglot does most. It knows nothing of these differences:

    - ``collect_set`` and ``collect_list`` of nothing are an empty array in Spark, and null in DuckDB.
    - ``CAST`` fails on what it cannot cast, and cuts off the fraction of a double. DuckDB rounds.
    - ``count_if`` of nothing is 0 in Spark, and null in DuckDB.
    - ``array_position`` of what is not in the array is 0 in Spark, and null in DuckDB.
    - ``max_by`` and ``min_by`` can be null in Spark; DuckDB's skip rows whose value is null.
    - ``array_contains`` is null if the array has a null and not the value, ``flatten`` if one of the arrays is null.
    - ``sequence`` can go down. A long one is left to Spark. ``length`` takes bytes.
    - ``round`` rounds the shortest decimal that stands for a double in Spark, and its binary value in DuckDB. The
      result is a double here, so a question must round doubles only.
    - A division by zero is an error in Spark, and null in DuckDB.
    - ``exists`` of an array is null if no element is true and one is null.
    - ``lpad`` takes numbers. ``trim`` takes spaces away, and DuckDB's other blanks too, such as no-break spaces.
    - ``any_value`` can be null in Spark; DuckDB's skips nulls.
    - ``RLIKE`` is Java's, and RE2's in DuckDB: a pattern that they may read differently is refused.
    - ``try_sum``, ``try_add`` and ``try_subtract`` are null where a sum is no 64-bit number, and ``sum`` is an error.
    - ``try_cast`` of text knows no fractions, and ``concat`` prints what is no text as Spark does.
    - ``timestampdiff`` counts whole seconds, not how often the second changes.
    - ``$`` at the end of a regular expression also matches before a last line break.
    - Java finds and replaces matches of nothing where RE2 and Python find none: such patterns are refused.
    - ``array_join`` of nothing is empty text in Spark, and null in DuckDB.
    - ``array_distinct`` keeps the order and a null.
    - ``percentile`` and ``median`` interpolate by a formula of their own.
    - Null is the least within a struct or an array in Spark, and the greatest in DuckDB: see ``_put_in_order``.

    Raises Untranslatable: the statement cannot be understood, or has no equal.
    """
    from sqlglot.errors import SqlglotError

    try:
        statement = _parsed(text)
        _put_in_order(statement)
        for node in reversed(list(statement.dfs())):  # children first: what replaces a node contains them
            parent, key, index = node.parent, node.arg_key, node.index
            new = _equal(node)
            if new is node:
                continue
            if parent is None or key is None:
                statement = new
            else:
                parent.set(key, new, index)
        return str(statement.sql("duckdb", identify=True, comments=False))
    except SqlglotError as error:
        raise Untranslatable(str(error)) from None


def _equal(node: Expr) -> Expr:
    """Return a node that means in DuckDB what the given one means in Spark."""
    from sqlglot import exp

    if isinstance(node, exp.TryCast):
        if node.args.get("safe"):
            return _call(_TRIES[_kind(node, _TRIES)], node.this)
        if node.to.this == exp.DType.BIGINT and not isinstance(node.this, exp.Literal | exp.Null):
            return _call("spark_bigint", node.this)
        if node.to.this == exp.DType.TEXT and not isinstance(node.this, exp.Literal | exp.Null):
            return _call("spark_text", node.this)
        if node.to.this == exp.DType.BINARY:
            return _call("spark_binary", node.this)
        if node.to.this == exp.DType.INT:
            return _call("spark_int", node.this)
        return exp.Cast(this=node.this, to=node.to)
    if isinstance(node, exp.CountIf):
        return exp.Count(this=exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))]))
    if isinstance(node, exp.ArrayPosition):
        return _call("spark_array_position", node.this, node.expression)
    if isinstance(node, exp.ArgMax | exp.ArgMin):
        name = "arg_max_null" if isinstance(node, exp.ArgMax) else "arg_min_null"
        return _call(name, node.this, node.expression)
    if isinstance(node, exp.ArrayContains):
        return _call("spark_array_contains", node.this, node.expression)
    if isinstance(node, exp.Flatten):
        return _call("spark_flatten", node.this)
    if isinstance(node, exp.Length):
        return _call("spark_length", node.this)
    if isinstance(node, exp.GenerateSeries):
        return _call("spark_sequence", node.args["start"], node.args["end"])
    if isinstance(node, exp.Inline):
        depth = exp.PropertyEQ(this=exp.to_identifier("max_depth"), expression=exp.Literal.number(2))
        return _call("unnest", node.this, depth)
    if isinstance(node, exp.ArrayAgg) and isinstance(node.this, exp.Struct):
        node.set("nulls_excluded", False)  # it is none
    if isinstance(node, exp.AnyValue):
        return exp.First(this=node.this)
    if isinstance(node, exp.RegexpLike | exp.RegexpExtract | exp.RegexpReplace):
        return _searched(node)
    if isinstance(node, exp.Substring) and _is_of_bytes(node):
        start, length = node.args.get("start"), node.args.get("length")
        if not (start and start.is_int and length and length.is_int and start.to_py() > 0 <= length.to_py()):
            raise Untranslatable("bytes from or to a place that is not known")
        return _call("spark_bytes", node.this, start, length)
    if isinstance(node, exp.Trim) and not node.expression:
        node.set("expression", exp.Literal.string(" "))
        return node
    if isinstance(node, exp.SHA2) and node.text("length") != "256":
        raise Untranslatable(f"a hash of {node.text('length')} bits")
    if isinstance(node, exp.JSONFormat) and node.args.get("options"):
        return _json(node)
    if isinstance(node, exp.Round):
        return _call("spark_round", node.this, node.args.get("decimals") or exp.Literal.number(0))
    if isinstance(node, exp.Div):
        return _call("spark_divide", node.this, node.expression)
    if isinstance(node, exp.IntDiv):
        return _call("spark_div", node.this, node.expression)
    if isinstance(node, exp.Exists) and node.expression:
        return _call("spark_exists", exp.Transform(this=node.this, expression=node.expression))
    if isinstance(node, exp.Pad):
        node.set("this", exp.Cast(this=node.this, to=exp.DataType.build("text")))
        return node
    if isinstance(node, exp.SafeAdd):
        return _call("spark_bigint_or_null", exp.Add(this=_huge(node.this), expression=node.expression))
    if isinstance(node, exp.SafeSubtract):
        return _call("spark_bigint_or_null", exp.Sub(this=_huge(node.this), expression=node.expression))
    if isinstance(node, exp.Concat) and not any(map(_is_list, node.expressions)):
        node.set("expressions", [_text(expression) for expression in node.expressions])
        return node
    if isinstance(node, exp.TimeToStr):
        node.set("this", _call("spark_date", node.this))
        return node
    if isinstance(node, exp.TimestampDiff):
        if node.text("unit").upper() != "SECOND":
            raise Untranslatable(f"timestampdiff of {node.text('unit')}")
        return _call("spark_seconds", node.expression, node.this)
    if isinstance(node, exp.Quantile | exp.Median) and not isinstance(node.parent, exp.Filter | exp.Window):
        return _call("spark_percentile", node.this, node.args.get("quantile") or exp.Literal.number("0.5"))
    if isinstance(node, exp.ArrayDistinct):
        around = node.parent.parent if node.parent and node.parent.name == "spark_ordered_items" else node.parent
        is_sorted = isinstance(around, exp.ArraySort)  # DuckDB fails if a function is within one that sees it
        return _call("spark_set" if is_sorted else "spark_array_distinct", node.this)
    if isinstance(node, exp.Anonymous) and node.name.lower() in _OF_THIS_MODULE:
        return _call(f"spark_{node.name.lower()}", *node.expressions)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "try_validate_utf8":
        (text,) = node.expressions
        if text.name != "spark_text":
            raise Untranslatable("UTF-8 of what is not CAST(bytes AS STRING)")
        return _call("spark_utf8_or_null", *text.expressions)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "conv":
        number, *bases = node.expressions
        if not isinstance(number, exp.Hex) or [base.name for base in bases] != ["16", "10"]:
            raise Untranslatable("conv of what is not hex(...), 16, 10")
        if not (isinstance(node.parent, exp.Cast) and node.parent.to.this == exp.DType.BIGINT):
            raise Untranslatable("conv is text")
        return _call("spark_of_hex", number)
    if isinstance(node, exp.ArrayToString) and not node.args.get("null"):
        return _call("spark_array_join", node.this, node.expression)
    if isinstance(node, exp.ArraySort) and node.expression:
        raise Untranslatable("array_sort by a function")
    if isinstance(node, exp.Dot) and _is_list(node.this):
        return _of_each(node.this, node.expression)
    if isinstance(node, exp.ArrayUniqueAgg) and isinstance(node.parent, exp.Filter):  # or two FILTERs would be printed
        known = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
        where = node.parent.expression
        where.set("this", exp.And(this=exp.Paren(this=where.this), expression=known))
        return exp.ArrayAgg(this=exp.Distinct(expressions=[node.this]))
    if isinstance(_aggregate(node), exp.Sum) and not isinstance(node.parent, exp.Filter | exp.Window):
        return _call("spark_sum", node)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "try_sum":
        return _call("spark_bigint_or_null", exp.Sum(this=node.expressions[0]))
    if _collects(node) and not isinstance(node.parent, exp.Filter | exp.Window):
        return exp.Coalesce(this=node, expressions=[exp.Array()])
    return node


def _searched(node: Expr) -> Expr:
    """Return a search by a pattern that RE2 reads as Java does, or, for what is found, Python does.

    Raises Untranslatable: both may read the pattern differently.
    """
    from sqlglot import exp

    pattern = node.expression
    if not isinstance(pattern, exp.Literal | exp.RawString):
        raise Untranslatable("a pattern is not known")
    replacement, group = node.args.get("replacement"), node.args.get("group")
    if isinstance(node, exp.RegexpReplace) and (
        not isinstance(replacement, exp.Literal) or not REPLACEMENT.fullmatch(replacement.name) or len(node.args) > 3
    ):
        raise Untranslatable("a replacement may mean something else")
    if isinstance(node, exp.RegexpExtract) and not (group and group.is_int):
        raise Untranslatable("a group is not known")
    text = pattern.name.removesuffix("$")
    kept = re.findall(r"\$([1-9])", replacement.name) if replacement else []
    if isinstance(node, exp.RegexpReplace | exp.RegexpExtract):
        most = max(map(int, [group.name] if group else kept), default=0)
        _check_found(pattern.name, most, isinstance(node, exp.RegexpReplace))
    if not kept and not text.endswith("\\") and _ALIKE.fullmatch(text):
        if text != pattern.name:
            node.set("expression", exp.Literal.string(text + _END))
        return node
    if isinstance(node, exp.RegexpLike) or not ALIKE.fullmatch(pattern.name):
        raise Untranslatable("Java may read a pattern differently")
    name = "java_replace" if isinstance(node, exp.RegexpReplace) else "java_extract"
    number = exp.Literal.number(number_of(pattern.name))
    return _call(name, node.this, number, *filter(None, (replacement, group)))


def _check_found(pattern: str, group: int, is_replaced: bool) -> None:
    """Raise Untranslatable if a pattern lacks a group, or if its matches may differ: see ``translated``."""
    try:
        known = re.compile(pattern.replace("\\z", "\\Z"), re.ASCII)
    except (re.error, OverflowError) as error:
        raise Untranslatable(str(error)) from None
    if group > known.groups:
        raise Untranslatable(f"a pattern has no group {group}")
    if not group and pattern.endswith("$"):
        raise Untranslatable("what is found may end before a line break")
    if is_replaced and known.search(""):
        raise Untranslatable("a match of nothing is replaced")


def _is_of_bytes(node: Expr) -> bool:
    """Tell whether a substring is of bytes, as far as its use tells."""
    from sqlglot import exp

    return isinstance(node.parent, exp.Hex) or (
        isinstance(node.parent, exp.EQ) and isinstance(node.parent.expression, exp.HexString)
    )


def _json(node: Expr) -> Expr:
    """Return JSON that keeps nulls, as DuckDB's does.

    Raises Untranslatable: other options are given.
    """
    from sqlglot import parse_one

    if node.args["options"] != parse_one("map('ignoreNullFields', 'false')", read="spark"):
        raise Untranslatable("options of to_json")
    return _call("spark_json", node.this)


def _collects(node: Expr) -> bool:
    """Tell whether a node collects values into an array, also with FILTER or OVER."""
    from sqlglot import exp

    return isinstance(_aggregate(node), exp.ArrayAgg | exp.ArrayUniqueAgg)


def _aggregate(node: Expr) -> Expr:
    """Return the aggregate function of a node that may be one with FILTER or OVER."""
    from sqlglot import exp

    while isinstance(node, exp.Filter | exp.Window):
        node = node.this
    return node


def _put_in_order(statement: Expr) -> None:
    """Let structs and arrays be compared as Spark does, for which a null within them is the least.

    The greatest or least struct is that with the greatest or least sort key, and structs are sorted by such keys. Where
    no struct's fields are in sight, DuckDB must find no null in a value that is compared: it ends with an error.
    """
    from sqlglot import exp

    nested = _nested(statement)
    for node in reversed(list(statement.dfs())):  # children first, as some are copied
        if isinstance(node, exp.Max | exp.Min) and _structs(node.this):
            name = "arg_max" if isinstance(node, exp.Max) else "arg_min"
            node.replace(_call(name, node.this.copy(), _by_keys(node.this, nested, with_value=False)))
        elif isinstance(node, exp.ArraySort):
            if made := _made(node.this):
                made.replace(_by_keys(made, nested, with_value=True))
                node.replace(_of_each(node.copy(), exp.to_identifier("item")))
            elif _mentions(node.this, nested):
                node.set("this", _call("spark_ordered_items", node.this))
        elif isinstance(node, exp.Max | exp.Min | exp.Ordered) and _mentions(node.this, nested):
            node.set("this", _call("spark_ordered", node.this))
        elif isinstance(node, exp.ArgMax | exp.ArgMin) and _mentions(node.expression, nested):
            node.set("expression", _call("spark_ordered", node.expression))
        elif isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE):
            for side in ("this", "expression"):
                if _mentions(node.args[side], nested):
                    node.set(side, _call("spark_ordered", node.args[side]))


def _nested(statement: Expr) -> set[str]:
    """Return the names that may be of structs or arrays, as far as the statement itself makes these."""
    from sqlglot import exp

    nested = {column.name for view in statement.find_all(exp.Lateral) for column in view.args["alias"].columns}
    named = list(statement.find_all(exp.Alias))
    while more := {alias.alias for alias in named if alias.alias not in nested and _mentions(alias.this, nested)}:
        nested |= more
    return nested


def _mentions(node: Expr, nested: set[str]) -> bool:
    from sqlglot import exp

    def is_flat(part: Expr) -> bool:
        return isinstance(part, exp.Predicate | exp.Concat | exp.Count | exp.CountIf | exp.ArraySize)

    makers = (exp.Struct, exp.Array, exp.ArrayAgg, exp.ArrayUniqueAgg)
    found = node.dfs(prune=is_flat)
    return any(isinstance(part, makers) or (isinstance(part, exp.Column) and part.name in nested) for part in found)


def _structs(node: Expr) -> bool:
    from sqlglot import exp

    return isinstance(node, exp.Struct) or (isinstance(node, exp.If) and isinstance(node.args["true"], exp.Struct))


def _made(node: Expr) -> Expr | None:
    """Return the expression of the structs that an array is made of; None if it is not in sight."""
    from sqlglot import exp

    while not _structs(node):
        if isinstance(node, exp.Transform):
            node = node.expression.this
        elif isinstance(node, exp.Array) and len(node.expressions) == 1:
            (node,) = node.expressions
        elif isinstance(
            node, exp.ArrayAgg | exp.ArrayUniqueAgg | exp.Filter | exp.Window | exp.ArrayFilter | exp.Flatten
        ):
            node = node.this
        else:
            return None
    return node


def _by_keys(node: Expr, nested: set[str], with_value: bool) -> Expr:
    """Return a struct's sort key, or a struct of it and of the value; of IF(condition, struct, NULL) likewise."""
    from sqlglot import exp

    node = node.copy()
    if isinstance(node, exp.If):
        if isinstance(node.args.get("false"), exp.Null | None):
            node.set("true", _by_keys(node.args["true"], nested, with_value))
            return node
        raise Untranslatable("the order of different structs")
    fields = [field.expression if isinstance(field, exp.PropertyEQ) else field for field in node.expressions]
    key = _call("create_sort_key")
    if with_value and len(fields) > 1 and _mentions(fields[-1], nested):
        fields.pop()  # only carried: what stands before it must tell the structs apart
    for field in fields:
        ordered = _call("spark_ordered", field.copy()) if _mentions(field, nested) else field.copy()
        key.append("expressions", ordered)
        key.append("expressions", exp.Literal.string("ASC NULLS FIRST"))
    if not with_value:
        return key
    pair = {"place": key, "item": node}
    return exp.Struct(
        expressions=[exp.PropertyEQ(this=exp.to_identifier(name), expression=value) for name, value in pair.items()]
    )


def _of_each(list_: Expr, field: Expr) -> Expr:
    """Return the array of one field of each struct in an array."""
    from sqlglot import exp

    element_field = exp.Dot(this=exp.to_identifier("one"), expression=field)
    return exp.Transform(this=list_, expression=exp.Lambda(this=element_field, expressions=[exp.to_identifier("one")]))


def _is_list(node: Expr) -> bool:
    """Tell whether a node is an array by what makes it."""
    from sqlglot import exp

    if isinstance(node, exp.Coalesce):
        return _is_list(node.this)
    lists = exp.Array | exp.ArrayFilter | exp.Transform | exp.ArraySort | exp.ArraySlice
    return _collects(node) or isinstance(node, lists)


def _text(node: Expr) -> Expr:
    from sqlglot import exp

    is_text = isinstance(node, exp.Concat | exp.Null) or (isinstance(node, exp.Literal) and not node.is_number)
    return node if is_text or node.is_int else _call("spark_text", node)


def _kind(node: Expr, known: Mapping[str, str]) -> str:
    name = str(node.args["to"].this.name)
    if name not in known:
        raise Untranslatable(f"try_cast to {name}")
    return name


def _call(name: str, *arguments: Expr) -> Expr:
    from sqlglot import exp

    return exp.Anonymous(this=name, expressions=list(arguments))


def _huge(node: Expr) -> Expr:
    from sqlglot import exp

    return exp.Cast(this=exp.Paren(this=node), to=exp.DataType.build("int128"))
