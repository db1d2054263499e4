"""PARTITION (day = '2025-01-01', hour): which partitions of a table a statement means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from sqlglot import exp

from tidelock.base.errors import InvalidInput
from tidelock.pipeline.sql.statement import place_of, rendered
from tidelock.pipeline.sql.target import Target, struct_of
from tidelock.pipeline.sql.text import mistake, nearest
from tidelock.table.keys import KeyRule, partition_paths
from tidelock.table.partition import partition_values
from tidelock.table.properties import TableProperties


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """Values of partition columns. `values` has one typed row; `dynamic` columns come with rows."""

    values: pa.Table
    dynamic: tuple[str, ...] = ()
    nodes: Mapping[str, exp.Expr] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that have a value."""
        return tuple(self.values.column_names)

    def paths(self, properties: TableProperties, existing: Iterable[str]) -> tuple[str, ...]:
        """Return the partitions that have these values: one if all are given, else those found."""
        if set(self.names) >= set(properties.partition_fields):
            return (partition_paths(self.values, KeyRule.of(properties))[0].as_py(),)
        wanted = {
            name: None if value is None else str(value)
            for name, value in self.values.to_pylist()[0].items()
        }
        found = []
        for path in sorted(set(existing)):
            known = partition_values(
                properties.partition_fields,
                path,
                hive_style=properties.hive_style,
                url_encode=properties.url_encode,
            )
            if known is not None and all(known.get(name) == wanted[name] for name in wanted):
                found.append(path)
        return tuple(found)


def partition_spec(target: Target, node: exp.Partition) -> PartitionSpec:
    """Return what a PARTITION clause says.

    Raises: `InvalidInput` at the place of a column that does not partition the table.
    """
    target.check_moves()
    known, text = target.partitions, target.statement.text
    if not known:
        raise mistake(text, place_of(node), f"{target.entry.name} is not partitioned")
    nodes: dict[str, exp.Expr] = {}
    dynamic = []
    for each in node.expressions:
        column = each.this if isinstance(each, exp.EQ) else each
        name = next((name for name in known if name.lower() == column.name.lower()), None)
        if name is None:
            raise mistake(
                text,
                place_of(column),
                f"{column.name} does not partition {target.entry.name}",
                hint=nearest(column.name, known),
            )
        if isinstance(each, exp.EQ):
            nodes[name] = each.expression
        else:
            dynamic.append(name)
    return PartitionSpec(_evaluated(target, nodes), tuple(dynamic), nodes)


def existing_partitions(target: Target) -> set[str]:
    """Return the partitions that have files now."""
    return {piece.partition for piece in target.table.files()}


def chosen_paths(target: Target, nodes: Iterable[exp.Partition], *, lenient: bool) -> list[str]:
    """Return the partitions that clauses name. Raises: `InvalidInput` for one that is not there."""
    existing = existing_partitions(target)
    paths: list[str] = []
    for node in nodes:
        spec = partition_spec(target, node)
        if spec.dynamic:
            raise mistake(
                target.statement.text,
                place_of(node),
                f"{spec.dynamic[0]} has no value",
                hint=f"PARTITION ({spec.dynamic[0]} = ...)",
            )
        found = [path for path in spec.paths(target.properties, existing) if path in existing]
        if not found and not lenient:
            raise mistake(
                target.statement.text,
                place_of(node),
                f"{target.entry.name} has no such partition",
                hint=nearest("/".join(map(str, spec.values.to_pylist()[0].values())), existing),
            )
        paths += found
    return sorted(set(paths))


def _evaluated(target: Target, nodes: Mapping[str, exp.Expr]) -> pa.Table:
    kind = struct_of(target.table.schema)
    if not nodes:
        return pa.table({})
    columns = [
        F.expr(rendered(node)).cast(kind[name].dataType).alias(name) for name, node in nodes.items()
    ]
    found = target.spark.range(1).select(*columns).toArrow()
    if found.num_rows != 1:
        raise InvalidInput("PARTITION takes plain values")
    return found
