"""The streamer on other tables and on databases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidelock as tl
from tidelock.base.errors import ConfigInvalid, NotFound, Unavailable
from tidelock.pipeline.streamer.settings import Asked
from tidelock.pipeline.streamer.sync import Streamer, Synced

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(first: int, last: int, name: str = "n") -> list[dict[str, Any]]:
    return [{"id": i, "name": f"{name}{i}"} for i in range(first, last)]


def sync(spark: SparkSession, wanted: Asked) -> Synced | None:
    streamer = Streamer(spark, wanted)
    try:
        return streamer.sync()
    finally:
        streamer.close()


def table_rows(tmp_path: Path) -> list[dict[str, Any]]:
    with tl.Table.open(str(tmp_path / "table")) as table:
        return sorted(table.read().to_pylist(), key=lambda row: row["id"])


def from_table(tmp_path: Path, **more: object) -> Asked:
    return Asked(
        str(tmp_path / "table"),
        "org.apache.hudi.utilities.sources.HoodieIncrSource",
        properties={
            "hoodie.deltastreamer.source.hoodieincr.path": str(tmp_path / "from"),
            "hoodie.datasource.write.recordkey.field": "id",
            **more,
        },
    )


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_changes_of_a_table_reach_another(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    wanted = from_table(tmp_path, **{"hoodie.streamer.source.hoodieincr.num_instants": "1"})
    with tl.Table.create(str(tmp_path / "from"), SCHEMA, key="id", type=kind) as table:
        table.upsert(rows(0, 3))
        table.upsert(rows(3, 5))
        whole = sync(spark, wanted)
        table.upsert(rows(4, 6, "m"))
        table.upsert(rows(9, 10))
        each = [sync(spark, wanted) for _ in range(3)]
    assert whole is not None
    assert whole.rows == 5
    assert [done and done.rows for done in each] == [2, 1, None]
    assert table_rows(tmp_path) == [*rows(0, 4), *rows(4, 6, "m"), *rows(9, 10)]


def test_a_table_may_be_begun_with_its_latest_commit(spark: SparkSession, tmp_path: Path) -> None:
    strategy = "hoodie.streamer.source.hoodieincr.missing.checkpoint.strategy"
    with tl.Table.create(str(tmp_path / "from"), SCHEMA, key="id") as table:
        table.upsert(rows(0, 3))
        table.upsert(rows(3, 5))
    sync(spark, from_table(tmp_path, **{strategy: "READ_LATEST"}))
    assert table_rows(tmp_path) == rows(3, 5)
    wrong = {strategy: "whatever", "tidelock.streamer.writer.id": "another"}
    with pytest.raises(ConfigInvalid, match="whatever is not known"):
        sync(spark, from_table(tmp_path, **wrong))


@pytest.mark.parametrize("form", ["RequestTime", "CompletionTime"])
def test_a_table_is_begun_behind_an_instant_in_hudis_words(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    with tl.Table.create(str(tmp_path / "from"), SCHEMA, key="id") as table:
        first = table.upsert(rows(0, 3))
        table.upsert(rows(3, 5))
    time = first.instant if form == "RequestTime" else first.completion
    begun = replace(from_table(tmp_path), checkpoint=f"resumeFromInstant{form}: {time}")
    sync(spark, begun)
    assert table_rows(tmp_path) == rows(3, 5)
    nowhere = replace(begun, checkpoint="resumeFromInstantRequestTime: 20200101000000000")
    with pytest.raises(NotFound, match="has no write that began at 20200101000000000"):
        sync(spark, nowhere)


class Database:
    """Derby, which Spark brings, in the memory of its JVM."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.url = f"jdbc:derby:memory:{name};create=true"
        assert spark.sparkContext._jvm is not None
        java: Any = spark.sparkContext._jvm.java
        self._connection = java.sql.DriverManager.getConnection(self.url)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._connection.createStatement().executeUpdate(statement)

    def settings(self, **more: object) -> Mapping[str, object]:
        return {
            "hoodie.deltastreamer.jdbc.url": self.url,
            "hoodie.deltastreamer.jdbc.driver.class": "org.apache.derby.jdbc.EmbeddedDriver",
            "hoodie.deltastreamer.jdbc.table.name": "orders",
            "hoodie.datasource.write.recordkey.field": "ID",
            **more,
        }


def test_a_database_is_read_by_a_column_that_grows(spark: SparkSession, tmp_path: Path) -> None:
    base = Database(spark, "grows")
    base.run(
        "create table orders (id int primary key, seen timestamp)",
        "insert into orders values (1, '2024-01-01 00:00:00'), (2, '2024-01-02 00:00:00.5'),"
        " (3, '2024-01-02 00:00:00.5'), (4, '2024-01-03 00:00:00'), (5, null)",
    )
    incremental = {
        "hoodie.deltastreamer.jdbc.incr.pull": "true",
        "hoodie.deltastreamer.jdbc.table.incr.column.name": "SEEN",
    }
    wanted = Asked(
        str(tmp_path / "table"),
        "JdbcSource",
        source_limit=2,
        properties=base.settings(**incremental),
    )
    done = [sync(spark, wanted) for _ in range(3)]
    assert [each and each.rows for each in done] == [3, 1, None]
    base.run("update orders set seen = '2024-02-01 00:00:00' where id = 5")
    assert sync(spark, wanted) is not None
    with tl.Table.open(str(tmp_path / "table")) as table:
        assert sorted(table.read().column("ID").to_pylist()) == [1, 2, 3, 4, 5]


def test_a_database_that_cannot_be_read_is_named_without_its_password(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = {
        "hoodie.streamer.jdbc.url": "jdbc:derby:memory:nowhere;password=hunter2",
        "hoodie.streamer.jdbc.table.name": "orders",
        "hoodie.streamer.jdbc.password": "hunter2",
    }
    with pytest.raises(
        Unavailable, match="jdbc:derby:memory:nowhere/orders cannot be read"
    ) as told:
        sync(spark, Asked(str(tmp_path / "table"), "JdbcSource", properties=settings))
    assert "hunter2" not in str(told.value)
