"""The streamer on Hudi tables and databases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidelock as tl
from tidelock.core.errors import ConfigInvalid, NotFound, Unavailable
from tidelock.streamer.batch import Streamer, SyncResult
from tidelock.streamer.config import StreamerRequest

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(first: int, last: int, name: str = "n") -> list[dict[str, Any]]:
    return [{"id": i, "name": f"{name}{i}"} for i in range(first, last)]


def sync(spark: SparkSession, request: StreamerRequest) -> SyncResult | None:
    streamer = Streamer(spark, request)
    try:
        return streamer.sync()
    finally:
        streamer.close()


def table_rows(tmp_path: Path) -> list[dict[str, Any]]:
    with tl.Table.open(str(tmp_path / "table")) as table:
        return sorted(table.read().to_pylist(), key=lambda row: row["id"])


def from_table(tmp_path: Path, **more: object) -> StreamerRequest:
    return StreamerRequest(
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
    request = from_table(tmp_path, **{"hoodie.streamer.source.hoodieincr.num_instants": "1"})
    with tl.Table.create(str(tmp_path / "from"), SCHEMA, key="id", type=kind) as table:
        table.upsert(rows(0, 3))
        table.upsert(rows(3, 5))
        synced = sync(spark, request)
        table.upsert(rows(4, 6, "m"))
        table.upsert(rows(9, 10))
        each = [sync(spark, request) for _ in range(3)]
    assert synced is not None
    assert synced.rows == 5
    assert [done and done.rows for done in each] == [2, 1, None]
    assert table_rows(tmp_path) == [*rows(0, 4), *rows(4, 6, "m"), *rows(9, 10)]


def test_table_source_can_start_with_the_latest_commit(spark: SparkSession, tmp_path: Path) -> None:
    strategy = "hoodie.streamer.source.hoodieincr.missing.checkpoint.strategy"
    with tl.Table.create(str(tmp_path / "from"), SCHEMA, key="id") as table:
        table.upsert(rows(0, 3))
        table.upsert(rows(3, 5))
    sync(spark, from_table(tmp_path, **{strategy: "READ_LATEST"}))
    assert table_rows(tmp_path) == rows(3, 5)
    wrong = {strategy: "whatever", "tidelock.streamer.writer.id": "another"}
    with pytest.raises(ConfigInvalid, match=r"expected one of .*, got 'whatever'"):
        sync(spark, from_table(tmp_path, **wrong))


@pytest.mark.parametrize("form", ["RequestTime", "CompletionTime"])
def test_table_source_accepts_hudis_checkpoint_prefixes(
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
    with pytest.raises(NotFound, match="no commit with the request time 20200101000000000"):
        sync(spark, nowhere)


class Database:
    """An in-memory Derby database, which is part of Spark."""

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


def test_database_is_read_by_an_increasing_column(spark: SparkSession, tmp_path: Path) -> None:
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
    request = StreamerRequest(
        str(tmp_path / "table"),
        "JdbcSource",
        source_limit=2,
        properties=base.settings(**incremental),
    )
    done = [sync(spark, request) for _ in range(3)]
    assert [each and each.rows for each in done] == [3, 1, None]
    base.run("update orders set seen = '2024-02-01 00:00:00' where id = 5")
    assert sync(spark, request) is not None
    with tl.Table.open(str(tmp_path / "table")) as table:
        assert sorted(table.read().column("ID").to_pylist()) == [1, 2, 3, 4, 5]


def test_database_error_does_not_contain_the_password(spark: SparkSession, tmp_path: Path) -> None:
    settings = {
        "hoodie.streamer.jdbc.url": "jdbc:derby:memory:nowhere;password=hunter2",
        "hoodie.streamer.jdbc.table.name": "orders",
        "hoodie.streamer.jdbc.password": "hunter2",
    }
    with pytest.raises(Unavailable, match="cannot read jdbc:derby:memory:nowhere/orders") as events:
        sync(spark, StreamerRequest(str(tmp_path / "table"), "JdbcSource", properties=settings))
    assert "hunter2" not in str(events.value)
