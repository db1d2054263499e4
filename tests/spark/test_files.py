"""Frames of local Parquet files: read in the driver, or left to Spark, with the same rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelock as tl
from tidelock.execution.spark.write import local_files, read_local_table
from tidelock.table import Table

LARGE = 2**30
ROWS = pa.table(
    {
        "id": pa.array(["a", "b", None]),
        "n": pa.array([1, None, 3], pa.int16()),
        "x": pa.array([0.5, None, float("nan")]),
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.00")], pa.decimal128(9, 2)),
        "day": pa.array([date(2024, 1, 1), None, date(1999, 12, 31)]),
        "blob": pa.array([b"\x00", None, b"z"]),
        "yes": pa.array([True, None, False]),
    }
)


def written(folder: Path, rows: pa.Table = ROWS, name: str = "a b%.parquet") -> str:
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / name)
    return str(folder)


def test_rows_of_files_are_those_that_spark_finds(spark: SparkSession, tmp_path: Path) -> None:
    path = written(tmp_path / "in")
    written(tmp_path / "in", ROWS.slice(0, 1), "second.parquet")
    frame = spark.read.parquet(path)
    found = read_local_table(frame, LARGE)
    assert found is not None
    assert found.schema.equals(frame.toArrow().schema)
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, frame.toArrow().to_pylist()))


CHANGED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "filtered": lambda frame: frame.where("n > 1"),
    "projected": lambda frame: frame.selectExpr("id", "n + 1 AS n"),
    "joined": lambda frame: frame.join(frame.select("id"), "id"),
    "cached": lambda frame: frame.cache(),
}


@pytest.mark.parametrize("change", CHANGED)
def test_frame_that_does_more_than_read_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    frame = CHANGED[change](spark.read.parquet(written(tmp_path / "in")))
    try:
        assert read_local_table(frame, LARGE) is None
    finally:
        frame.unpersist()


def test_options_partitions_and_other_formats_are_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = written(tmp_path / "in")
    written(tmp_path / "parts")
    (tmp_path / "parts" / "day2=1").mkdir()
    Path(tmp_path / "parts" / "a b%.parquet").rename(tmp_path / "parts" / "day2=1" / "x.parquet")
    (tmp_path / "x.csv").write_text("1\n")
    frames = [
        spark.read.option("mergeSchema", "true").parquet(path),
        spark.read.schema("id string, n int").parquet(path),
        spark.read.parquet(str(tmp_path / "parts")),
        spark.read.csv(str(tmp_path / "x.csv")),
        spark.range(3),
    ]
    assert [read_local_table(frame, LARGE) for frame in frames] == [None] * 5


def test_types_that_spark_reads_differently_are_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    odd = {
        "time": pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("ms", tz="UTC")),
        "list": pa.array([[1]]),
        "unsigned": pa.array([1], pa.uint32()),
    }
    for name, column in odd.items():
        path = written(tmp_path / name, pa.table({name: column}))
        assert read_local_table(spark.read.parquet(path), LARGE) is None


def test_frames_too_large_for_the_driver_are_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.read.parquet(written(tmp_path / "in"))
    assert local_files(frame) is not None
    assert read_local_table(frame, 10) is None
    assert read_local_table(frame, 0) is None


def test_table_is_written_from_a_frame_of_files(spark: SparkSession, tmp_path: Path) -> None:
    rows = ROWS.slice(0, 2)
    frame = spark.read.parquet(written(tmp_path / "in", rows))
    path = str(tmp_path / "t")
    Table.create(path, rows.schema, key="id").close()
    with tl.Table.open(path).on_spark(spark) as table:
        assert table.upsert(frame).rows_inserted == 2
        assert table.read().sort_by("id").to_pylist() == rows.to_pylist()
