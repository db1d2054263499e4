"""The target table of a statement, and the rows that the statement writes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.types import StructType
from sqlglot import exp

from tidelock.core.errors import Unsupported
from tidelock.execution.spark.frame_size import estimated_bytes
from tidelock.execution.spark.types import arrow_schema_of
from tidelock.execution.spark.write import COLLECTED_BYTES_MAX
from tidelock.hudi.properties import KeyGenerator, TableProperties
from tidelock.operations.attempt import ReadSnapshot
from tidelock.spark.datasource.write import requested_app_transaction
from tidelock.spark.frames import report_frame
from tidelock.spark.sql.catalog import Catalog, CatalogEntry
from tidelock.spark.sql.errors import run_statement_job
from tidelock.spark.sql.sources import Sources, name_parts, write_options
from tidelock.spark.sql.statement import Statement, quoted, suggestion
from tidelock.table import Table

SMALL_BYTES: Final = 16 * 1024 * 1024
"""Stored size. The changes to a smaller table are collected by a single job."""


@dataclass
class StatementTarget:
    """The Tidelock table that a statement changes; `alias` is its name in the statement."""

    spark: SparkSession
    statement: Statement
    catalog: Catalog
    entry: CatalogEntry
    alias: str
    table: Table
    cached: list[DataFrame] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        statement: Statement,
        catalog: Catalog,
        node: exp.Table,
        extra: dict[str, object] | None = None,
    ) -> StatementTarget:
        """Open the table that a node names. Raises: `NotFound`, and the errors of `Table.open`."""
        entry = catalog.required(name_parts(node))
        alias = node.alias or name_parts(node)[-1]
        options = {**write_options(spark, entry), **(extra or {})}
        return cls(spark, statement, catalog, entry, alias, Table.open(entry.uri, options=options))

    def close(self) -> None:
        """Unpersist the cached rows, and close the table."""
        self.unpersist()
        self.table.close()

    def unpersist(self) -> None:
        for frame in self.cached:
            frame.unpersist()
        self.cached.clear()

    @property
    def properties(self) -> TableProperties:
        return self.table.properties

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The top-level columns of the record key."""
        return _top_level(self.properties.record_keys)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The top-level columns of the partition path."""
        return _top_level(self.properties.partition_fields)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row: those of the record key and the partition path."""
        return tuple(dict.fromkeys([*self.key_columns, *self.partition_columns]))

    @property
    def options(self) -> dict[str, object]:
        return write_options(self.spark, self.entry)

    def sources(self, snapshot: ReadSnapshot) -> Sources:
        """Return the sources of one attempt, in which this table is read at `snapshot`."""

        def pinned() -> DataFrame:
            return snapshot.frame(self.spark, self.options, None, meta_columns=True)

        return Sources(self.spark, self.catalog, {self.entry.uri: pinned})

    def frame(self, snapshot: ReadSnapshot, named: frozenset[str] | None) -> DataFrame:
        """Return the rows of this table, with the columns in `named`; None means all."""
        names = snapshot.schema.names
        if named is not None:
            names = [each for each in names if each.lower() in named]
        found = snapshot.frame(self.spark, self.options, names, meta_columns=self.uses_meta_columns)
        return found.alias(self.alias)

    @property
    def uses_meta_columns(self) -> bool:
        """Return whether the statement references a meta column."""
        tree = self.statement.tree
        names = () if tree is None else tree.find_all(exp.Identifier)
        return any(each.name.startswith("_hoodie_") for each in names)

    def column(self, name: str) -> Column:
        """Return a column of this table, qualified by the alias."""
        return F.col(f"{quoted(self.alias)}.{quoted(name)}")

    def resolve_column(self, node: exp.Expr, known: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Return the column that a node names, and the path of nested fields within it.

        Raises: `InvalidInput` with the position of an unknown column.
        """
        parts = [part.name for part in node.parts] if isinstance(node, exp.Column) else [node.name]
        parts = _strip_prefix(parts, [self.alias], self.entry.parts)
        for name in known:
            if name.lower() == parts[0].lower():
                return name, tuple(parts[1:])
        raise self.statement.invalid(
            node,
            f"{self.entry.name} has no column {'.'.join(parts)}",
            hint=suggestion(parts[0], known),
        )

    def check_partition_change(self) -> None:
        """Reject moving rows if the partition path is not the plain value of its columns."""
        if self.properties.key_generator is KeyGenerator.TIMESTAMP:
            raise Unsupported(
                f"{self.entry.name}: rows of a table with a timestamp key generator cannot be moved"
                " to another partition",
                hint="delete the rows and insert them again",
            )

    def materialize(self, frame: DataFrame, snapshot: ReadSnapshot) -> object | None:
        """Compute the rows once and return them; None if there are none.

        For a small table, they are collected as Arrow; otherwise Spark caches them. Raises:
        `InvalidInput`.
        """
        if is_small(snapshot):
            rows = self.collect_arrow(frame)
            return rows if rows.num_rows else None
        cached = self.cache(frame)
        return cached if run_statement_job(self.spark, self.entry.name, cached.count) else None

    def collect_arrow(self, frame: DataFrame) -> pa.Table:
        """Return the rows of a frame, collected by one job. Raises: `InvalidInput`."""
        rows: pa.Table = run_statement_job(self.spark, self.entry.name, frame.toArrow)
        return rows.cast(arrow_schema_of(frame.schema))

    def cache(self, frame: DataFrame) -> DataFrame:
        """Return a frame that Spark caches until the statement ends."""
        cached = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.cached.append(cached)
        return cached

    def rewrite(
        self,
        compute: Callable[[ReadSnapshot], object | None],
        operation: str,
        *,
        tombstones: bool = False,
        partitions: Iterable[str] = (),
        reads: bool = True,
    ) -> DataFrame:
        """Compute rows and commit them, again after each conflict; return the report.

        Without `reads`, the rows do not depend on the table and are computed once.
        """

        def rows(snapshot: ReadSnapshot) -> object | None:
            if reads:
                self.unpersist()
            return compute(snapshot)

        report = self.table.rewrite(
            rows,
            operation,
            spark=self.spark,
            tombstones=tombstones,
            partitions=tuple(partitions),
            reads=reads,
            app_transaction=requested_app_transaction(self.options),
        )
        return report_frame(self.spark, self.statement.keyword.lower(), report)


def is_small(snapshot: ReadSnapshot) -> bool:
    """Return whether all rows of a table fit the driver."""
    return sum(piece.size_bytes for piece in snapshot.slices) <= SMALL_BYTES


def fits_driver(frame: DataFrame) -> bool:
    """Return whether Spark estimates that a frame is small enough to be collected."""
    size = estimated_bytes(frame)
    return size is not None and size <= COLLECTED_BYTES_MAX


def cast_column(value: Column, schema: StructType, name: str) -> Column:
    """Return a value cast to the type of a column, under its name."""
    return value.cast(schema[name].dataType).alias(name)


def _top_level(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition(".")[0] for name in names))


def _strip_prefix(parts: list[str], *prefixes: Sequence[str]) -> list[str]:
    """Return the parts of a column name without the table's name in front."""
    lower = [part.lower() for part in parts]
    for prefix in prefixes:
        width = len(prefix)
        if width and len(parts) > width and lower[:width] == [part.lower() for part in prefix]:
            return parts[width:]
    return parts
