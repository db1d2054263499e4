"""UPDATE and DELETE: rows that a condition chooses, changed or taken away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.types import StructType
from sqlglot import exp

from tidelock.base.errors import Unsupported
from tidelock.kernel.route import TOMBSTONE
from tidelock.operation.moment import Moment
from tidelock.pipeline.datasource.writing import asked_mark
from tidelock.pipeline.sql.failing import REFUSED
from tidelock.pipeline.sql.reading import Sources
from tidelock.pipeline.sql.references import columns_named
from tidelock.pipeline.sql.result import reported
from tidelock.pipeline.sql.statement import Statement, place_of, place_of_word, rendered
from tidelock.pipeline.sql.target import Target, fitted, struct_of
from tidelock.pipeline.sql.text import mistake, quoted

Assigned = Mapping[str, Sequence[tuple[tuple[str, ...], exp.Expr]]]
"""For each column that is set: which field of it (none: all of it), and the value."""


def update(target: Target, tree: exp.Update) -> DataFrame:
    """Carry out an UPDATE.

    Raises: `InvalidInput` for a change of the record key, or of the ordering column to a smaller
    value; `Unsupported` for UPDATE ... FROM.
    """
    text = target.statement.text
    if tree.args.get("from_") is not None:
        raise Unsupported("UPDATE ... FROM is not supported", hint="use MERGE INTO")
    if not tree.expressions:
        raise mistake(text, len(text) - 1, "UPDATE sets nothing", hint="UPDATE t SET a = 1")
    known = target.table.schema.names
    assigned = assignments(target, tree.expressions, known)
    for name in assigned:
        if name in target.keys:
            raise mistake(
                text,
                place_of_word(target.statement, name),
                f"{name} is part of the record key of {target.entry.name}, which stays as it is",
                hint="delete the row and insert another",
            )
    moves = [name for name in target.partitions if name in assigned]
    if moves:
        target.check_moves()

    def compute(now: Moment) -> object | None:
        with target.sources(now) as sources:
            found = _matched(target, sources, target.frame(now, None), tree)
            kind = struct_of(now.schema)
            values = set_values(target.statement, sources, target, assigned, kind)
            _guard_ordering(values, target, now)
            rows = found.select(*(values.get(n, target.of(n)).alias(n) for n in kind.names))
            if moves:
                rows = _with_moves(rows, found, values, target, moves)
            return target.collected(rows, now)

    return target.rewrite(compute, "upsert", tombstones=bool(moves))


def delete(target: Target, tree: exp.Delete) -> DataFrame:
    """Carry out a DELETE. Without a condition all rows go at once, whatever comes meanwhile."""
    if tree.args.get("using") or tree.args.get("tables"):
        raise Unsupported("DELETE ... USING is not supported", hint="use MERGE INTO")
    where = tree.args.get("where")
    if where is None:
        report = target.table.insert_overwrite_table(
            target.table.schema.empty_table(), mark=asked_mark(target.options)
        )
        return reported(target.spark, "delete", report)
    heads = tuple(dict.fromkeys([*target.keys, *target.partitions]))
    named = columns_named(where)
    if named is not None:
        named |= {name.lower() for name in heads}

    def compute(now: Moment) -> object | None:
        with target.sources(now) as sources:
            found = _matched(target, sources, target.frame(now, named), tree)
            return target.collected(found.select(*(target.of(name) for name in heads)), now)

    return target.rewrite(compute, "delete")


def assignments(target: Target, nodes: Sequence[exp.Expr], known: Sequence[str]) -> Assigned:
    """Return what each column is set to. Raises: `InvalidInput` for one that is set twice."""
    found: dict[str, list[tuple[tuple[str, ...], exp.Expr]]] = {}
    text = target.statement.text
    for node in nodes:
        if not isinstance(node, exp.EQ):
            raise mistake(text, place_of(node), "SET takes column = value", hint="SET a = a + 1")
        name, inner = target.column(node.this, known)
        before = found.setdefault(name, [])
        if any(path[: len(inner)] == inner or inner[: len(path)] == path for path, _ in before):
            raise mistake(text, place_of(node.this), f"{name} is set twice", hint="set it once")
        before.append((inner, node.expression))
    return found


def set_values(
    statement: Statement, sources: Sources, target: Target, assigned: Assigned, kind: StructType
) -> dict[str, Column]:
    """Return the value of each column that is set, in the column's type."""
    found = {}
    for name, parts in assigned.items():
        value = target.of(name)
        for inner, node in parts:
            given = value_of(statement, sources, node)
            path = ".".join(quoted(part) for part in inner)
            value = value.withField(path, given) if inner else given
        found[name] = fitted(value, kind, name)
    return found


def value_of(statement: Statement, sources: Sources, node: exp.Expr) -> Column:
    """Return a value of a statement as a column; DEFAULT is null, the default of every column."""
    if rendered(node).upper() == "DEFAULT":
        return F.lit(None)
    return F.expr(sources.expression(statement, node))


def _matched(
    target: Target, sources: Sources, frame: DataFrame, tree: exp.Update | exp.Delete
) -> DataFrame:
    where = tree.args.get("where")
    if where is None:
        return frame
    return frame.where(F.expr(sources.expression(target.statement, where.this)))


def _guard_ordering(values: dict[str, Column], target: Target, now: Moment) -> None:
    """Refuse smaller ordering values: the stored row would win, and the update be lost."""
    order = [name for name in now.rule.ordered_by if name in values]
    if not order:
        return
    before = F.struct(*(target.of(name) for name in now.rule.ordered_by))
    after = F.struct(*(values.get(n, target.of(n)).alias(n) for n in now.rule.ordered_by))
    message = (
        f"{REFUSED}UPDATE would make {', '.join(order)} smaller, by which {target.entry.name}"
        " orders the rows of a key: the row that is there would win"
    )
    first = order[0]
    refused = F.raise_error(F.lit(message))
    values[first] = F.when(after < before, refused).otherwise(values[first]).alias(first)


def _with_moves(
    rows: DataFrame,
    found: DataFrame,
    values: Mapping[str, Column],
    target: Target,
    moves: Sequence[str],
) -> DataFrame:
    """Return the rows with a tombstone for each at the place that it leaves."""
    same = F.lit(True)  # noqa: FBT003 - Spark's literal
    for name in moves:
        same = same & target.of(name).eqNullSafe(values[name])
    left = found.where(~same).select(*(target.of(name) for name in rows.columns))
    gone = left.withColumn(TOMBSTONE, F.lit(True))  # noqa: FBT003
    return gone.unionByName(rows.withColumn(TOMBSTONE, F.lit(False)))  # noqa: FBT003
