"""How a program of a fleet writes: in plain Python, through Spark's data source, or by SQL.

Each carries the number of the step as its mark, so that no step is applied twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from tidelock.base.errors import InvalidInput
from tidelock.ops.fleet.steps import Delete, Merge, Raise, Row, Step, Terms, Upsert
from tidelock.tableservice.table import Table
from tidelock.txn.mark import Mark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("region", pa.string()),
        pa.field("amount", pa.int64()),
        pa.field("writer", pa.string()),
        pa.field("step", pa.int64()),
    ]
)
_MEMORY: Final = "700m"


class Hand(Protocol):
    """Does steps to a table."""

    def step_of(self, terms: Terms, writer: str, number: int) -> Step:
        """Return what it does as step `number`."""
        ...

    def do(self, step: Step, mark: Mark) -> int:
        """Do a step, at most once for its mark; return how often others came between."""
        ...


@dataclass(frozen=True, slots=True)
class PythonHand:
    """Writes without Spark."""

    table: Table

    def step_of(self, terms: Terms, writer: str, number: int) -> Step:
        """Return an upsert."""
        return terms.upsert_of(writer, number)

    def do(self, step: Step, mark: Mark) -> int:
        """Upsert the rows."""
        assert isinstance(step, Upsert)
        return self.table.upsert(arrow_rows(step.rows), mark=mark).rebases


@dataclass(frozen=True, slots=True)
class SparkHand:
    """Writes with `df.write`."""

    spark: SparkSession
    uri: str
    options: Mapping[str, str]

    def step_of(self, terms: Terms, writer: str, number: int) -> Step:
        """Return an upsert."""
        return terms.upsert_of(writer, number)

    def do(self, step: Step, mark: Mark) -> int:
        """Upsert the rows; Spark does not say how often others came between."""
        assert isinstance(step, Upsert)
        frame = self.spark.createDataFrame(arrow_rows(step.rows))
        options = {
            **self.options,
            "hoodie.datasource.write.operation": "upsert",
            "tidelock.txn.app.id": mark.application,
            "tidelock.txn.version": str(mark.version),
        }
        frame.write.format("tidelock").options(**options).mode("append").save(self.uri)
        return 0


@dataclass(frozen=True, slots=True)
class SqlHand:
    """Writes with SQL statements, of which most depend on what they read."""

    spark: SparkSession
    uri: str
    options: Mapping[str, str]

    def step_of(self, terms: Terms, writer: str, number: int) -> Step:
        """Return a statement."""
        return terms.statement_of(writer, number)

    def do(self, step: Step, mark: Mark) -> int:
        """Run the statement."""
        from tidelock.pipeline.sql.session import sql

        options = {
            **self.options,
            "tidelock.txn.app.id": mark.application,
            "tidelock.txn.version": str(mark.version),
        }
        for name, value in options.items():
            self.spark.conf.set(name, value)
        sql(self.spark, self._statement(step))
        return 0

    def _statement(self, step: Step) -> str:
        table = f"tidelock.`{self.uri}`"
        match step:
            case Raise(modulus, remainder):
                where = f"id % {modulus} = {remainder}"
                return f"UPDATE {table} SET amount = amount + 1 WHERE {where}"  # noqa: S608
            case Delete(ids):
                return f"DELETE FROM {table} WHERE id IN ({', '.join(map(str, ids))})"  # noqa: S608
            case Merge(rows):
                frame = self.spark.createDataFrame(arrow_rows(rows))
                frame.createOrReplaceTempView("arrivals")
                return (
                    f"MERGE INTO {table} AS t USING arrivals AS s ON t.id = s.id"
                    " WHEN MATCHED THEN UPDATE SET amount = t.amount + s.amount"
                    " WHEN NOT MATCHED THEN INSERT *"
                )
            case Upsert():
                raise InvalidInput("an upsert is no SQL statement")


@contextmanager
def spark_session(name: str) -> Iterator[SparkSession]:
    """Yield a small Spark session of this process's own; nothing of it is left afterwards."""
    from tidelock.engine.spark.session import local_session
    from tidelock.pipeline.datasource.hook import enable

    with tempfile.TemporaryDirectory(prefix="tidelock-fleet-") as scratch:
        settings = {
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "ERROR",
        }
        spark = local_session(name, cores=1, memory=_MEMORY, settings=settings)
        try:
            enable(spark)
            yield spark
        finally:
            spark.stop()


def arrow_rows(rows: tuple[Row, ...]) -> pa.Table:
    """Return rows as Arrow has them."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def rows_in(found: pa.Table) -> list[Row]:
    """Return what a table holds."""
    columns = [found.column(name).to_pylist() for name in SCHEMA.names]
    return [Row(*values) for values in zip(*columns, strict=True)]
