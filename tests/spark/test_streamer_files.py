"""The streamer on folders of files: every record is stored once, in every format."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

import tidelock as tl
from testkit.judges.hudi_rs import HudiRs
from tidelock.core.errors import Conflict, InvalidInput, NotFound
from tidelock.core.outcome import Landed
from tidelock.storage.contract import Create
from tidelock.storage.uri import open_store
from tidelock.streamer.batch import Streamer, SyncResult
from tidelock.streamer.config import StreamerRequest

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ts", pa.int64())])
AVRO = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": ["null", "long"], "default": None},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "ts", "type": ["null", "long"], "default": None},
    ],
}

Rows = list[dict[str, Any]]


def rows(first: int, last: int, ts: int = 1) -> Rows:
    return [{"id": i, "name": f"n{i}", "ts": ts} for i in range(first, last)]


def streamer_request(tmp_path: Path, source: str = "JsonDFSSource", **more: Any) -> StreamerRequest:
    given: Mapping[str, object] = more.pop("properties", {})
    properties = {
        "hoodie.streamer.source.dfs.root": str(tmp_path / "in"),
        "hoodie.datasource.write.recordkey.field": "id",
        **given,
    }
    (tmp_path / "in").mkdir(exist_ok=True)
    return StreamerRequest(
        str(tmp_path / "table"),
        source,
        source_ordering_field=more.pop("ordering", "ts"),
        properties=properties,
        **more,
    )


def put_json(folder: Path, name: str, records: Iterable[Any]) -> Path:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
    hidden = folder / f".{name}"
    hidden.write_text("\n".join(lines) + "\n")
    return hidden.rename(folder / name)


def sync(spark: SparkSession, request: StreamerRequest) -> SyncResult | None:
    """Sync like a new process, with no state except that of the table."""
    streamer = Streamer(spark, request)
    try:
        return streamer.sync()
    finally:
        streamer.close()


def table_rows(tmp_path: Path) -> Rows:
    with tl.Table.open(str(tmp_path / "table")) as table:
        return sorted(table.read().to_pylist(), key=lambda row: row["id"])


def _json(path: Path, data: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in data))


def _gzip(path: Path, data: Rows) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in data).encode()))


def _csv(path: Path, data: Rows) -> None:
    lines = ["id;name;ts", *(f"{r['id']};{r['name']};{r['ts']}" for r in data)]
    path.write_text("\n".join(lines))


def _parquet(path: Path, data: Rows) -> None:
    pq.write_table(pa.Table.from_pylist(data, SCHEMA), path)


def _orc(path: Path, data: Rows) -> None:
    orc.write_table(pa.Table.from_pylist(data, SCHEMA), str(path))


def _avro(path: Path, data: Rows) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, AVRO, data)


_CSV = {"hoodie.deltastreamer.csv.header": "true", "hoodie.deltastreamer.csv.sep": ";"}


@pytest.mark.parametrize(
    ("source", "suffix", "write"),
    [
        ("org.apache.hudi.utilities.sources.JsonDFSSource", "json", _json),
        ("JsonDFSSource", "jsonl.gz", _gzip),
        ("CsvDFSSource", "csv", _csv),
        ("ParquetDFSSource", "parquet", _parquet),
        ("AvroDFSSource", "avro", _avro),
        ("ORCDFSSource", "orc", _orc),
    ],
)
def test_new_files_of_each_format_are_read_once(
    spark: SparkSession,
    tmp_path: Path,
    source: str,
    suffix: str,
    write: Callable[[Path, Rows], None],
) -> None:
    request = streamer_request(tmp_path, source, properties=_CSV, target_table="orders")
    write(tmp_path / "in" / f"a.{suffix}", rows(0, 10))
    first = sync(spark, request)
    assert first is not None
    assert (first.rows, first.version) == (10, 0)
    assert sync(spark, request) is None
    write(tmp_path / "in" / f"b.{suffix}", rows(5, 15, ts=2))
    second = sync(spark, request)
    assert second is not None
    assert second.version == 1
    assert table_rows(tmp_path) == [*rows(0, 5), *rows(5, 15, ts=2)]


def test_hudi_reads_the_table_and_finds_its_own_checkpoint_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    request = streamer_request(tmp_path)
    path = put_json(tmp_path / "in", "a.json", rows(0, 3))
    sync(spark, request)
    found = HudiRs().snapshot(str(tmp_path / "table"))
    assert sorted(row["id"] for row in found) == [0, 1, 2]
    with tl.Table.open(str(tmp_path / "table")) as table:
        timeline = table._snapshot.timeline
        extra = timeline.commit(timeline.writes()[-1]).extra_metadata
    time_ms = str(path.stat().st_mtime_ns // 1_000_000)
    assert extra["streamer.checkpoint.key.v2"] == time_ms
    assert extra["deltastreamer.checkpoint.key"] == time_ms


def test_file_that_appears_with_the_time_of_one_already_read_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    request = streamer_request(tmp_path)
    one = put_json(tmp_path / "in", "m.json", rows(0, 3))
    sync(spark, request)
    two = put_json(tmp_path / "in", "a.json", rows(3, 6))
    os.utime(two, ns=(one.stat().st_mtime_ns, one.stat().st_mtime_ns))
    sync(spark, request)
    assert sync(spark, request) is None
    assert table_rows(tmp_path) == rows(0, 6)


def test_two_streamers_of_one_id_never_write_the_same_files_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    request = streamer_request(tmp_path, op="INSERT")
    put_json(tmp_path / "in", "a.json", rows(0, 5))
    sync(spark, request)
    put_json(tmp_path / "in", "b.json", rows(5, 9))
    slow, fast = Streamer(spark, request), Streamer(spark, request)
    start = slow._next_start()
    batch = slow.source.next(start.position, slow.pace.limit)
    assert batch is not None
    first = fast.sync()
    late = slow._write_batch(batch, start, 0)
    assert first is not None
    assert not first.repeated
    assert late.repeated
    assert slow.sync() is None
    slow.close()
    fast.close()
    assert table_rows(tmp_path) == rows(0, 9)


def test_two_sources_into_one_table_keep_their_own_checkpoints(
    spark: SparkSession, tmp_path: Path
) -> None:
    request = streamer_request(tmp_path)
    (tmp_path / "other").mkdir()
    root = {"hoodie.streamer.source.dfs.root": str(tmp_path / "other")}
    other = streamer_request(tmp_path, properties=root)
    put_json(tmp_path / "in", "a.json", rows(0, 3))
    put_json(tmp_path / "other", "a.json", rows(3, 6))
    for each in (request, other, request, other):
        sync(spark, each)
    put_json(tmp_path / "in", "b.json", rows(6, 8))
    sync(spark, other)
    sync(spark, request)
    assert table_rows(tmp_path) == rows(0, 8)


def test_writer_id_is_refused_for_another_source(spark: SparkSession, tmp_path: Path) -> None:
    named = {"tidelock.streamer.writer.id": "orders"}
    request = streamer_request(tmp_path, properties=named)
    put_json(tmp_path / "in", "a.json", rows(0, 3))
    sync(spark, request)
    (tmp_path / "other").mkdir()
    root = {"hoodie.streamer.source.dfs.root": str(tmp_path / "other")}
    with pytest.raises(Conflict, match=r"writer 'orders': expected the source json:.*/in, got"):
        sync(spark, streamer_request(tmp_path, properties={**named, **root}))


def test_malformed_records_stop_the_batch_unless_quarantined(
    spark: SparkSession, tmp_path: Path
) -> None:
    request = streamer_request(tmp_path)
    bad = ["{broken", '{"id":"no number"}', '{"name":"no key"}']
    put_json(tmp_path / "in", "a.json", rows(0, 3))
    sync(spark, request)
    put_json(tmp_path / "in", "b.json", [*rows(3, 6), *bad])
    with pytest.raises(InvalidInput, match=r"2 malformed records, the first: .*broken"):
        sync(spark, request)
    assert table_rows(tmp_path) == rows(0, 3)
    aside = {
        "tidelock.streamer.malformed": "quarantine",
        "tidelock.streamer.quarantine.path": str(tmp_path / "aside"),
    }
    done = sync(spark, streamer_request(tmp_path, properties=aside))
    assert done is not None
    assert done.malformed == 3
    assert table_rows(tmp_path) == rows(0, 6)
    (file,) = (tmp_path / "aside").rglob("*.jsonl")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert [each["record"] for each in found[:2]] == bad[:2]
    assert found[2]["reason"] == "the record key column id is null"


def test_invalid_parquet_file_is_quarantined_by_name(spark: SparkSession, tmp_path: Path) -> None:
    aside = {"tidelock.streamer.malformed": "quarantine"}
    request = streamer_request(tmp_path, "ParquetDFSSource", properties=aside)
    _parquet(tmp_path / "in" / "a.parquet", rows(0, 3))
    (tmp_path / "in" / "b.parquet").write_bytes(b"PAR1 no more")
    done = sync(spark, request)
    assert done is not None
    assert (done.rows, done.malformed) == (3, 1)
    (file,) = (tmp_path / "table" / ".hoodie/.tidelock/quarantine").rglob("*.jsonl")
    assert "b.parquet" in json.loads(file.read_text())["record"]


def test_incompatible_schema_is_rejected_with_every_differing_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    request = streamer_request(tmp_path, "ParquetDFSSource", ordering=None)
    _parquet(tmp_path / "in" / "a.parquet", rows(0, 3))
    sync(spark, request)
    other = pa.table({"id": [9], "name": [[1]], "ts": [{"a": 1}]})
    pq.write_table(other, tmp_path / "in" / "b.parquet")
    with pytest.raises(InvalidInput, match=r"cannot evolve .*name.*; .*ts"):
        sync(spark, request)


def test_new_columns_and_wider_types_evolve_the_table(spark: SparkSession, tmp_path: Path) -> None:
    request = streamer_request(tmp_path)
    put_json(tmp_path / "in", "a.json", [{"id": 1, "ts": 1}])
    sync(spark, request)
    put_json(tmp_path / "in", "b.json", [{"id": 2, "ts": 1, "note": {"deep": [1.5]}}])
    sync(spark, request)
    assert table_rows(tmp_path)[1]["note"] == {"deep": [1.5]}


def test_sql_transformer_computes_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    sql = "select id, upper(name) as name, ts, id % 2 as part from <SRC> where id > 1"
    request = streamer_request(
        tmp_path,
        transformer_class="org.apache.hudi.utilities.transform.SqlQueryBasedTransformer",
        properties={
            "hoodie.deltastreamer.transformer.sql": sql,
            "hoodie.datasource.write.partitionpath.field": "part",
        },
    )
    put_json(tmp_path / "in", "a.json", rows(0, 4))
    sync(spark, request)
    found = table_rows(tmp_path)
    assert [(row["id"], row["name"], row["part"]) for row in found] == [(2, "N2", 0), (3, "N3", 1)]
    put_json(tmp_path / "in", "b.json", rows(4, 6))
    for sql, expected in (
        ("select nothing from <SRC>", r"`nothing` cannot be resolved.* line 1 pos 7$"),
        ("selec id from <SRC>", r"near 'selec'.*line 1, pos 0\)$"),
    ):
        wrong = streamer_request(
            tmp_path,
            transformer_class="SqlQueryBasedTransformer",
            properties={"hoodie.streamer.transformer.sql": sql},
        )
        with pytest.raises(InvalidInput) as refused:
            sync(spark, wrong)
        assert re.search(expected, refused.value.message), refused.value.message


def test_schema_file_defines_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    request = streamer_request(
        tmp_path,
        schemaprovider_class="org.apache.hudi.utilities.schema.FilebasedSchemaProvider",
        properties={"hoodie.deltastreamer.schemaprovider.source.schema.file": str(schema)},
    )
    put_json(tmp_path / "in", "a.json", [{"id": 1, "name": "a", "ts": 3, "unknown": True}])
    sync(spark, request)
    assert table_rows(tmp_path) == [{"id": 1, "name": "a", "ts": 3}]


def test_all_files_of_a_batch_are_read(spark: SparkSession, tmp_path: Path) -> None:
    request = streamer_request(tmp_path)
    for number in range(7):
        put_json(tmp_path / "in", f"{number}.json", rows(number * 10, number * 10 + 10))
    done = sync(spark, request)
    assert done is not None
    assert done.rows == 70
    assert table_rows(tmp_path) == rows(0, 70)


def test_limit_cuts_the_backlog_into_batches(spark: SparkSession, tmp_path: Path) -> None:
    request = streamer_request(tmp_path, source_limit=1)
    for number in range(3):
        put_json(tmp_path / "in", f"{number}.json", rows(number, number + 1))
    done = [sync(spark, request) for _ in range(4)]
    assert [each and each.rows for each in done] == [1, 1, 1, None]


def test_checkpoint_option_takes_effect_once(spark: SparkSession, tmp_path: Path) -> None:
    request = streamer_request(tmp_path, op="INSERT")
    put_json(tmp_path / "in", "a.json", rows(0, 2))
    sync(spark, request)
    again = streamer_request(tmp_path, op="INSERT", checkpoint="0")
    assert sync(spark, again) is not None
    assert sync(spark, again) is None
    assert len(table_rows(tmp_path)) == 4


def test_streamer_resumes_from_the_checkpoint_of_hudis_streamer(
    spark: SparkSession, tmp_path: Path
) -> None:
    request = streamer_request(tmp_path)
    old = put_json(tmp_path / "in", "a.json", rows(0, 3))
    time_ms = old.stat().st_mtime_ns // 1_000_000
    with tl.Table.create(str(tmp_path / "table"), SCHEMA, key="id", ordering="ts") as table:
        table.upsert(rows(0, 3), metadata={"deltastreamer.checkpoint.key": str(time_ms)})
    put_json(tmp_path / "in", "b.json", rows(7, 9))
    os.utime(tmp_path / "in" / "b.json", ns=(old.stat().st_mtime_ns + 5_000_000,) * 2)
    done = sync(spark, request)
    assert done is not None
    assert done.rows == 2


def test_missing_source_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    request = streamer_request(tmp_path)
    (tmp_path / "in").rmdir()
    with pytest.raises(NotFound, match=r"folder file://.*in not found"):
        sync(spark, request)


def test_more_files_of_one_time_than_fit_the_ledger_are_read_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelock.streamer.sources.checkpoint_files.INLINE_CHARACTERS_MAX", 200)
    request = streamer_request(tmp_path)
    for round_number in range(4):
        for number in range(20):
            path = put_json(
                tmp_path / "in",
                f"{round_number}-{number}.json",
                rows(round_number, round_number + 1),
            )
            os.utime(path, ns=(10**18, 10**18))
        done = sync(spark, request)
        assert done is not None
        assert done.checkpoint.startswith("stored:")
        assert sync(spark, request) is None
    assert table_rows(tmp_path) == rows(0, 4)


@pytest.mark.parametrize("source", ["JsonDFSSource", "ParquetDFSSource"])
def test_batches_too_large_for_the_driver_are_read_by_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr("tidelock.streamer.sources.files._DRIVER_BYTES_MAX", 0)
    monkeypatch.setattr("tidelock.streamer.read.COLLECTED_BYTES_MAX", 0)
    request = streamer_request(
        tmp_path, source, properties={"tidelock.streamer.malformed": "quarantine"}
    )
    if source == "JsonDFSSource":
        put_json(tmp_path / "in", "a.json", rows(0, 50))
        put_json(tmp_path / "in", "b.json", [*rows(50, 90), "{broken", '{"name":"no key"}'])
    else:
        _parquet(tmp_path / "in" / "a.parquet", rows(0, 90))
        _parquet(tmp_path / "in" / "b.parquet", [{"name": "no key"}])
        (tmp_path / "in" / "c.parquet").write_bytes(b"PAR1 no more")
    done = sync(spark, request)
    assert done is not None
    assert (done.rows, done.malformed) == (90, 2)
    assert table_rows(tmp_path) == rows(0, 90)


def doubled(frame: DataFrame) -> DataFrame:
    return frame.withColumn("ts", F.col("ts") * 2)


def test_transformers_are_chained(spark: SparkSession, tmp_path: Path) -> None:
    script = tmp_path / "rows.sql"
    script.write_text("select * from <SRC> where 1 = 1; select id, ts, a_b from <SRC>;")
    request = streamer_request(
        tmp_path,
        transformer_class=f"FlatteningTransformer,{__name__}:doubled,SqlFileBasedTransformer",
        properties={"hoodie.streamer.transformer.sql.file": str(script)},
    )
    put_json(tmp_path / "in", "a.json", [{"id": 1, "ts": 4, "a": {"b": "deep"}, "c": 1}])
    sync(spark, request)
    assert table_rows(tmp_path) == [{"id": 1, "ts": 8, "a_b": "deep"}]


def test_malformed_csv_lines_are_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    request = streamer_request(
        tmp_path,
        "CsvDFSSource",
        properties={
            "hoodie.streamer.schemaprovider.source.schema.file": str(schema),
            "tidelock.streamer.malformed": "quarantine",
        },
    )
    lines = [b"1,one,1", b"2,two", b"x,three,3", b'4,"four, and more",4', b"5,\xff,5"]
    (tmp_path / "in" / "a.csv").write_bytes(b"\n".join(lines))
    done = sync(spark, request)
    assert done is not None
    assert done.malformed == 3
    assert [row["name"] for row in table_rows(tmp_path)] == ["one", "four, and more"]


@pytest.mark.parametrize("name", ["a.json.gz", "a.parquet"])
def test_files_in_a_bucket_are_read_through_the_store(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    bucket = f"memory://streamer-{name}/in"
    (_gzip if name.endswith("gz") else _parquet)(tmp_path / name, rows(0, 5))
    store = open_store(bucket)
    assert isinstance(store.put(name, (tmp_path / name).read_bytes(), Create()), Landed)
    source = "JsonDFSSource" if name.endswith("gz") else "ParquetDFSSource"
    request = streamer_request(
        tmp_path, source, properties={"hoodie.streamer.source.dfs.root": bucket}
    )
    sync(spark, request)
    assert sync(spark, request) is None
    assert table_rows(tmp_path) == rows(0, 5)


def test_columns_that_differ_by_case_alone_are_an_error_with_a_hint(
    spark: SparkSession, tmp_path: Path
) -> None:
    request = streamer_request(tmp_path)
    put_json(tmp_path / "in", "a.json", [{"id": 1, "ts": 1, "name": "a", "Name": "b"}])
    with pytest.raises(InvalidInput, match="cannot read json"):
        sync(spark, request)
