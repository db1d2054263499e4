"""PARTITION clauses: `PARTITION (day = '2025-01-01', hour)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from sqlglot import exp

from tidelock.core.errors import InvalidInput
from tidelock.execution.spark.types import spark_schema
from tidelock.hudi.keys import KeyRule, partition_paths
from tidelock.hudi.partitions import partition_values
from tidelock.hudi.properties import TableProperties
from tidelock.spark.sql.statement import suggestion, to_sql
from tidelock.spark.sql.target import StatementTarget


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """Values of partition columns: one typed row in `values`; `dynamic` columns have no value."""

    values: pa.Table
    dynamic: tuple[str, ...] = ()
    nodes: Mapping[str, exp.Expr] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns with a value."""
        return tuple(self.values.column_names)

    def paths(self, properties: TableProperties, existing: Iterable[str]) -> tuple[str, ...]:
        """Return the partition paths with these values.

        If all columns have a value, the path need not exist; otherwise `existing` is filtered.
        """
        if set(self.names) >= set(properties.partition_fields):
            return (partition_paths(self.values, KeyRule.of(properties))[0].as_py(),)
        expected = {
            name: None if value is None else str(value)
            for name, value in self.values.to_pylist()[0].items()
        }
        found = []
        for path in sorted(set(existing)):
            values = partition_values(
                properties.partition_fields,
                path,
                hive_style=properties.hive_style,
                url_encode=properties.url_encode,
            )
            if values is not None and all(values.get(name) == expected[name] for name in expected):
                found.append(path)
        return tuple(found)


def partition_spec(target: StatementTarget, node: exp.Partition) -> PartitionSpec:
    """Return the values of a PARTITION clause.

    Raises: `InvalidInput` with the position of a column that is not a partition column.
    """
    target.check_partition_change()
    known = target.partition_columns
    if not known:
        raise target.statement.invalid(node, f"{target.entry.name} is not partitioned")
    nodes: dict[str, exp.Expr] = {}
    dynamic = []
    for each in node.expressions:
        column = each.this if isinstance(each, exp.EQ) else each
        name = next((name for name in known if name.lower() == column.name.lower()), None)
        if name is None:
            raise target.statement.invalid(
                column,
                f"{column.name} is not a partition column of {target.entry.name}",
                hint=suggestion(column.name, known),
            )
        if isinstance(each, exp.EQ):
            nodes[name] = each.expression
        else:
            dynamic.append(name)
    return PartitionSpec(_evaluated(target, nodes), tuple(dynamic), nodes)


def existing_partitions(target: StatementTarget) -> set[str]:
    """Return the partitions that currently have files."""
    return {piece.partition for piece in target.table.files()}


def named_partitions(
    target: StatementTarget, nodes: Iterable[exp.Partition], *, if_exists: bool
) -> list[str]:
    """Return the partitions of PARTITION clauses. Raises: `InvalidInput` for a missing one."""
    existing = existing_partitions(target)
    paths: list[str] = []
    for node in nodes:
        spec = partition_spec(target, node)
        if spec.dynamic:
            raise target.statement.invalid(
                node, f"{spec.dynamic[0]} has no value", hint=f"PARTITION ({spec.dynamic[0]} = ...)"
            )
        found = [path for path in spec.paths(target.properties, existing) if path in existing]
        if not found and not if_exists:
            raise target.statement.invalid(
                node,
                f"{target.entry.name}: partition not found",
                hint=suggestion("/".join(map(str, spec.values.to_pylist()[0].values())), existing),
            )
        paths += found
    return sorted(set(paths))


def _evaluated(target: StatementTarget, nodes: Mapping[str, exp.Expr]) -> pa.Table:
    schema = spark_schema(target.table.schema)
    if not nodes:
        return pa.table({})
    columns = [
        F.expr(to_sql(node)).cast(schema[name].dataType).alias(name) for name, node in nodes.items()
    ]
    found = target.spark.range(1).select(*columns).toArrow()
    if found.num_rows != 1:
        raise InvalidInput("PARTITION: expected constant values")
    return found
