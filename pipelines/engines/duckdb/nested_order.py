"""The order of structs and arrays with nulls, which the engines compare differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.engines.duckdb.nodes import Untranslatable, call, of_each

if TYPE_CHECKING:
    from sqlglot.expressions import Expr


def put_in_order(statement: Expr) -> None:
    """Let structs and arrays be compared as Spark does, for which a null within them is the least.

    The greatest or least struct is that with the greatest or least sort key, and structs are sorted by such keys. Where
    no struct's fields are in sight, DuckDB must find no null in a value that is compared: it ends with an error.
    """
    from sqlglot import exp

    nested = _nested(statement)
    for node in reversed(list(statement.dfs())):  # children first, as some are copied
        if isinstance(node, exp.Max | exp.Min) and _structs(node.this):
            name = "arg_max" if isinstance(node, exp.Max) else "arg_min"
            node.replace(call(name, node.this.copy(), _by_keys(node.this, nested, with_value=False)))
        elif isinstance(node, exp.ArraySort):
            if made := _made(node.this):
                made.replace(_by_keys(made, nested, with_value=True))
                node.replace(of_each(node.copy(), exp.to_identifier("item")))
            elif _mentions(node.this, nested):
                node.set("this", call("spark_ordered_items", node.this))
        elif isinstance(node, exp.Max | exp.Min | exp.Ordered) and _mentions(node.this, nested):
            node.set("this", call("spark_ordered", node.this))
        elif isinstance(node, exp.ArgMax | exp.ArgMin) and _mentions(node.expression, nested):
            node.set("expression", call("spark_ordered", node.expression))
        elif isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE):
            for side in ("this", "expression"):
                if _mentions(node.args[side], nested):
                    node.set(side, call("spark_ordered", node.args[side]))


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
    key = call("create_sort_key")
    if with_value and len(fields) > 1 and _mentions(fields[-1], nested):
        fields.pop()  # only carried: what stands before it must tell the structs apart
    for field in fields:
        ordered = call("spark_ordered", field.copy()) if _mentions(field, nested) else field.copy()
        key.append("expressions", ordered)
        key.append("expressions", exp.Literal.string("ASC NULLS FIRST"))
    if not with_value:
        return key
    pair = {"key": key, "item": node}
    return exp.Struct(
        expressions=[exp.PropertyEQ(this=exp.to_identifier(name), expression=value) for name, value in pair.items()]
    )
