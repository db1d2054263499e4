"""The table that a statement changes, and rows on their way into it."""

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

from tidelock.base.errors import Unsupported
from tidelock.engine.spark.schema import arrow_schema_of, spark_schema
from tidelock.engine.spark.source import estimated_bytes
from tidelock.engine.spark.write import COLLECTED_BYTES_MAX
from tidelock.operation.moment import Moment
from tidelock.pipeline.datasource.writing import asked_mark
from tidelock.pipeline.sql.catalog import Catalog, Entry
from tidelock.pipeline.sql.failing import carried_out
from tidelock.pipeline.sql.reading import Sources, write_options
from tidelock.pipeline.sql.references import name_parts
from tidelock.pipeline.sql.result import reported
from tidelock.pipeline.sql.statement import Statement, place_of
from tidelock.pipeline.sql.text import mistake, nearest, quoted
from tidelock.table.properties import KeyGenerator, TableProperties
from tidelock.tableservice.table import Table

SMALL_BYTES: Final = 16 * 1024 * 1024
"""As stored. What changes in a smaller table is collected at once, by one job."""


@dataclass
class Target:
    """A table of ours that a statement changes; `alias` is what the statement calls it."""

    spark: SparkSession
    statement: Statement
    catalog: Catalog
    entry: Entry
    alias: str
    table: Table
    kept: list[DataFrame] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        statement: Statement,
        catalog: Catalog,
        node: exp.Table,
        extra: dict[str, object] | None = None,
    ) -> Target:
        """Open the table that a node names. Raises: `NotFound`, and what opening raises."""
        entry = catalog.required(name_parts(node))
        alias = node.alias or name_parts(node)[-1]
        options = {**write_options(spark, entry), **(extra or {})}
        return cls(spark, statement, catalog, entry, alias, Table.open(entry.uri, options=options))

    def close(self) -> None:
        """Let Spark forget the rows that were kept, and close the table."""
        self.forget()
        self.table.close()

    def forget(self) -> None:
        """Let Spark forget the rows that were kept."""
        for frame in self.kept:
            frame.unpersist()
        self.kept.clear()

    @property
    def properties(self) -> TableProperties:
        """What the table is."""
        return self.table.properties

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that the record key is in."""
        return _heads(self.properties.record_keys)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The columns that the partition is made of."""
        return _heads(self.properties.partition_fields)

    @property
    def options(self) -> dict[str, object]:
        """The options of reads and writes."""
        return write_options(self.spark, self.entry)

    def sources(self, now: Moment) -> Sources:
        """Return the reads of one attempt: this table shows the rows that the attempt is on."""

        def pinned(columns: list[str] | None) -> DataFrame:
            return now.frame(self.spark, self.options, columns, meta_columns=columns is None)

        return Sources(self.spark, self.catalog, {self.entry.uri: pinned})

    def frame(self, now: Moment, named: frozenset[str] | None) -> DataFrame:
        """Return this table's rows; of its columns those that are `named`, all for None."""
        names = now.schema.names
        if named is not None:
            names = [each for each in names if each.lower() in named]
        found = now.frame(self.spark, self.options, names, meta_columns=self.names_meta)
        return found.alias(self.alias)

    @property
    def names_meta(self) -> bool:
        """Tell whether the statement names a meta column."""
        return any(each.startswith("_hoodie_") for each in _words(self.statement))

    def of(self, name: str) -> Column:
        """Return a column of this table in a frame where others may have one of that name."""
        return F.col(f"{quoted(self.alias)}.{quoted(name)}")

    def column(self, node: exp.Expr, known: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Return the column that a node names, and the fields inside it that it names.

        Raises: `InvalidInput` at its place for a column that the table does not have.
        """
        parts = [part.name for part in node.parts] if isinstance(node, exp.Column) else [node.name]
        parts = _without(parts, [self.alias], self.entry.parts)
        for name in known:
            if name.lower() == parts[0].lower():
                return name, tuple(parts[1:])
        raise mistake(
            self.statement.text,
            place_of(node),
            f"{self.entry.name} has no column {'.'.join(parts)}",
            hint=nearest(parts[0], known),
        )

    def check_moves(self) -> None:
        """Refuse to move rows where the partition is not the plain value of its columns."""
        if self.properties.key_generator is KeyGenerator.TIMESTAMP:
            raise Unsupported(
                f"{self.entry.name} is partitioned by time: a statement cannot move its rows",
                hint="delete the rows and insert them again",
            )

    def collected(self, frame: DataFrame, now: Moment) -> object | None:
        """Return rows that were computed, so that they are computed once; None if there are none.

        Those of a small table come as Arrow; others stay with Spark. Raises: `InvalidInput`.
        """
        if is_small(now):
            rows = self.as_arrow(frame)
            return rows if rows.num_rows else None
        kept = self.keep(frame)
        return kept if carried_out(self.spark, self.entry.name, kept.count) else None

    def as_arrow(self, frame: DataFrame) -> pa.Table:
        """Return the rows of a frame, computed by one job. Raises: `InvalidInput`."""
        rows: pa.Table = carried_out(self.spark, self.entry.name, frame.toArrow)
        return rows.cast(arrow_schema_of(frame.schema))

    def keep(self, frame: DataFrame) -> DataFrame:
        """Return a frame that Spark keeps until the statement is over."""
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.kept.append(kept)
        return kept

    def rewrite(
        self,
        compute: Callable[[Moment], object | None],
        operation: str,
        *,
        tombstones: bool = False,
        partitions: Iterable[str] = (),
        reads: bool = True,
    ) -> DataFrame:
        """Write what is computed, again whenever others came between; return what was done.

        Without `reads` the rows do not depend on the table: they are computed once.
        """

        def rows(now: Moment) -> object | None:
            if reads:
                self.forget()
            return compute(now)

        report = self.table.rewrite(
            rows,
            operation,
            spark=self.spark,
            tombstones=tombstones,
            partitions=tuple(partitions),
            reads=reads,
            mark=asked_mark(self.options),
        )
        return reported(self.spark, self.statement.keyword.lower(), report)


def is_small(now: Moment) -> bool:
    """Tell whether all rows of a table would fit the driver."""
    sizes = (
        (piece.base.size_bytes if piece.base else 0) + sum(log.size_bytes for log in piece.logs)
        for piece in now.slices
    )
    return sum(sizes) <= SMALL_BYTES


def fits_driver(frame: DataFrame) -> bool:
    """Tell whether Spark thinks that a frame is so small that the engine would collect it."""
    size = estimated_bytes(frame)
    return size is not None and size <= COLLECTED_BYTES_MAX


def struct_of(schema: pa.Schema) -> StructType:
    """Return the types of a table's columns as Spark has them."""
    return spark_schema(schema)


def fitted(value: Column, kind: StructType, name: str) -> Column:
    """Return a value in the type of a column, under its name."""
    return value.cast(kind[name].dataType).alias(name)


def _heads(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition(".")[0] for name in names))


def _words(statement: Statement) -> Iterable[str]:
    tree = statement.tree
    return () if tree is None else (each.name for each in tree.find_all(exp.Identifier))


def _without(parts: list[str], *leads: Sequence[str]) -> list[str]:
    """Return the parts of a name without the table's own name before them."""
    lower = [part.lower() for part in parts]
    for lead in leads:
        width = len(lead)
        if width and len(parts) > width and lower[:width] == [part.lower() for part in lead]:
            return parts[width:]
    return parts
