"""Spark frames of rows in the driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from tidelock.operations.report import WriteReport

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def local_frame(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Return the rows of an Arrow table as a frame.

    Spark 4.1 stops reading a table at its first empty batch and silently drops the rows after it.
    Chunks are combined so that there is only one batch.
    """
    return spark.createDataFrame(table.combine_chunks(), schema)


def all_of(conditions: Iterable[Column]) -> Column:
    """Return the conjunction of conditions; true if there are none."""
    return reduce(and_, conditions, F.lit(True))  # noqa: FBT003 - Spark's literal


_TYPES: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}

_REPORT: Final = (
    "operation string, instant string, rows_inserted bigint, rows_updated bigint,"
    " rows_deleted bigint"
)


def frame_of_rows(spark: SparkSession, rows: Iterable[Sequence[Any]], columns: str) -> DataFrame:
    """Return rows as a frame; `columns` declares names and types: `name string, n bigint`.

    Spark turns the Arrow table into a local relation, so showing the rows starts no job.
    """
    pairs = [column.split() for column in columns.split(",")]
    schema = pa.schema([(name, _TYPES[spark_type]) for name, spark_type in pairs])
    listed = list(rows)
    arrays = [
        pa.array([row[number] for row in listed], field.type) for number, field in enumerate(schema)
    ]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))


def report_frame(spark: SparkSession, operation: str, report: WriteReport | None) -> DataFrame:
    """Return the result of a statement as a frame of one row."""
    row: tuple[object, ...] = (None, 0, 0, 0)
    if report is not None:
        row = report.instant, report.rows_inserted, report.rows_updated, report.rows_deleted
    return frame_of_rows(spark, [(operation, *row)], _REPORT)
