"""Writers of a table fleet: plain Python, the Spark data source, and Spark SQL.

Each write carries the step number as its application transaction, so no step is applied twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from tidelock.core.errors import InvalidInput
from tidelock.operations.config import OPERATION
from tidelock.spark.options import TXN_APP_ID, TXN_VERSION
from tidelock.table import Table
from tidelock.txn.app_transactions import AppTransaction
from tidelock.workload import steps

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


class StepWriter(Protocol):
    """Applies steps to a table."""

    def step_of(self, generator: steps.StepGenerator, writer: str, number: int) -> steps.Step:
        """Return step `number` of a program of this kind."""
        ...

    def apply(self, step: steps.Step, app_transaction: AppTransaction) -> int:
        """Apply a step once per application transaction; return the number of rebases."""
        ...


@dataclass(frozen=True, slots=True)
class PythonStepWriter:
    """Writes without Spark."""

    table: Table

    def step_of(self, generator: steps.StepGenerator, writer: str, number: int) -> steps.Step:
        return generator.upsert_of(writer, number)

    def apply(self, step: steps.Step, app_transaction: AppTransaction) -> int:
        assert isinstance(step, steps.Upsert)
        return self.table.upsert(arrow_rows(step.rows), app_transaction=app_transaction).rebases


@dataclass(frozen=True)
class SparkStepWriter:
    """Writes with `df.write`."""

    spark: SparkSession
    uri: str
    options: Mapping[str, str]

    def step_of(self, generator: steps.StepGenerator, writer: str, number: int) -> steps.Step:
        return generator.upsert_of(writer, number)

    def apply(self, step: steps.Step, app_transaction: AppTransaction) -> int:
        """Apply the step; Spark does not report the number of rebases."""
        identity = {
            TXN_APP_ID.key: app_transaction.app_id,
            TXN_VERSION.key: str(app_transaction.version),
        }
        self._write(step, {**self.options, **identity})
        return 0

    def _write(self, step: steps.Step, options: Mapping[str, str]) -> None:
        assert isinstance(step, steps.Upsert)
        frame = self.spark.createDataFrame(arrow_rows(step.rows))
        upsert = {**options, OPERATION.key: "upsert"}
        frame.write.format("tidelock").options(**upsert).mode("append").save(self.uri)


@dataclass(frozen=True)
class SqlStepWriter(SparkStepWriter):
    """Writes with SQL statements, most of which depend on the rows they read."""

    def step_of(self, generator: steps.StepGenerator, writer: str, number: int) -> steps.Step:
        return generator.statement_of(writer, number)

    def _write(self, step: steps.Step, options: Mapping[str, str]) -> None:
        from tidelock.spark.session import sql

        for name, value in options.items():
            self.spark.conf.set(name, value)
        sql(self.spark, self._statement(step))

    def _statement(self, step: steps.Step) -> str:
        table = f"tidelock.`{self.uri}`"
        match step:
            case steps.IncrementAmounts(modulus, remainder):
                where = f"id % {modulus} = {remainder}"
                return f"UPDATE {table} SET amount = amount + 1 WHERE {where}"  # noqa: S608
            case steps.DeleteRows(ids):
                return f"DELETE FROM {table} WHERE id IN ({', '.join(map(str, ids))})"  # noqa: S608
            case steps.Merge(rows):
                frame = self.spark.createDataFrame(arrow_rows(rows))
                frame.createOrReplaceTempView("arrivals")
                return (
                    f"MERGE INTO {table} AS t USING arrivals AS s ON t.id = s.id WHEN MATCHED THEN"
                    " UPDATE SET amount = t.amount + s.amount WHEN NOT MATCHED THEN INSERT *"
                )
            case steps.Upsert():
                raise InvalidInput("SQL step: expected an update, delete or merge, got an upsert")


@contextmanager
def spark_session(name: str) -> Iterator[SparkSession]:
    """Yield a small Spark session of this process, and remove its files afterwards."""
    from tidelock.execution.spark.session import local_session
    from tidelock.spark.session import enable

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


def arrow_rows(rows: tuple[steps.FleetRow, ...]) -> pa.Table:
    """Return rows as an Arrow table."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def rows_in(data: pa.Table) -> list[steps.FleetRow]:
    """Return the rows of an Arrow table."""
    columns = [data.column(name).to_pylist() for name in SCHEMA.names]
    return [steps.FleetRow(*values) for values in zip(*columns, strict=True)]
