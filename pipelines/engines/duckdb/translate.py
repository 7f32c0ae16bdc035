"""Spark SQL -> DuckDB's SQL, with the same rows.

sqlglot translates the text. This module corrects what it does not know, by functions of its own (``macros``). Where the
engines would differ without a remedy, a statement is refused or ends with an error, so that Spark answers instead.
Times are UTC: DuckDB holds them without a zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from pipelines.engines.duckdb.functions import ALIKE, REPLACEMENT, number_of
from pipelines.engines.duckdb.nested_order import put_in_order
from pipelines.engines.duckdb.nodes import Untranslatable, aggregate, call, collects, is_list, of_each

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

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
    - Null is the least within a struct or an array in Spark, and the greatest in DuckDB: see ``nested_order``.

    Raises Untranslatable: the statement cannot be understood, or has no equal.
    """
    from sqlglot.errors import SqlglotError

    try:
        statement = _parsed(text)
        put_in_order(statement)
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
    kind = type(node).__name__
    if kind in _CALLS:
        function, *arguments = _CALLS[kind]
        return call(function, *(node.args[argument] for argument in arguments))
    return _REMEDIES[kind](node) if kind in _REMEDIES else node


_CALLS = {
    "ArgMax": ("arg_max_null", "this", "expression"),
    "ArgMin": ("arg_min_null", "this", "expression"),
    "ArrayContains": ("spark_array_contains", "this", "expression"),
    "ArrayPosition": ("spark_array_position", "this", "expression"),
    "Div": ("spark_divide", "this", "expression"),
    "Flatten": ("spark_flatten", "this"),
    "GenerateSeries": ("spark_sequence", "start", "end"),
    "IntDiv": ("spark_div", "this", "expression"),
    "Length": ("spark_length", "this"),
}
"""Spark's functions that one of DuckDB's, or a macro, stands for: its name, and the parts that it takes."""


def _cast(node: Expr) -> Expr:
    from sqlglot import exp

    kind, is_value = node.args["to"], not isinstance(node.this, exp.Literal | exp.Null)
    if node.args.get("safe"):
        return call(_TRIES[_kind(node, _TRIES)], node.this)
    if kind.this == exp.DType.BIGINT and is_value:
        return call("spark_bigint", node.this)
    if kind.this == exp.DType.TEXT and is_value:
        return call("spark_text", node.this)
    if kind.this == exp.DType.BINARY:
        return call("spark_binary", node.this)
    if kind.this == exp.DType.INT:
        return call("spark_int", node.this)
    return exp.Cast(this=node.this, to=kind)


def _count_if(node: Expr) -> Expr:
    from sqlglot import exp

    return exp.Count(this=exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))]))


def _inline(node: Expr) -> Expr:
    from sqlglot import exp

    depth = exp.PropertyEQ(this=exp.to_identifier("max_depth"), expression=exp.Literal.number(2))
    return call("unnest", node.this, depth)


def _any_value(node: Expr) -> Expr:
    from sqlglot import exp

    return exp.First(this=node.this)


def _substring(node: Expr) -> Expr:
    if not _is_of_bytes(node):
        return node
    start, length = node.args.get("start"), node.args.get("length")
    if not (start and start.is_int and length and length.is_int and start.to_py() > 0 <= length.to_py()):
        raise Untranslatable("bytes from or to a place that is not known")
    return call("spark_bytes", node.this, start, length)


def _trim(node: Expr) -> Expr:
    from sqlglot import exp

    if not node.expression:
        node.set("expression", exp.Literal.string(" "))
    return node


def _sha2(node: Expr) -> Expr:
    if node.text("length") != "256":
        raise Untranslatable(f"a hash of {node.text('length')} bits")
    return node


def _round(node: Expr) -> Expr:
    from sqlglot import exp

    return call("spark_round", node.this, node.args.get("decimals") or exp.Literal.number(0))


def _exists(node: Expr) -> Expr:
    from sqlglot import exp

    if not node.expression:  # it is a subquery
        return node
    return call("spark_exists", exp.Transform(this=node.this, expression=node.expression))


def _pad(node: Expr) -> Expr:
    from sqlglot import exp

    node.set("this", exp.Cast(this=node.this, to=exp.DataType.build("text")))
    return node


def _try_add(node: Expr) -> Expr:
    from sqlglot import exp

    made = exp.Add if isinstance(node, exp.SafeAdd) else exp.Sub
    return call("spark_bigint_or_null", made(this=_huge(node.this), expression=node.expression))


def _concat(node: Expr) -> Expr:
    if not any(map(is_list, node.expressions)):
        node.set("expressions", [_text(expression) for expression in node.expressions])
    return node


def _time_to_text(node: Expr) -> Expr:
    node.set("this", call("spark_date", node.this))
    return node


def _seconds_between(node: Expr) -> Expr:
    if node.text("unit").upper() != "SECOND":
        raise Untranslatable(f"timestampdiff of {node.text('unit')}")
    return call("spark_seconds", node.expression, node.this)


def _percentile(node: Expr) -> Expr:
    from sqlglot import exp

    if isinstance(node.parent, exp.Filter | exp.Window):
        return node
    return call("spark_percentile", node.this, node.args.get("quantile") or exp.Literal.number("0.5"))


