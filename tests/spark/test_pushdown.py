"""Filter pushdown to merged file slices: other partitions are skipped, results are unchanged."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import datasource as ds

import tidelock as tl
from tidelock.spark.datasource import python_source
from tidelock.spark.datasource.python_source import arrow_filter

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("b", pa.bool_()),
    ]
)


@pytest.fixture
def uri(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a table with log files in every partition, read with filter pushdown."""
    tl.enable(spark)
    monkeypatch.setattr(python_source, "SLICES_MIN", 1)
    path = str(tmp_path / "t")
    nulls = {"hoodie.write.set.null.for.missing.columns": "true"}
    with tl.Table.create(
        path, SCHEMA, key="id", partition_by="day", type="MERGE_ON_READ", options=nulls
    ) as table:
        days = [f"d{number % 3}" for number in range(30)]
        table.upsert([{"id": i, "day": day, "n": i, "x": i / 2} for i, day in enumerate(days)])
        table.upsert([{"id": i, "day": day, "n": -i} for i, day in enumerate(days[:15])])
    return path


def test_slices_of_excluded_partitions_are_not_read(spark: SparkSession, uri: str) -> None:
    frame = spark.read.format("tidelock").load(uri)
    assert frame.count() == 30
    for file in Path(uri, "d1").iterdir():
        file.unlink()
    found = frame.where("day = 'd0' and n < 0").select("id").collect()
    assert sorted(row.id for row in found) == [3, 6, 9, 12]
    frame.createOrReplaceTempView("pushed")
    by_sql = spark.sql("select count(*) as rows from pushed where day in ('d0', 'd2')").collect()
    assert by_sql[0].rows == 20


def test_filter_applies_to_the_merged_row(spark: SparkSession, uri: str) -> None:
    frame = spark.read.format("tidelock").load(uri)
    assert frame.where("n = 5").count() == 0, "a log file has changed it"
    assert [row.id for row in frame.where("n = -5").collect()] == [5]
    assert frame.where("n > 100").count() == 0
    assert frame.where("day = 'elsewhere'").count() == 0


def test_few_small_slices_are_read_without_planning_in_another_process(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_source, "SLICES_MIN", 1_000)
    plan = str(spark.read.format("tidelock").load(uri)._jdf.queryExecution().toString())
    assert python_source.MERGED_FORMAT not in plan
    monkeypatch.setattr(python_source, "SLICES_MIN", 1)
    plan = str(spark.read.format("tidelock").load(uri)._jdf.queryExecution().toString())
    assert python_source.MERGED_FORMAT in plan


NAME = ("n",)
ROWS = pa.table({"n": [1, 2, None], "x": [1.0, float("nan"), None], "s": ["a", "b", None]})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (ds.EqualTo(NAME, 2), [2]),
        (ds.Not(ds.EqualTo(NAME, 2)), [1]),
        (ds.In(NAME, (1, 5)), [1]),
        (ds.LessThan(NAME, 2), [1]),
        (ds.LessThanOrEqual(NAME, 2), [1, 2]),
        (ds.GreaterThan(NAME, 1), [2]),
        (ds.GreaterThanOrEqual(NAME, 1), [1, 2]),
        (ds.IsNull(NAME), [None]),
        (ds.IsNotNull(NAME), [1, 2]),
        (ds.EqualTo(("s",), "b"), [2]),
    ],
)
def test_spark_filters_become_arrow_expressions(given: ds.Filter, expected: list[object]) -> None:
    expression = arrow_filter(given, ROWS.schema)
    assert expression is not None
    assert ROWS.filter(expression).column("n").to_pylist() == expected


@pytest.mark.parametrize(
    "given",
    [
        ds.GreaterThan(("x",), 1.0),  # NaN is larger in Spark
        ds.EqualTo(("t",), datetime(2024, 1, 1, tzinfo=UTC)),
        ds.EqualTo(("n",), "2"),
        ds.EqualTo(("n",), None),
        ds.EqualNullSafe(("n",), 2),
        ds.EqualTo(("a", "b"), 2),
        ds.EqualTo(("gone",), 2),
        ds.Not(ds.LessThan(("n",), 2)),
        ds.StringContains(("day",), "d"),
        ds.EqualTo(("b",), 1),
    ],
)
def test_filters_with_other_semantics_are_left_to_spark(given: ds.Filter) -> None:
    assert arrow_filter(given, SCHEMA) is None


def test_dates_and_booleans_are_compared() -> None:
    for given in (ds.EqualTo(("d",), date(2024, 1, 31)), ds.EqualTo(("b",), True)):
        assert isinstance(arrow_filter(given, SCHEMA), pc.Expression)
