"""Rows that a statement gives without a query: a frame that Spark has already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelock.operation.report import WriteReport

_KINDS: Final = {
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
    """Return rows as a frame; `columns` are names and types as in `name string, n bigint`.

    The rows come as Arrow, of which Spark makes a local relation: showing them takes no job.
    """
    pairs = [column.split() for column in columns.split(",")]
    schema = pa.schema([(name, _KINDS[kind]) for name, kind in pairs])
    listed = list(rows)
    arrays = [
        pa.array([row[number] for row in listed], field.type) for number, field in enumerate(schema)
    ]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))


def reported(spark: SparkSession, operation: str, report: WriteReport | None) -> DataFrame:
    """Return what a statement did as a frame of one row."""
    if report is None:
        return frame_of_rows(spark, [(operation, None, 0, 0, 0)], _REPORT)
    done = (
        operation,
        report.instant,
        report.rows_inserted,
        report.rows_updated,
        report.rows_deleted,
    )
    return frame_of_rows(spark, [done], _REPORT)
