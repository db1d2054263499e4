"""UPDATE and DELETE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.types import StructType
from sqlglot import exp

from tidelock.core.errors import Unsupported
from tidelock.execution.spark.types import spark_schema
from tidelock.execution.write_plan import TOMBSTONE
from tidelock.operations.attempt import ReadSnapshot
from tidelock.spark.datasource.write import requested_app_transaction
from tidelock.spark.frames import all_of, report_frame
from tidelock.spark.sql.errors import REJECTED
from tidelock.spark.sql.sources import Sources, columns_named
from tidelock.spark.sql.statement import Statement, quoted, to_sql
from tidelock.spark.sql.target import StatementTarget, cast_column

Assignments = Mapping[str, Sequence[tuple[tuple[str, ...], exp.Expr]]]
"""By column: the paths of the nested fields that are set (empty: the whole column), and values."""


def update(target: StatementTarget, tree: exp.Update) -> DataFrame:
    """Execute an UPDATE.

    Raises: `InvalidInput` for a change of the record key, or of the ordering column to a smaller
    value; `Unsupported` for `UPDATE ... FROM`.
    """
    if tree.args.get("from_") is not None:
        raise Unsupported("UPDATE ... FROM is not supported", hint="use MERGE INTO")
    if not tree.expressions:
        raise target.statement.invalid(
            len(target.statement.text) - 1,
            "UPDATE: SET is missing",
            hint="for example UPDATE t SET a = 1",
        )
    known = target.table.schema.names
    assigned = assignments(target, tree.expressions, known)
    for name in assigned:
        if name in target.key_columns:
            raise target.statement.invalid(
                name,
                f"{name} is part of the record key of {target.entry.name} and cannot be updated",
                hint="delete the row and insert a new one",
            )
    moved_by = [name for name in target.partition_columns if name in assigned]
    if moved_by:
        target.check_partition_change()

    def compute(snapshot: ReadSnapshot) -> object | None:
        with target.sources(snapshot) as sources:
            found = _selected(target, sources, target.frame(snapshot, None), tree)
            schema = spark_schema(snapshot.schema)
            values = assigned_columns(target.statement, sources, target, assigned, schema)
            _guard_ordering(values, target, snapshot)
            rows = found.select(*(values.get(n, target.column(n)).alias(n) for n in schema.names))
            if moved_by:
                rows = _with_partition_moves(rows, found, values, target, moved_by)
            return target.materialize(rows, snapshot)

    return target.rewrite(compute, "upsert", tombstones=bool(moved_by))


def delete(target: StatementTarget, tree: exp.Delete) -> DataFrame:
    """Execute a DELETE. Without a condition, all rows are deleted, including concurrent inserts."""
    if tree.args.get("using") or tree.args.get("tables"):
        raise Unsupported("DELETE ... USING is not supported", hint="use MERGE INTO")
    where = tree.args.get("where")
    if where is None:
        report = target.table.insert_overwrite_table(
            target.table.schema.empty_table(),
            app_transaction=requested_app_transaction(target.options),
        )
        return report_frame(target.spark, "delete", report)

    named = columns_named(where)
    if named is not None:
        named |= {name.lower() for name in target.identity}

    def compute(snapshot: ReadSnapshot) -> object | None:
        with target.sources(snapshot) as sources:
            found = _selected(target, sources, target.frame(snapshot, named), tree)
            rows = found.select(*(target.column(name) for name in target.identity))
            return target.materialize(rows, snapshot)

    return target.rewrite(compute, "delete")


def assignments(
    target: StatementTarget, nodes: Sequence[exp.Expr], known: Sequence[str]
) -> Assignments:
    """Return the assignments of a SET clause. Raises: `InvalidInput` for a column set twice."""
    found: dict[str, list[tuple[tuple[str, ...], exp.Expr]]] = {}
    for node in nodes:
        if not isinstance(node, exp.EQ):
            raise target.statement.invalid(
                node, "SET: expected column = value", hint="for example SET a = 1"
            )
        name, inner = target.resolve_column(node.this, known)
        before = found.setdefault(name, [])
        if any(path[: len(inner)] == inner or inner[: len(path)] == path for path, _ in before):
            raise target.statement.invalid(node.this, f"{name} is set twice", hint="set it once")
        before.append((inner, node.expression))
    return found


def assigned_columns(
    statement: Statement,
    sources: Sources,
    target: StatementTarget,
    assigned: Assignments,
    schema: StructType,
) -> dict[str, Column]:
    """Return the new value of each assigned column, cast to the column's type."""
    found = {}
    for name, parts in assigned.items():
        value = target.column(name)
        for inner, node in parts:
            assigned_value = value_column(statement, sources, node)
            path = ".".join(quoted(part) for part in inner)
            value = value.withField(path, assigned_value) if inner else assigned_value
        found[name] = cast_column(value, schema, name)
    return found


def value_column(statement: Statement, sources: Sources, node: exp.Expr) -> Column:
    """Return a value of a statement as a column; DEFAULT is null for every column."""
    return F.lit(None) if is_default(node) else F.expr(sources.expression(statement, node))


def is_default(node: exp.Expr) -> bool:
    """Return whether an expression is the keyword DEFAULT."""
    return to_sql(node).upper() == "DEFAULT"


def _selected(
    target: StatementTarget, sources: Sources, frame: DataFrame, tree: exp.Update | exp.Delete
) -> DataFrame:
    where = tree.args.get("where")
    if where is None:
        return frame
    return frame.where(F.expr(sources.expression(target.statement, where.this)))


def _guard_ordering(
    values: dict[str, Column], target: StatementTarget, snapshot: ReadSnapshot
) -> None:
    """Reject smaller ordering values: the stored row would win, and the update would be lost."""
    order = [name for name in snapshot.rule.ordered_by if name in values]
    if not order:
        return
    before = F.struct(*(target.column(name) for name in snapshot.rule.ordered_by))
    after = F.struct(*(values.get(n, target.column(n)).alias(n) for n in snapshot.rule.ordered_by))
    message = (
        f"{REJECTED}UPDATE would decrease the ordering field {', '.join(order)} of"
        f" {target.entry.name}: the stored row would win"
    )
    first = order[0]
    error = F.raise_error(F.lit(message))
    values[first] = F.when(after < before, error).otherwise(values[first]).alias(first)


def _with_partition_moves(
    rows: DataFrame,
    found: DataFrame,
    values: Mapping[str, Column],
    target: StatementTarget,
    partition_columns: Sequence[str],
) -> DataFrame:
    """Return the rows, plus a tombstone in the old partition for each row that moves."""
    same = all_of(target.column(name).eqNullSafe(values[name]) for name in partition_columns)
    moved = found.where(~same).select(*(target.column(name) for name in rows.columns))
    tombstones = moved.withColumn(TOMBSTONE, F.lit(True))  # noqa: FBT003
    return tombstones.unionByName(rows.withColumn(TOMBSTONE, F.lit(False)))  # noqa: FBT003
