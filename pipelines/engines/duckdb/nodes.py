"""What the modules that translate a statement share: its parts as sqlglot has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.engines.choose import UnsupportedByDuckDB

if TYPE_CHECKING:
    from sqlglot.expressions import Expr


class Untranslatable(UnsupportedByDuckDB):
    """DuckDB cannot answer the statement, or cannot read a table as Spark does."""

    is_refusal = True


def call(name: str, *arguments: Expr) -> Expr:
    """Return a call of a function."""
    from sqlglot import exp

    return exp.Anonymous(this=name, expressions=list(arguments))


def is_list(node: Expr) -> bool:
    """Tell whether a node is an array by what makes it."""
    from sqlglot import exp

    if isinstance(node, exp.Coalesce):
        return is_list(node.this)
    lists = exp.Array | exp.ArrayFilter | exp.Transform | exp.ArraySort | exp.ArraySlice
    return collects(node) or isinstance(node, lists)


def collects(node: Expr) -> bool:
    """Tell whether a node collects values into an array, also with FILTER or OVER."""
    from sqlglot import exp

    return isinstance(aggregate(node), exp.ArrayAgg | exp.ArrayUniqueAgg)


def aggregate(node: Expr) -> Expr:
    """Return the aggregate function of a node that may be one with FILTER or OVER."""
    from sqlglot import exp

    while isinstance(node, exp.Filter | exp.Window):
        node = node.this
    return node


def of_each(list_: Expr, field: Expr) -> Expr:
    """Return the array of one field of each struct in an array."""
    from sqlglot import exp

    element_field = exp.Dot(this=exp.to_identifier("one"), expression=field)
    return exp.Transform(this=list_, expression=exp.Lambda(this=element_field, expressions=[exp.to_identifier("one")]))
