"""`format("tidelock")` in a session: Hudi's options and save modes, and interoperability."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelock as tl
from testkit.judges.hudi_rs import HudiRs
from tidelock.core import config
from tidelock.core.errors import ConfigInvalid, Conflict, NotFound, Unsupported

OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.parquet.compression.codec": "snappy",
}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return tl.enable(tl.enable(spark))


def frame(spark: SparkSession, *rows: tuple[str, str, int, str]) -> DataFrame:
    return spark.createDataFrame(list(rows), "id string, day string, ts bigint, name string")


def write(
    data: DataFrame, uri: Path, *, mode: str = "append", operation: str = "upsert", **more: str
) -> None:
    options = {**OPTIONS, "hoodie.datasource.write.operation": operation, **more}
    data.write.format("tidelock").options(**options).mode(mode).save(str(uri))


def read(spark: SparkSession, uri: Path, options: Mapping[str, str] | None = None) -> list[Any]:
    found = spark.read.format("tidelock").options(**(options or {})).load(str(uri))
    return sorted(tuple(row) for row in found.select("id", "day", "ts", "name").collect())


def by_hudi(uri: Path) -> list[Any]:
    rows = HudiRs().snapshot(str(uri))
    return sorted((row["id"], row["day"], row["ts"], row["name"]) for row in rows)


FIRST = [("a", "d1", 1, "Ann"), ("b", "d1", 1, "Bob"), ("c", "d2", 1, "Cid")]


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_reads_the_result_of_every_operation(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    uri = tmp_path / "orders"
    of_kind = {"hoodie.datasource.write.table.type": kind}

    def check(expected: list[tuple[str, str, int, str]]) -> None:
        assert read(session, uri) == by_hudi(uri) == sorted(expected)
        with tl.Table.open(str(uri)) as table:
            local = table.read(["id", "day", "ts", "name"])
        assert sorted(map(tuple, (row.values() for row in local.to_pylist()))) == sorted(expected)

    write(frame(session, *FIRST), uri, operation="bulk_insert", **of_kind)
    check(FIRST)
    newer = ("b", "d1", 2, "Ben")
    write(frame(session, newer, ("c", "d2", 0, "late"), ("d", "d3", 1, "Dan")), uri, **of_kind)
    now = [FIRST[0], newer, FIRST[2], ("d", "d3", 1, "Dan")]
    check(now)
    write(frame(session, ("e", "d3", 1, "Eve")), uri, operation="insert", **of_kind)
    check([*now, ("e", "d3", 1, "Eve")])
    write(frame(session, ("a", "d1", 9, "")), uri, operation="delete", **of_kind)
    check([*now[1:], ("e", "d3", 1, "Eve")])
    write(frame(session, ("f", "d3", 1, "Fay")), uri, operation="insert_overwrite", **of_kind)
    check([now[1], now[2], ("f", "d3", 1, "Fay")])
    gone = {"hoodie.datasource.write.partitions.to.delete": "day=d2"}
    write(frame(session), uri, operation="delete_partition", **of_kind, **gone)
    check([now[1], ("f", "d3", 1, "Fay")])
    write(frame(session, ("g", "d4", 1, "Gil")), uri, operation="insert_overwrite_table", **of_kind)
    check([("g", "d4", 1, "Gil")])


def test_save_modes_behave_as_in_spark(session: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "orders"
    write(frame(session, *FIRST), uri, mode="errorifexists")
    with pytest.raises(Conflict, match="the table already exists"):
        write(frame(session, *FIRST), uri, mode="error")
    write(frame(session, ("z", "d1", 1, "Zoe")), uri, mode="ignore")
    assert read(session, uri) == FIRST
    write(frame(session, ("z", "d1", 1, "Zoe")), uri, mode="overwrite")
    assert read(session, uri) == by_hudi(uri) == [("z", "d1", 1, "Zoe")]


def test_overwrite_keeps_earlier_versions(session: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "orders"
    write(frame(session, *FIRST), uri)
    with tl.Table.open(str(uri)) as table:
        before = table.timeline[-1].requested
    write(frame(session, ("z", "d1", 1, "Zoe")), uri, mode="overwrite")
    assert read(session, uri, {"as.of.instant": before}) == FIRST


def test_overwrite_cannot_change_the_table_configuration(
    session: SparkSession, tmp_path: Path
) -> None:
    uri = tmp_path / "orders"
    write(frame(session, *FIRST), uri)
    with pytest.raises(ConfigInvalid, match=r"recordkey\.field: expected 'id', got '"):
        write(
            frame(session, *FIRST),
            uri,
            mode="overwrite",
            **{"hoodie.datasource.write.recordkey.field": "name"},
        )
    assert read(session, uri) == FIRST


def test_incremental_and_read_optimized_reads(session: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "orders"
    of_kind = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    write(frame(session, *FIRST), uri, **of_kind)
    with tl.Table.open(str(uri)) as table:
        seen = table.latest_completion
    assert seen is not None
    write(frame(session, ("b", "d1", 2, "Ben")), uri, **of_kind)
    query = "hoodie.datasource.query.type"
    begin = "hoodie.datasource.read.begin.instanttime"
    assert read(session, uri, {query: "incremental", begin: seen}) == [("b", "d1", 2, "Ben")]
    assert len(read(session, uri, {query: "incremental", begin: "000"})) == 3
    assert read(session, uri, {query: "read_optimized"}) == FIRST


def test_only_selected_columns_and_partitions_are_read(
    session: SparkSession, tmp_path: Path
) -> None:
    uri = tmp_path / "orders"
    write(frame(session, *FIRST), uri)
    reader = session.read.format("tidelock").schema("name string, id string")
    chosen = reader.option("tidelock.read.partitions", "day=d2").load(str(uri))
    assert [tuple(row) for row in chosen.collect()] == [("Cid", "c")]
    assert session.read.format("tidelock").load(str(uri)).columns[:5] == [
        "_hoodie_commit_time",
        "_hoodie_commit_seqno",
        "_hoodie_record_key",
        "_hoodie_partition_path",
        "_hoodie_file_name",
    ]


def test_sql_reads_through_the_plain_data_source(session: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "orders"
    write(frame(session, *FIRST), uri)
    session.sql(f"CREATE TEMPORARY VIEW datasource_rows USING tidelock OPTIONS (path '{uri}')")
    try:
        assert session.sql("SELECT count(*), max(name) FROM datasource_rows").collect()[0][:] == (
            3,
            "Cid",
        )
    finally:
        session.sql("DROP VIEW datasource_rows")


def test_misspelt_option_is_rejected_with_a_suggestion(
    session: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(ConfigInvalid, match=r"did you mean hoodie\.datasource\.write\.operation"):
        write(frame(session, *FIRST), tmp_path / "t", **{"hoodie.datasource.write.operatoin": "x"})
    with pytest.raises(NotFound):
        read(session, tmp_path / "t")


def test_other_formats_are_unchanged(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "plain")
    frame(session, *FIRST).write.format("parquet").mode("overwrite").save(path)
    assert session.read.format("parquet").load(path).count() == 3
    assert session.read.parquet(path).count() == 3


def test_save_as_table_is_rejected_with_an_alternative(session: SparkSession) -> None:
    with pytest.raises(Unsupported, match="can only be written by path"):
        frame(session, *FIRST).write.format("tidelock").saveAsTable("orders")


def test_write_with_the_same_version_is_applied_once(session: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "orders"
    first = {"tidelock.txn.app.id": "nightly", "tidelock.txn.version": "20240131"}
    for _ in range(2):
        write(frame(session, *FIRST), uri, operation="insert", **first)
    assert read(session, uri) == FIRST
    write(frame(session, FIRST[0]), uri, operation="delete", **first)
    assert read(session, uri) == FIRST
    write(
        frame(session, FIRST[0]),
        uri,
        operation="delete",
        **{**first, "tidelock.txn.version": "20240201"},
    )
    assert read(session, uri) == FIRST[1:]
    with pytest.raises(
        ConfigInvalid, match=r"tidelock\.txn\.version: required if tidelock\.txn\.app\.id is set"
    ):
        write(frame(session), uri, **{"tidelock.txn.app.id": "nightly"})


def test_options_with_an_underscore_prefix_are_commit_metadata(
    session: SparkSession, tmp_path: Path
) -> None:
    uri = tmp_path / "orders"
    write(frame(session, *FIRST), uri, _run="17")
    prefix = {"hoodie.datasource.write.commitmeta.key.prefix": "audit."}
    write(frame(session, *FIRST), uri, **prefix, **{"audit.run": "18"})
    with tl.Table.open(str(uri)) as table:
        timeline = table._snapshot.timeline
        metadata = [timeline.commit(i).extra_metadata for i in timeline.writes()[-2:]]
    assert [(each.get("_run"), each.get("audit.run")) for each in metadata] == [
        ("17", None),
        (None, "18"),
    ]


def test_hudi_options_without_effect_are_logged_and_accepted(
    session: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config, "_warned", set())
    uri = tmp_path / "orders"
    write(frame(session, *FIRST), uri, **{"hoodie.datasource.write.row.writer.enable": "true"})
    assert "hoodie.datasource.write.row.writer.enable has no effect here" in caplog.text
    assert read(session, uri) == FIRST


def test_cdc_queries_are_rejected(session: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "orders"
    write(frame(session, *FIRST), uri)
    write_options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": "0",
        "hoodie.datasource.query.incremental.format": "cdc",
    }
    with pytest.raises(
        ConfigInvalid, match=r"incremental\.format: expected 'latest_state', got 'cdc'"
    ):
        read(session, uri, write_options)
