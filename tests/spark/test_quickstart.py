"""Apache Hudi's PySpark quickstart, step by step, with `tidelock` instead of `hudi`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

import tidelock as tl

TABLE = "trips_table"
COLUMNS = ["ts", "uuid", "rider", "driver", "fare", "city"]
TRIPS = [
    (1695159649087, "334e26e9-8355-45cc-97c6-c31daf0df330", "rider-A", "driver-K", 19.10),
    (1695091554788, "e96c4396-3fad-413a-a942-4cb36106d721", "rider-C", "driver-M", 27.70),
    (1695046462179, "9909a8b1-2d15-4d3d-8ec9-efc48c536a00", "rider-D", "driver-L", 33.90),
    (1695516137016, "e3cf430c-889d-4015-bc98-59bdce1e530c", "rider-F", "driver-P", 34.15),
    (1695115999911, "c8abbe79-8d89-47ea-b4ce-4d224bae5bfa", "rider-J", "driver-T", 17.85),
]
CITIES = ["san_francisco", "san_francisco", "san_francisco", "sao_paulo", "chennai"]
WRITE = {
    "hoodie.table.name": TABLE,
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.recordkey.field": "uuid",
    "hoodie.datasource.write.precombine.field": "ts",
}


class Quickstart:
    """The variables of the guide: a session, a base path, and the table's options."""

    def __init__(self, spark: SparkSession, base_path: str, kind: str) -> None:
        self.spark = tl.enable(spark)
        self.base_path = base_path
        self.options = {**WRITE, "hoodie.datasource.write.table.type": kind}

    def write(self, frame: DataFrame, mode: str = "append", **more: str) -> None:
        options = {**self.options, **{key.replace("__", "."): more[key] for key in more}}
        frame.write.format("tidelock").options(**options).mode(mode).save(self.base_path)

    def read(self, **options: str) -> DataFrame:
        named = {key.replace("__", "."): value for key, value in options.items()}
        return self.spark.read.format("tidelock").options(**named).load(self.base_path)

    def insert(self) -> None:
        """Insert data."""
        rows = [(*trip, city) for trip, city in zip(TRIPS, CITIES, strict=True)]
        self.write(self.spark.createDataFrame(rows).toDF(*COLUMNS), mode="overwrite")

    def update(self) -> None:
        """Update data: the fare of one rider, ten times as high."""
        updates = self.read().filter("rider == 'rider-D'").withColumn("fare", col("fare") * 10)
        self.write(updates)

    def commits(self) -> list[str]:
        """Return the commit times of the rows, oldest first."""
        self.read().createOrReplaceTempView("trips_table")
        found = self.spark.sql(
            "select distinct(_hoodie_commit_time) as commitTime from trips_table order by 1"
        )
        return [row.commitTime for row in found.collect()]

    def fares(self, **options: str) -> dict[str, float]:
        return {row.rider: row.fare for row in self.read(**options).collect()}


