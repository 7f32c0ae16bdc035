"""Ranges of columns -> the predicate of a query, and whether the statistics of files leave room for a row in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from expectations import literals

if TYPE_CHECKING:
    from pyspark.sql import Column

Ends = tuple[Any, Any] | None  # the least and the greatest value, both included; None: the column is null
Range = Mapping[str, Ends]  # by column


def points(column: str, values: Sequence[Any]) -> list[Range]:
    """Return one range for each value of a column."""
    return [{column: (value, value)} for value in values]


def within(ranges: Sequence[Range]) -> Column:
    """Return a predicate for the rows in at least one of the ranges; its literals let Delta skip files."""
    from pyspark.sql import functions as F

    values: dict[str, list[Any]] = {}
    others: list[Column] = []
    for range_ in ranges:
        (name, ends), *more = range_.items()
        if not more and ends is not None and ends[0] == ends[1]:
            values.setdefault(name, []).append(_value(ends[0]))
        else:
            others.append(reduce(and_, (_between(name, ends) for name, ends in range_.items())))
    return reduce(or_, [*(F.col(name).isin(listed) for name, listed in values.items()), *others])


def may_hold(ranges: Sequence[Range], columns: Sequence[str], file: Sequence[tuple[Any, Any]]) -> bool:
    """Tell whether a file may hold a row in one of the ranges; ``file`` is its least and greatest value by column."""
    return any(
        all(
            _may_hold(range_[name], *statistics)
            for name, statistics in zip(columns, file, strict=True)
            if name in range_
        )
        for range_ in ranges
    )


def _may_hold(ends: Ends, least: Any, most: Any) -> bool:
    if ends is None or type(ends[0]) not in (int, str) or least is None or most is None:
        return True  # a null, a type whose values have several forms, or a file without statistics
    return bool(ends[0] <= most and least <= ends[1])


def _between(name: str, ends: Ends) -> Column:
    from pyspark.sql import functions as F

    column = F.col(name)
    if ends is None:
        return column.isNull()
    least, greatest = ends
    return column == _value(least) if least == greatest else column.between(_value(least), _value(greatest))


def _value(value: Any) -> Column:
    """Return a value as a literal; Spark's own literal of a time before 1582 would be in another calendar."""
    from pyspark.sql import functions as F

    return F.lit(value) if isinstance(value, int | str) else F.expr(literals.spark(value))