def _approximate(node: Expr) -> Expr:
    raise Untranslatable("each engine has its own approximation")


def _distinct(node: Expr) -> Expr:
    from sqlglot import exp

    around = node.parent.parent if node.parent and node.parent.name == "spark_ordered_items" else node.parent
    is_sorted = isinstance(around, exp.ArraySort)  # DuckDB fails if a function is within one that sees it
    return call("spark_set" if is_sorted else "spark_array_distinct", node.this)


def _unknown_function(node: Expr) -> Expr:
    """Return a call of what sqlglot does not know."""
    from sqlglot import exp

    name = node.name.lower()
    if name in _OF_THIS_MODULE:
        return call(f"spark_{name}", *node.expressions)
    if name == "try_validate_utf8":
        (text,) = node.expressions
        if text.name != "spark_text":
            raise Untranslatable("UTF-8 of what is not CAST(bytes AS STRING)")
        return call("spark_utf8_or_null", *text.expressions)
    if name == "conv":
        number, *bases = node.expressions
        if not isinstance(number, exp.Hex) or [base.name for base in bases] != ["16", "10"]:
            raise Untranslatable("conv of what is not hex(...), 16, 10")
        if not (isinstance(node.parent, exp.Cast) and node.parent.to.this == exp.DType.BIGINT):
            raise Untranslatable("conv is text")
        return call("spark_of_hex", number)
    if name == "try_sum":
        return call("spark_bigint_or_null", exp.Sum(this=node.expressions[0]))
    return node


def _array_join(node: Expr) -> Expr:
    return node if node.args.get("null") else call("spark_array_join", node.this, node.expression)


def _array_sort(node: Expr) -> Expr:
    if node.expression:
        raise Untranslatable("array_sort by a function")
    return node


def _field(node: Expr) -> Expr:
    return of_each(node.this, node.expression) if is_list(node.this) else node


def _of_aggregate(node: Expr) -> Expr:
    """Return a sum, or a collection of values, that is the same if there are none, also with FILTER or OVER."""
    from sqlglot import exp

    if isinstance(node, exp.ArrayAgg) and isinstance(node.this, exp.Struct):
        node.set("nulls_excluded", False)  # it is none
    if isinstance(node.parent, exp.Filter | exp.Window):
        if not (isinstance(node, exp.ArrayUniqueAgg) and isinstance(node.parent, exp.Filter)):
            return node
        known = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))  # or two FILTERs would be printed
        where = node.parent.expression
        where.set("this", exp.And(this=exp.Paren(this=where.this), expression=known))
        return exp.ArrayAgg(this=exp.Distinct(expressions=[node.this]))
    if isinstance(aggregate(node), exp.Sum):
        return call("spark_sum", node)
    return exp.Coalesce(this=node, expressions=[exp.Array()]) if collects(node) else node


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
    return call(name, node.this, number, *filter(None, (replacement, group)))


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

    if not node.args.get("options"):
        return node
    if node.args["options"] != parse_one("map('ignoreNullFields', 'false')", read="spark"):
        raise Untranslatable("options of to_json")
    return call("spark_json", node.this)


def _text(node: Expr) -> Expr:
    from sqlglot import exp

    is_text = isinstance(node, exp.Concat | exp.Null) or (isinstance(node, exp.Literal) and not node.is_number)
    return node if is_text or node.is_int else call("spark_text", node)


def _kind(node: Expr, known: Mapping[str, str]) -> str:
    name = str(node.args["to"].this.name)
    if name not in known:
        raise Untranslatable(f"try_cast to {name}")
    return name


def _huge(node: Expr) -> Expr:
    from sqlglot import exp

    return exp.Cast(this=exp.Paren(this=node), to=exp.DataType.build("int128"))


_REMEDIES: dict[str, Callable[[Expr], Expr]] = {
    "Anonymous": _unknown_function,
    "AnyValue": _any_value,
    "ApproxQuantile": _approximate,
    "ArrayAgg": _of_aggregate,
    "ArrayDistinct": _distinct,
    "ArraySort": _array_sort,
    "ArrayToString": _array_join,
    "ArrayUniqueAgg": _of_aggregate,
    "Concat": _concat,
    "ConcatWs": _concat,
    "CountIf": _count_if,
    "Dot": _field,
    "Exists": _exists,
    "Filter": _of_aggregate,
    "Inline": _inline,
    "JSONFormat": _json,
    "Median": _percentile,
    "Pad": _pad,
    "Quantile": _percentile,
    "RegexpExtract": _searched,
    "RegexpLike": _searched,
    "RegexpReplace": _searched,
    "Round": _round,
    "SHA2": _sha2,
    "SafeAdd": _try_add,
    "SafeSubtract": _try_add,
    "Substring": _substring,
    "Sum": _of_aggregate,
    "TimeToStr": _time_to_text,
    "TimestampDiff": _seconds_between,
    "Trim": _trim,
    "TryCast": _cast,
    "Window": _of_aggregate,
}
"""What makes a node, by its kind in sqlglot, mean the same in DuckDB."""
