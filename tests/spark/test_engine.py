"""The Spark engine compared with the local engine: the same rows in the same file groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from testkit.slices import read_slice
from tests.spark.bench import KEYS_FLAT, MERGE, SCHEMA, Bench, rows
from tidelock.hudi.schema import with_meta

SIZES = {
    "driver": {},
    "spread": {"driver_work_bytes_max": 0},
    "packed": {"collected_bytes_max": 0},
    "large": {"collected_bytes_max": 0, "driver_bytes_max": 0},
}


CASES = [("SIMPLE", way) for way in SIZES] + [("BUCKET", "large"), ("BLOOM", "spread")]


@pytest.mark.parametrize(("index", "way"), CASES)
def test_upsert_writes_the_same_file_groups_as_the_local_engine(
    spark: SparkSession, tmp_path: Path, way: str, index: str
) -> None:
    first = rows(range(40))
    second = rows([*range(30, 50), 31, 31, 49], version=2)
    mine = Bench(tmp_path / "spark", index=index, spark=spark, limits=SIZES[way])
    local = Bench(tmp_path / "local", index=index)
    for bench in (mine, local):
        bench.upsert(first)
        bench.upsert(second)
    assert mine.placed() == local.placed()
    assert mine.seen() == local.seen()


def test_large_bulk_insert_is_routed_like_in_the_local_engine(
    spark: SparkSession, tmp_path: Path
) -> None:
    mine = Bench(tmp_path / "spark", spark=spark, limits=SIZES["large"])
    local = Bench(tmp_path / "local")
    for bench in (mine, local):
        bench.bulk(rows([*range(60), 3, 3]))
    assert mine.placed() == local.placed()
    assert mine.seen() == local.seen()


def test_large_sorted_bulk_insert_writes_ranges_of_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    bench = Bench(tmp_path / "spark", spark=spark, limits=SIZES["large"], keys=KEYS_FLAT)
    bench.bulk(rows([*range(40), *range(80, 39, -1)]), order_by=("ts",), ranged=True)
    runs = sorted(
        read_slice(bench.store, piece, with_meta(SCHEMA), rule=MERGE, columns=["ts"])
        .column("ts")
        .to_pylist()
        for piece in bench.slices.values()
    )
    assert len(runs) > 2
    assert [ts for run in runs for ts in run] == [1000 + at for at in range(81)]


def test_batch_without_rows_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(tmp_path / "spark", spark=spark, limits=SIZES["packed"])
    assert bench.upsert(rows([])) == ()
