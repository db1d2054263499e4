"""Table services in the workers of a Spark session: the same files, unchanged rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelock as tl
from testkit.judges.hudi_rs import HudiRs
from tidelock.core.errors import DataCorrupt
from tidelock.execution import service_tasks
from tidelock.execution.service_tasks import ProgressListener
from tidelock.execution.spark.services import POOL, SparkServices
from tidelock.hudi.timeline.instant import Action
from tidelock.services.compaction import Compaction, CompactionRule
from tidelock.storage.uri import StoreAddress

OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    # Nothing is small enough for the driver.
    "tidelock.spark.services.driver.max.bytes": "0",
}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return tl.enable(spark)


@pytest.fixture
def only_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a service task runs in this process."""

    def never(*_: object) -> None:
        raise AssertionError("a task of a service ran in the driver")

    monkeypatch.setattr(service_tasks, "run_service_task", never)


def frame(spark: SparkSession, ids: range, ts: int, name: str) -> DataFrame:
    rows = [(f"k{i}", f"d{i % 2}", ts, f"{name}{i}") for i in ids]
    return spark.createDataFrame(rows, "id string, day string, ts bigint, name string")


def save(data: DataFrame, uri: Path, **more: str) -> None:
    options = {**OPTIONS, "hoodie.datasource.write.operation": "upsert", **more}
    data.write.format("tidelock").options(**options).mode("append").save(str(uri))


def names(uri: Path) -> dict[str, str]:
    return {row["id"]: row["name"] for row in HudiRs().snapshot(str(uri))}


def completed(uri: Path, action: Action) -> int:
    with tl.Table.open(str(uri)) as table:
        return sum(1 for i in table.timeline if i.is_completed and i.action is action)


@pytest.mark.usefixtures("only_in_workers")
def test_services_after_a_write_of_spark_run_in_its_workers(
    session: SparkSession, tmp_path: Path
) -> None:
    uri = tmp_path / "orders"
    inline = {
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "2",
        "hoodie.clustering.inline": "true",
        "hoodie.clustering.inline.max.commits": "3",
        "hoodie.clustering.plan.strategy.sort.columns": "ts,name",
        "hoodie.layout.optimize.strategy": "hilbert",
    }
    save(frame(session, range(20), 1, "a"), uri)
    save(frame(session, range(10), 2, "b"), uri, **inline)
    assert completed(uri, Action.COMMIT) == 1
    save(frame(session, range(5), 3, "c"), uri, **inline)
    assert completed(uri, Action.REPLACE_COMMIT) == 1
    expected = {f"k{i}": f"{'c' if i < 5 else 'b' if i < 10 else 'a'}{i}" for i in range(20)}
    assert names(uri) == expected
    found = session.read.format("tidelock").load(str(uri)).select("id", "name").collect()
    assert {row["id"]: row["name"] for row in found} == expected


def test_services_of_a_table_on_spark_run_in_its_workers(
    session: SparkSession, tmp_path: Path
) -> None:
    uri = tmp_path / "orders"
    asynchronous = {
        "hoodie.datasource.compaction.async.enable": "true",
        "hoodie.compact.inline.max.delta.commits": "2",
    }
    save(frame(session, range(20), 1, "a"), uri)
    save(frame(session, range(10), 2, "b"), uri, **asynchronous)
    assert completed(uri, Action.COMMIT) == 1
    with tl.Table.open(str(uri), options=OPTIONS) as table:
        table.upsert(frame(session, range(3), 3, "c"))
        table.upsert(frame(session, range(3), 4, "d"))
        table.on_spark(session)
        options = {**OPTIONS, "hoodie.log.compaction.blocks.threshold": "2"}
        table._options.update(options)
        assert len(table.log_compact().executed) == 1
    assert names(uri)["k1"] == "d1"
    assert session.sparkContext.getLocalProperty("spark.scheduler.pool") != POOL


def test_error_in_a_worker_is_the_error_of_the_service(
    session: SparkSession, tmp_path: Path
) -> None:
    uri = tmp_path / "orders"
    save(frame(session, range(4), 1, "a"), uri)
    save(frame(session, range(4), 2, "b"), uri)
    with tl.Table.open(str(uri), options=OPTIONS) as table:
        table.on_spark(session)
        compaction = Compaction(table.writer())
        planned = compaction.schedule(CompactionRule())
        assert planned is not None
        base = table.files()[0].base
        assert base is not None
        path = uri / base.key
        body = path.read_bytes()
        path.write_bytes(b"x" * len(body))
        with pytest.raises(DataCorrupt, match="expected a Parquet file"):
            compaction.execute(planned)
        path.write_bytes(body)
        compaction.execute(planned)
        table.refresh()
        assert len(table.read().to_pylist()) == 4


def test_job_that_is_stopped_is_cancelled(session: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "orders"
    save(frame(session, range(4), 1, "a"), uri)
    save(frame(session, range(4), 2, "b"), uri)
    reports: list[Any] = []
    with tl.Table.open(str(uri), options=OPTIONS) as table:
        address = StoreAddress(table.uri, OPTIONS)
        watch = ProgressListener(lambda *done: reports.append(done), lambda: "closing")
        table.writer().services = SparkServices(session, address, 0, watch)
        ran = table.compact()
        # The check runs every quarter of a second, so a short job may finish before it.
        if not ran.executed:
            assert "closing" in ran.skipped[0].why
        table.writer().services = None
        table.compact()
        assert reports
        assert {row["name"] for row in table.read().to_pylist()} == {f"b{i}" for i in range(4)}


def test_spark_reads_row_groups_that_were_moved(session: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "moved"
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])
    options = {
        "hoodie.parquet.small.file.limit": "0",
        "tidelock.clustering.copied.row.group.min.bytes": "0",
    }
    with tl.Table.create(str(uri), schema, key="id", options=options) as table:
        for first in (0, 100, 200):
            ids = list(range(first, first + 100))
            names = [f"n{i}" if i % 7 else None for i in ids]
            table.insert(pa.table([ids, names, [["x", None][: i % 3] for i in ids]], schema=schema))
        table.cluster()
        (piece,) = table.files()
        assert piece.base is not None
        file = uri / piece.base.key
        expected = table.read().sort_by("id").to_pylist()
    assert pq.ParquetFile(file).num_row_groups == 3
    plain = session.read.parquet(str(file))
    found = plain.select("id", "name", "tags").orderBy("id").collect()
    assert [row.asDict() for row in found] == expected
    assert plain.where("id between 150 and 160 and name is not null").count() == sum(
        1 for row in expected if 150 <= row["id"] <= 160 and row["name"] is not None
    )
    assert plain.select("_hoodie_file_name").distinct().count() == 1
    read = session.read.format("tidelock").load(str(uri)).where("id >= 290").count()
    assert read == 10
