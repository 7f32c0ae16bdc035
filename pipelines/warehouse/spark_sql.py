"""Spark SQL -> DuckDB's SQL, with the same rows.

sqlglot translates the text. This module corrects what it does not know, by functions of its own (``MACROS``). Where the
engines would differ without a remedy, a statement is refused or ends with an error, so that Spark answers instead.
Times are UTC: DuckDB holds them without a zone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_BY_ZERO = "CASE WHEN divisor = 0 THEN error('division by zero') ELSE dividend {} divisor END"
MACROS = (
    "spark_int(value) AS CASE WHEN typeof(value) = 'DOUBLE' THEN CAST(trunc(value) AS INT) ELSE CAST(value AS INT) END",
    f"spark_divide(dividend, divisor) AS {_BY_ZERO.format('/')}",
    f"spark_div(dividend, divisor) AS {_BY_ZERO.format('//')}",
    "spark_array_position(list, item) AS "
    "CASE WHEN list IS NOT NULL AND item IS NOT NULL THEN coalesce(list_position(list, item), 0) END",
    "spark_exists(met) AS CASE WHEN met IS NULL THEN NULL WHEN list_contains(met, true) THEN true "
    "WHEN len(list_filter(met, lambda one: one IS NULL)) > 0 THEN NULL ELSE false END",
    "spark_bigint_or_null(value) AS TRY_CAST(value AS BIGINT)",
    "spark_round(value, places) AS CAST(round(CAST(CAST(value AS VARCHAR) AS DECIMAL(38, 20)), places) AS DOUBLE)",
)
"""What follows ``CREATE MACRO``: functions of DuckDB that do what Spark's do."""

_ALIKE = re.compile(
    r"""(?x)(?:
        [^\\\[\](){}*+?|.^$] | \\[AzdD] | \\[!-/:-@\[-`{-~]  # characters, ends of the text, digits
        | \[\^?(?:[^\\\[\]&] | \\[dD] | \\[!-/:-@\[-`{-~])+\]  # classes
        | \((?:\?:|(?!\?)) | \) | \| | \^  # groups
        | (?:[*+?] | \{[0-9]+(?:,[0-9]*)?\})\??(?![*+?{])  # quantifiers, but no possessive ones
    )*"""
)
"""Patterns that Java and RE2 search alike: without ``.``, ``$``, ``\\s``, flags and what else differs."""


class Untranslatable(Exception):  # no error: Spark answers instead
    """DuckDB cannot answer the statement, or cannot read a table as Spark does."""


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


def translated(text: str) -> str:
    """Return a statement of Spark SQL in DuckDB's SQL.

    sqlglot does most. It knows nothing of these differences:

    - ``collect_set`` and ``collect_list`` of nothing are an empty array in Spark, and null in DuckDB.
    - ``CAST`` fails on what it cannot cast, and cuts off the fraction of a double. DuckDB rounds.
    - ``count_if`` of nothing is 0 in Spark, and null in DuckDB.
    - ``array_position`` of what is not in the array is 0 in Spark, and null in DuckDB.
    - ``max_by`` can be null in Spark; DuckDB's skips rows whose value is null.
    - ``round`` rounds the shortest decimal that stands for a double in Spark, and its binary value in DuckDB. The
      result is a double here, so a question must round doubles only.
    - A division by zero is an error in Spark, and null in DuckDB.
    - ``exists`` of an array is null if no element is true and one is null.
    - ``lpad`` takes numbers.
    - ``try_sum``, ``try_add`` and ``try_subtract`` are null where a sum is no 64-bit number.
    - ``any_value`` can be null in Spark; DuckDB's skips nulls.
    - ``RLIKE`` is Java's, and RE2's in DuckDB: a pattern that they may read differently is refused.

    Raises Untranslatable: the statement cannot be understood, or has no equal.
    """
    from sqlglot.errors import SqlglotError

    try:
        statement = _parsed(text)
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
        if node.to.this == exp.DType.INT:
            return _call("spark_int", node.this)
        return exp.Cast(this=node.this, to=node.to)
    if isinstance(node, exp.CountIf):
        return exp.Count(this=exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))]))
    if isinstance(node, exp.ArrayPosition):
        return _call("spark_array_position", node.this, node.expression)
    if isinstance(node, exp.ArgMax):
        return _call("arg_max_null", node.this, node.expression)
    if isinstance(node, exp.AnyValue):
        return exp.First(this=node.this)
    if isinstance(node, exp.RegexpLike) and not _is_read_alike(node.expression):
        raise Untranslatable("Java and RE2 may read a pattern differently")
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
    if isinstance(node, exp.Anonymous) and node.name.lower() == "try_sum":
        return _call("spark_bigint_or_null", exp.Sum(this=node.expressions[0]))
    if _collects(node) and not isinstance(node.parent, exp.Filter | exp.Window):
        return exp.Coalesce(this=node, expressions=[exp.Array()])
    return node


def _is_read_alike(pattern: Expr) -> bool:
    """Tell whether a pattern is a text that Java and RE2 search alike."""
    from sqlglot import exp

    return isinstance(pattern, exp.Literal | exp.RawString) and _ALIKE.fullmatch(pattern.name) is not None


def _collects(node: Expr) -> bool:
    """Tell whether a node collects values into an array, also with FILTER or OVER."""
    from sqlglot import exp

    while isinstance(node, exp.Filter | exp.Window):
        node = node.this
    return isinstance(node, exp.ArrayAgg | exp.ArrayUniqueAgg)


def _call(name: str, *arguments: Expr) -> Expr:
    from sqlglot import exp

    return exp.Anonymous(this=name, expressions=list(arguments))


def _huge(node: Expr) -> Expr:
    from sqlglot import exp

    return exp.Cast(this=exp.Paren(this=node), to=exp.DataType.build("int128"))