BEFORE = {"rider-A": 19.10, "rider-C": 27.70, "rider-D": 33.90, "rider-F": 34.15, "rider-J": 17.85}
AFTER = {**BEFORE, "rider-D": 339.0}


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def guide(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Quickstart:
    made = Quickstart(spark, str(tmp_path / TABLE), request.param)
    made.insert()
    return made


def test_insert_and_query_data(guide: Quickstart) -> None:
    guide.read().createOrReplaceTempView("trips_table")
    found = guide.spark.sql(
        "SELECT uuid, fare, ts, rider, driver, city FROM trips_table WHERE fare > 20.0"
    )
    assert {row.rider for row in found.collect()} == {"rider-C", "rider-D", "rider-F"}
    shown = guide.spark.sql(
        "SELECT _hoodie_commit_time, _hoodie_record_key, _hoodie_partition_path, rider, driver,"
        " fare FROM trips_table"
    ).collect()
    assert {row._hoodie_partition_path for row in shown} == set(CITIES)
    assert {row._hoodie_record_key for row in shown} == {trip[1] for trip in TRIPS}


def test_update_and_time_travel_in_the_three_formats(guide: Quickstart) -> None:
    (inserted,) = guide.commits()
    guide.update()
    assert guide.fares() == AFTER
    at = datetime.strptime(inserted[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    spelled = f"{at:%Y-%m-%d %H:%M:%S}.{inserted[14:]}"
    assert guide.fares(as__of__instant=inserted) == BEFORE
    assert guide.fares(as__of__instant=spelled) == BEFORE
    # The third one is a date, which means midnight.
    assert guide.fares(as__of__instant=f"{at:%Y-%m-%d}") == {}
    assert guide.fares(as__of__instant="2999-12-31") == AFTER


def test_merge_by_upsert_of_new_and_known_trips(guide: Quickstart) -> None:
    adjusted = guide.read().limit(2).withColumn("fare", lit(25.0)).select(*COLUMNS)
    fresh = guide.spark.createDataFrame(
        [
            (
                1695173887231,
                "3eeb61f7-c2b0-4636-99bd-5d7a5a1d2c04",
                "rider-I",
                "driver-S",
                41.06,
                "chennai",
            )
        ],
        schema=adjusted.schema,
    )
    riders = [row.rider for row in adjusted.collect()]
    guide.write(adjusted.union(fresh))
    assert guide.fares() == {**BEFORE, **dict.fromkeys(riders, 25.0), "rider-I": 41.06}


def test_soft_and_hard_delete(guide: Quickstart) -> None:
    guide.read().createOrReplaceTempView("trips_table")
    soft = guide.spark.sql(
        "SELECT uuid, city FROM trips_table WHERE rider IN ('rider-A','rider-C')"
    )
    keys = [row.uuid for row in soft.collect()]
    # A soft delete keeps the key and makes the other columns null.
    before = guide.read().filter(col("uuid").isin(keys))
    kept = ("uuid", "city", "ts")
    nulled = [c for c in COLUMNS if c not in kept]
    emptied = before.select(*COLUMNS)
    for name in nulled:
        emptied = emptied.withColumn(name, lit(None).cast(dict(emptied.dtypes)[name]))
    guide.write(emptied, hoodie__datasource__write__operation="upsert")
    assert guide.read().count() == 5
    assert guide.read().filter("rider is null").count() == 2
    # A hard delete removes the rows.
    gone = guide.read().filter("rider is null").select("uuid", "city", "ts")
    guide.write(gone, hoodie__datasource__write__operation="delete")
    assert guide.read().count() == 3
    assert guide.read().filter("rider is null").count() == 0


def test_incremental_and_point_in_time_query(guide: Quickstart) -> None:
    guide.update()
    with tl.Table.open(guide.base_path) as table:
        first, second = (i.completion for i in table.timeline[-2:])
    incremental: dict[str, str] = {"hoodie__datasource__query__type": "incremental"}
    begin: dict[str, str] = {"hoodie__datasource__read__begin__instanttime": first}
    guide.read(**incremental, **begin).createOrReplaceTempView("trips_incremental")
    found = guide.spark.sql(
        "select `_hoodie_commit_time`, fare, rider from trips_incremental where fare > 20.0"
    ).collect()
    assert [(row.rider, row.fare) for row in found] == [("rider-D", 339.0)]
    everything: dict[str, str] = {"hoodie__datasource__read__begin__instanttime": "000"}
    end: dict[str, str] = {"hoodie__datasource__read__end__instanttime": first}
    assert guide.fares(**incremental, **everything, **end) == BEFORE
    assert guide.fares(**incremental, **everything) == AFTER
    assert second > first


def test_insert_overwrite_replaces_the_partition_it_names(guide: Quickstart) -> None:
    fresh: list[Any] = [
        (
            1695332066204,
            "1dced545-862b-4ceb-8b43-d2a568f6616b",
            "rider-E",
            "driver-O",
            93.50,
            "san_francisco",
        )
    ]
    frame = guide.spark.createDataFrame(fresh).toDF(*COLUMNS)
    guide.write(frame, hoodie__datasource__write__operation="insert_overwrite")
    assert guide.fares() == {"rider-E": 93.50, "rider-F": 34.15, "rider-J": 17.85}
