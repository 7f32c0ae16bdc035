"""A condition on silver.dlq_records in Spark SQL, as a person types it -> checked text that DuckDB answers like Spark.

Only what both engines mean alike is allowed; a test compares them. Anything else is refused by name, so that a plan
never holds other records than the same condition in ``afterlog sql`` shows.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from expectations.contract import contract_of
from expectations.text import visible
from pipelines.errors import UsageError
from pipelines.text import hint

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

TABLE = "silver.dlq_records"
TEXT, NUMBER, TRUTH, TIME, BYTES = "a text", "a number", "true or false", "a time", "bytes"
KINDS = {"string": TEXT, "int": NUMBER, "bigint": NUMBER, "boolean": TRUTH, "timestamp": TIME, "binary": BYTES}
"""The kind of value of each type of column that a condition can use."""
UNITS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK")
ALLOWED = (
    "comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, LIKE, lower, upper, length, startswith, endswith, contains, "
    "TIMESTAMP '...', current_timestamp() and :now with + or - INTERVAL"
)
_TIMES = ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ", "DATE")
_WIDEST = 60
_COLUMNS = {column.name: column.type for column in contract_of(TABLE).stored}


def condition(text: str, *, now: datetime) -> str:
    """Return the condition as Spark SQL over ``records``; ``now`` stands for :now and current_timestamp().

    Raises UsageError: it is no condition on columns of silver.dlq_records, or uses what is not allowed.
    """
    from sqlglot import exp, parse
    from sqlglot.errors import SqlglotError

    try:
        statements = parse(f"SELECT 1 WHERE {text}", read="spark")
    except SqlglotError:
        raise _refused("it cannot be understood as Spark SQL") from None
    select = statements[0] if len(statements) == 1 else None
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    if (
        select is None
        or where is None
        or any(part for name, part in select.args.items() if name not in ("expressions", "where", "kind"))
    ):
        raise _refused("it is not one condition")
    checked = _checked(where.this, now)
    if _kind(checked) not in (TRUTH, None):
        raise _refused("it is not true or false")
    return str(checked.sql("spark", comments=False))


def _checked(node: Expr, now: datetime) -> Expr:
    """Return a node with its columns qualified and its times in UTC; raises UsageError: it is not allowed."""
    from sqlglot import exp

    if isinstance(node, exp.CurrentTimestamp) or (isinstance(node, exp.Placeholder) and node.name == "now"):
        return _moment(now)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.to.this.name in _TIMES:
        return _read(node.this)
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
        span = node.expression
        if not isinstance(span.this, exp.Literal) or str(span.unit).upper().removesuffix("S") not in UNITS:
            raise _not_allowed(span)
        return type(node)(this=_checked(node.this, now), expression=span.copy())
    if isinstance(node, exp.Column):
        return _column(node)
    comparisons = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.Is)
    logic = (exp.And, exp.Or, exp.Not, exp.Paren, exp.Between, exp.In, exp.Null, exp.Boolean, exp.Literal, exp.Neg)
    functions = (exp.Like, exp.Lower, exp.Upper, exp.Length, exp.StartsWith, exp.EndsWith, exp.Contains)
    if type(node) not in (*comparisons, *logic, *functions):
        raise _not_allowed(node)
    if isinstance(node, exp.In) and (node.args.get("query") or node.args.get("unnest") or node.args.get("field")):
        raise _not_allowed(node)
    if isinstance(node, exp.Like) and (not isinstance(node.expression, exp.Literal) or "\\" in node.expression.name):
        raise _refused("a pattern of LIKE must be a text without backslashes")
    copy = node.copy()
    for name, value in node.args.items():
        if isinstance(value, exp.Expression):
            copy.set(name, _checked(value, now))
        elif isinstance(value, list):
            copy.set(name, [_checked(child, now) if isinstance(child, exp.Expression) else child for child in value])
    parts = list(copy.iter_expressions())
    if isinstance(copy, (*comparisons, exp.Between, exp.In)) and TIME in map(_kind, parts):
        for part in parts:
            if isinstance(part, exp.Literal) and part.is_string:
                part.replace(_read(part))
    return copy


def _kind(node: Expr) -> str | None:
    """Return the kind of value that a checked node has; None for NULL. Engines tell rows' values if kinds do not fit.

    Raises UsageError: it compares values of different kinds, or asks of one kind what only another one has.
    """
    from sqlglot import exp

    if isinstance(node, exp.Literal | exp.Column | exp.Boolean | exp.Cast | exp.Null):
        if isinstance(node, exp.Literal):
            return TEXT if node.is_string else NUMBER
        if isinstance(node, exp.Column):
            return KINDS[_COLUMNS[node.name]]
        return TRUTH if isinstance(node, exp.Boolean) else TIME if isinstance(node, exp.Cast) else None
    given = {_kind(child) for child in node.iter_expressions() if not isinstance(child, exp.Interval)} - {None}
    if isinstance(node, exp.Paren):
        return next(iter(given), None)
    if isinstance(node, exp.Add | exp.Sub):
        takes, gives = {TIME}, TIME
    elif isinstance(node, exp.Neg):
        takes, gives = {NUMBER}, NUMBER
    elif isinstance(node, exp.And | exp.Or | exp.Not):
        takes, gives = {TRUTH}, TRUTH
    elif isinstance(node, exp.Length):
        takes, gives = {TEXT, BYTES}, NUMBER
    elif isinstance(node, exp.Lower | exp.Upper):
        takes, gives = {TEXT}, TEXT
    elif isinstance(node, exp.Like | exp.StartsWith | exp.EndsWith | exp.Contains):
        takes, gives = {TEXT}, TRUTH
    else:
        takes, gives = {*KINDS.values()}, TRUTH
    if len(given) > 1 or not given <= takes:
        said = visible(node.sql("spark").replace("records.", "")[:_WIDEST])
        kinds = " and ".join(sorted(map(str, given)))
        raise _refused(f"{said} cannot {'compare' if len(given) > 1 else 'take'} {kinds}")
    return gives


def _read(literal: Expr) -> Expr:
    """Return the time that a text names; raises UsageError: it names none."""
    try:
        at = datetime.fromisoformat(literal.name)
    except ValueError:
        raise _refused(f"'{visible(literal.name[:_WIDEST])}' is no time") from None
    return _moment(at if at.tzinfo else at.replace(tzinfo=UTC))


def _column(node: Expr) -> Expr:
    from sqlglot import exp

    name = node.name.lower()
    if node.args.get("table") or name not in _COLUMNS:
        raise _refused(f"there is no column '{visible(node.sql('spark')[:_WIDEST])}' in {TABLE}{hint(name, _COLUMNS)}")
    if _COLUMNS[name] not in KINDS:
        raise _refused(f"column {name} is {_COLUMNS[name]}, and conditions are on single values")
    return exp.column(name, table="records")


def _moment(at: datetime) -> Expr:
    from sqlglot import exp

    return exp.Cast(this=exp.Literal.string(at.astimezone(UTC).isoformat()), to=exp.DataType.build("timestamptz"))


def _not_allowed(node: Expr) -> UsageError:
    return _refused(f"{visible(node.sql('spark')[:_WIDEST])} is not allowed; allowed are {ALLOWED}")


def _refused(why: str) -> UsageError:
    return UsageError(f"--where cannot be used: {why}" + ("" if why.endswith("?") else "."))
