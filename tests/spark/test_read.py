"""Tables as Spark frames: Spark's own reader where the result is the same, ours elsewhere."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelock as tl
from tests.interop.real_tables import unpacked
from tidelock.core.errors import InvalidInput
from tidelock.execution.spark.read import hadoop_root, pack_tasks
from tidelock.hudi.file_groups import BaseFile, FileSlice
from tidelock.table import Table

SCHEMA = pa.schema([("id", "string"), ("day", "string"), ("n", "int32"), ("x", "float64")])
ROWS = [
    {"id": "a", "day": "d1", "n": 1, "x": 0.5},
    {"id": "b", "day": "d 2=%", "n": 2, "x": None},
    {"id": "c", "day": "d1", "n": None, "x": 2.5},
]


def create_table(folder: Path, **options: str) -> Table:
    table = tl.Table.create(
        str(folder / "t"), SCHEMA, key="id", partition_by="day", options=options
    )
    table.upsert(ROWS)
    return table


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def same(frame: DataFrame, table: pa.Table) -> bool:
    return sorted(map(str, frame.toArrow().to_pylist())) == sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize(
    "name",
    ["cow-v9_timebasedkeygen_nonhivestyle", "mor-v8_trips_8i3u1d", "mor-v9_txns_complex_meta"],
)
def test_tables_of_hudis_java_writers_read_as_the_local_engine_reads_them(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    with tl.Table.open(str(unpacked(name, tmp_path))) as table:
        assert same(table.to_spark(spark, meta_columns=True), table.read(meta_columns=True))


def test_base_files_without_logs_are_read_by_spark_with_column_pruning(
    spark: SparkSession, tmp_path: Path
) -> None:
    with create_table(tmp_path) as table:
        frame = table.to_spark(spark)
        assert same(frame, table.read())
        plan = plan_of(frame.where("n > 1").select("x"))
    assert "FileScan parquet" in plan
    assert "MapInArrow" not in plan
    assert "ReadSchema: struct<n:int,x:double>" in plan
    assert "GreaterThan(n,1)" in plan


def test_slices_with_log_files_are_merged_in_the_workers(
    spark: SparkSession, tmp_path: Path
) -> None:
    kind = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    with create_table(tmp_path, **kind) as table:
        table.upsert([{"id": "a", "day": "d1", "n": 9, "x": 9.0}])
        frame = table.to_spark(spark, ["x", "id"])
        plan = plan_of(frame)
        assert "MapInArrow" in plan
        assert "FileScan parquet" in plan, "the partition without log files"
        assert same(frame, table.read(["x", "id"]))


def test_older_files_are_widened_like_in_the_local_engine(
    spark: SparkSession, tmp_path: Path
) -> None:
    with create_table(tmp_path, **{"hoodie.write.set.null.for.missing.columns": "true"}) as table:
        wider = pa.table({"id": ["d"], "day": ["d2"], "n": pa.array([2**40]), "more": ["new"]})
        table.upsert(wider)
        frame = table.to_spark(spark)
        assert same(frame, table.read())
        assert "MapInArrow" not in plan_of(frame), "Spark widens whole numbers itself"
        broken = pa.table({"id": ["e"], "day": ["d2"], "n": [0.5], "more": ["new"]})
        table.upsert(broken)
        assert same(table.to_spark(spark), table.read())


def test_frame_reads_the_snapshot_of_its_creation(spark: SparkSession, tmp_path: Path) -> None:
    with create_table(tmp_path) as table:
        frame = table.to_spark(spark)
        before = table.read()
        table.delete(["a"])
        assert same(frame, before)
        assert same(table.to_spark(spark), table.read())


def test_partition_that_looks_like_a_pattern_is_read_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    with create_table(tmp_path) as table:
        table.upsert([{"id": "e", "day": "[d]*", "n": 5, "x": 5.0}])
        assert same(table.to_spark(spark), table.read())


def test_unknown_column_is_rejected_before_a_job_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    with create_table(tmp_path) as table, pytest.raises(InvalidInput, match="no column 'y'"):
        table.to_spark(spark, ["y"])


def test_empty_table_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    with tl.Table.create(str(tmp_path / "t"), SCHEMA, key="id") as table:
        frame = table.to_spark(spark)
        assert frame.columns == SCHEMA.names
        assert frame.count() == 0


def test_stores_that_spark_has_no_connector_for_are_read_in_the_workers(
    spark: SparkSession,
) -> None:
    assert hadoop_root(spark, "file:///lake/t") == "file:///lake/t"
    assert hadoop_root(spark, "s3://lake/t") is None
    assert hadoop_root(spark, "memory://lake/t") is None


def test_small_slices_share_tasks_and_large_ones_do_not() -> None:
    sizes = [100, 1, 1, 1, 90]
    slices = [
        FileSlice("p", str(i), "1", BaseFile("p", f"{i}", str(i), "0", "1", size))
        for i, size in enumerate(sizes)
    ]
    tasks = pack_tasks(slices, tasks_min=1, task_bytes=100)
    assert len(tasks) == 2
    assert sorted(piece.file_id for task in tasks for piece in task) == ["0", "1", "2", "3", "4"]
    assert tasks == pack_tasks(list(reversed(slices)), tasks_min=1, task_bytes=100)
    assert len(pack_tasks(slices, tasks_min=4)) == 4
