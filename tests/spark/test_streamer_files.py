"""The streamer on folders of files: every record once, whatever the format, whatever comes."""

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
from tidelock.base.errors import Conflict, InvalidInput, NotFound
from tidelock.base.outcome import Landed
from tidelock.pipeline.streamer.settings import Asked
from tidelock.pipeline.streamer.sync import Streamer, Synced
from tidelock.store.contract import Create
from tidelock.store.uri import open_store
from tidelock.testing.judges.hudi_rs import HudiRs

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


def asked(tmp_path: Path, source: str = "JsonDFSSource", **more: Any) -> Asked:
    given: Mapping[str, object] = more.pop("properties", {})
    properties = {
        "hoodie.streamer.source.dfs.root": str(tmp_path / "in"),
        "hoodie.datasource.write.recordkey.field": "id",
        **given,
    }
    (tmp_path / "in").mkdir(exist_ok=True)
    return Asked(
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


def sync(spark: SparkSession, wanted: Asked) -> Synced | None:
    """Sync as a process of its own would: with nothing remembered but what the table says."""
    streamer = Streamer(spark, wanted)
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
def test_files_of_each_format_are_read_once_and_again_when_they_are_new(
    spark: SparkSession,
    tmp_path: Path,
    source: str,
    suffix: str,
    write: Callable[[Path, Rows], None],
) -> None:
    wanted = asked(tmp_path, source, properties=_CSV, target_table="orders")
    write(tmp_path / "in" / f"a.{suffix}", rows(0, 10))
    first = sync(spark, wanted)
    assert first is not None
    assert (first.rows, first.version) == (10, 0)
    assert sync(spark, wanted) is None
    write(tmp_path / "in" / f"b.{suffix}", rows(5, 15, ts=2))
    second = sync(spark, wanted)
    assert second is not None
    assert second.version == 1
    assert table_rows(tmp_path) == [*rows(0, 5), *rows(5, 15, ts=2)]


def test_hudi_reads_the_table_and_finds_its_own_checkpoint_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = asked(tmp_path)
    path = put_json(tmp_path / "in", "a.json", rows(0, 3))
    sync(spark, wanted)
    found = HudiRs().snapshot(str(tmp_path / "table"))
    assert sorted(row["id"] for row in found) == [0, 1, 2]
    with tl.Table.open(str(tmp_path / "table")) as table:
        timeline = table._snapshot.timeline
        extra = timeline.commit(timeline.writes()[-1]).extra_metadata
    time_ms = str(path.stat().st_mtime_ns // 1_000_000)
    assert extra["streamer.checkpoint.key.v2"] == time_ms
    assert extra["deltastreamer.checkpoint.key"] == time_ms


def test_a_file_that_appears_with_the_time_of_one_already_read_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = asked(tmp_path)
    one = put_json(tmp_path / "in", "m.json", rows(0, 3))
    sync(spark, wanted)
    two = put_json(tmp_path / "in", "a.json", rows(3, 6))
    os.utime(two, ns=(one.stat().st_mtime_ns, one.stat().st_mtime_ns))
    sync(spark, wanted)
    assert sync(spark, wanted) is None
    assert table_rows(tmp_path) == rows(0, 6)


def test_two_streamers_of_one_id_never_write_the_same_files_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = asked(tmp_path, op="INSERT")
    put_json(tmp_path / "in", "a.json", rows(0, 5))
    sync(spark, wanted)
    put_json(tmp_path / "in", "b.json", rows(5, 9))
    slow, fast = Streamer(spark, wanted), Streamer(spark, wanted)
    place = slow._place()
    batch = slow.source.next(place.at, slow.pace.limit)
    assert batch is not None
    first = fast.sync()
    late = slow._take(batch, place, 0)
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
    wanted = asked(tmp_path)
    (tmp_path / "other").mkdir()
    root = {"hoodie.streamer.source.dfs.root": str(tmp_path / "other")}
    other = asked(tmp_path, properties=root)
    put_json(tmp_path / "in", "a.json", rows(0, 3))
    put_json(tmp_path / "other", "a.json", rows(3, 6))
    for each in (wanted, other, wanted, other):
        sync(spark, each)
    put_json(tmp_path / "in", "b.json", rows(6, 8))
    sync(spark, other)
    sync(spark, wanted)
    assert table_rows(tmp_path) == rows(0, 8)


def test_a_writer_id_is_refused_for_another_source(spark: SparkSession, tmp_path: Path) -> None:
    named = {"tidelock.streamer.writer.id": "orders"}
    wanted = asked(tmp_path, properties=named)
    put_json(tmp_path / "in", "a.json", rows(0, 3))
    sync(spark, wanted)
    (tmp_path / "other").mkdir()
    root = {"hoodie.streamer.source.dfs.root": str(tmp_path / "other")}
    with pytest.raises(Conflict, match=r"writer 'orders' has read json:.*/in, and is now to read"):
        sync(spark, asked(tmp_path, properties={**named, **root}))


def test_malformed_records_stop_the_batch_unless_they_are_put_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = asked(tmp_path)
    bad = ["{broken", '{"id":"no number"}', '{"name":"no key"}']
    put_json(tmp_path / "in", "a.json", rows(0, 3))
    sync(spark, wanted)
    put_json(tmp_path / "in", "b.json", [*rows(3, 6), *bad])
    with pytest.raises(InvalidInput, match=r"2 malformed records, the first: .*broken"):
        sync(spark, wanted)
    assert table_rows(tmp_path) == rows(0, 3)
    aside = {
        "tidelock.streamer.malformed": "quarantine",
        "tidelock.streamer.quarantine.path": str(tmp_path / "aside"),
    }
    done = sync(spark, asked(tmp_path, properties=aside))
    assert done is not None
    assert done.malformed == 3
    assert table_rows(tmp_path) == rows(0, 6)
    (file,) = (tmp_path / "aside").rglob("*.jsonl")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert [each["record"] for each in found[:2]] == bad[:2]
    assert found[2]["reason"] == "the record key column id is null"


def test_a_file_that_is_no_parquet_is_put_aside_by_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    aside = {"tidelock.streamer.malformed": "quarantine"}
    wanted = asked(tmp_path, "ParquetDFSSource", properties=aside)
    _parquet(tmp_path / "in" / "a.parquet", rows(0, 3))
    (tmp_path / "in" / "b.parquet").write_bytes(b"PAR1 no more")
    done = sync(spark, wanted)
    assert done is not None
    assert (done.rows, done.malformed) == (3, 1)
    (file,) = (tmp_path / "table" / ".hoodie/.tidelock/quarantine").rglob("*.jsonl")
    assert "b.parquet" in json.loads(file.read_text())["record"]


def test_a_schema_that_cannot_evolve_stops_with_every_column_that_differs(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = asked(tmp_path, "ParquetDFSSource", ordering=None)
    _parquet(tmp_path / "in" / "a.parquet", rows(0, 3))
    sync(spark, wanted)
    other = pa.table({"id": [9], "name": [[1]], "ts": [{"a": 1}]})
    pq.write_table(other, tmp_path / "in" / "b.parquet")
    with pytest.raises(InvalidInput, match=r"cannot evolve .*name.*; .*ts"):
        sync(spark, wanted)


def test_new_columns_and_wider_types_are_taken_into_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = asked(tmp_path)
    put_json(tmp_path / "in", "a.json", [{"id": 1, "ts": 1}])
    sync(spark, wanted)
    put_json(tmp_path / "in", "b.json", [{"id": 2, "ts": 1, "note": {"deep": [1.5]}}])
    sync(spark, wanted)
    assert table_rows(tmp_path)[1]["note"] == {"deep": [1.5]}


def test_a_query_makes_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    sql = "select id, upper(name) as name, ts, id % 2 as part from <SRC> where id > 1"
    wanted = asked(
        tmp_path,
        transformer_class="org.apache.hudi.utilities.transform.SqlQueryBasedTransformer",
        properties={
            "hoodie.deltastreamer.transformer.sql": sql,
            "hoodie.datasource.write.partitionpath.field": "part",
        },
    )
    put_json(tmp_path / "in", "a.json", rows(0, 4))
    sync(spark, wanted)
    found = table_rows(tmp_path)
    assert [(row["id"], row["name"], row["part"]) for row in found] == [(2, "N2", 0), (3, "N3", 1)]
    put_json(tmp_path / "in", "b.json", rows(4, 6))
    for sql, says in (
        ("select nothing from <SRC>", r"`nothing` cannot be resolved.* line 1 pos 7$"),
        ("selec id from <SRC>", r"near 'selec'.*line 1, pos 0\)$"),
    ):
        wrong = asked(
            tmp_path,
            transformer_class="SqlQueryBasedTransformer",
            properties={"hoodie.streamer.transformer.sql": sql},
        )
        with pytest.raises(InvalidInput) as refused:
            sync(spark, wrong)
        assert re.search(says, refused.value.message), refused.value.message


def test_a_schema_file_says_what_is_read(spark: SparkSession, tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    wanted = asked(
        tmp_path,
        schemaprovider_class="org.apache.hudi.utilities.schema.FilebasedSchemaProvider",
        properties={"hoodie.deltastreamer.schemaprovider.source.schema.file": str(schema)},
    )
    put_json(tmp_path / "in", "a.json", [{"id": 1, "name": "a", "ts": 3, "unknown": True}])
    sync(spark, wanted)
    assert table_rows(tmp_path) == [{"id": 1, "name": "a", "ts": 3}]


def test_all_files_of_a_batch_are_read(spark: SparkSession, tmp_path: Path) -> None:
    wanted = asked(tmp_path)
    for number in range(7):
        put_json(tmp_path / "in", f"{number}.json", rows(number * 10, number * 10 + 10))
    done = sync(spark, wanted)
    assert done is not None
    assert done.rows == 70
    assert table_rows(tmp_path) == rows(0, 70)


def test_a_limit_cuts_the_backlog_into_batches(spark: SparkSession, tmp_path: Path) -> None:
    wanted = asked(tmp_path, source_limit=1)
    for number in range(3):
        put_json(tmp_path / "in", f"{number}.json", rows(number, number + 1))
    done = [sync(spark, wanted) for _ in range(4)]
    assert [each and each.rows for each in done] == [1, 1, 1, None]


def test_a_checkpoint_on_the_command_line_is_begun_from_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = asked(tmp_path, op="INSERT")
    put_json(tmp_path / "in", "a.json", rows(0, 2))
    sync(spark, wanted)
    again = asked(tmp_path, op="INSERT", checkpoint="0")
    assert sync(spark, again) is not None
    assert sync(spark, again) is None
    assert len(table_rows(tmp_path)) == 4


def test_a_streamer_of_hudis_is_taken_over_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = asked(tmp_path)
    old = put_json(tmp_path / "in", "a.json", rows(0, 3))
    time_ms = old.stat().st_mtime_ns // 1_000_000
    with tl.Table.create(str(tmp_path / "table"), SCHEMA, key="id", ordering="ts") as table:
        table.upsert(rows(0, 3), metadata={"deltastreamer.checkpoint.key": str(time_ms)})
    put_json(tmp_path / "in", "b.json", rows(7, 9))
    os.utime(tmp_path / "in" / "b.json", ns=(old.stat().st_mtime_ns + 5_000_000,) * 2)
    done = sync(spark, wanted)
    assert done is not None
    assert done.rows == 2


def test_a_source_that_is_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    wanted = asked(tmp_path)
    (tmp_path / "in").rmdir()
    with pytest.raises(NotFound, match=r"the folder file://.*in is gone, or was never there"):
        sync(spark, wanted)


def test_more_files_of_one_time_than_a_mark_can_name_are_read_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelock.pipeline.streamer.sources.spilling.INLINE_CHARACTERS_MAX", 200)
    wanted = asked(tmp_path)
    for turn in range(4):
        for number in range(20):
            path = put_json(tmp_path / "in", f"{turn}-{number}.json", rows(turn, turn + 1))
            os.utime(path, ns=(10**18, 10**18))
        done = sync(spark, wanted)
        assert done is not None
        assert done.checkpoint.startswith("stored:")
        assert sync(spark, wanted) is None
    assert table_rows(tmp_path) == rows(0, 4)


@pytest.mark.parametrize("source", ["JsonDFSSource", "ParquetDFSSource"])
def test_batches_too_large_for_the_driver_are_read_by_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr("tidelock.pipeline.streamer.sources.files._DRIVER_BYTES_MAX", 0)
    monkeypatch.setattr("tidelock.pipeline.streamer.reading.COLLECTED_BYTES_MAX", 0)
    wanted = asked(tmp_path, source, properties={"tidelock.streamer.malformed": "quarantine"})
    if source == "JsonDFSSource":
        put_json(tmp_path / "in", "a.json", rows(0, 50))
        put_json(tmp_path / "in", "b.json", [*rows(50, 90), "{broken", '{"name":"no key"}'])
    else:
        _parquet(tmp_path / "in" / "a.parquet", rows(0, 90))
        _parquet(tmp_path / "in" / "b.parquet", [{"name": "no key"}])
        (tmp_path / "in" / "c.parquet").write_bytes(b"PAR1 no more")
    done = sync(spark, wanted)
    assert done is not None
    assert (done.rows, done.malformed) == (90, 2)
    assert table_rows(tmp_path) == rows(0, 90)


def doubled(frame: DataFrame) -> DataFrame:
    return frame.withColumn("ts", F.col("ts") * 2)


def test_transformers_follow_each_other(spark: SparkSession, tmp_path: Path) -> None:
    script = tmp_path / "rows.sql"
    script.write_text("select * from <SRC> where 1 = 1; select id, ts, a_b from <SRC>;")
    wanted = asked(
        tmp_path,
        transformer_class=f"FlatteningTransformer,{__name__}:doubled,SqlFileBasedTransformer",
        properties={"hoodie.streamer.transformer.sql.file": str(script)},
    )
    put_json(tmp_path / "in", "a.json", [{"id": 1, "ts": 4, "a": {"b": "deep"}, "c": 1}])
    sync(spark, wanted)
    assert table_rows(tmp_path) == [{"id": 1, "ts": 8, "a_b": "deep"}]


def test_lines_that_are_no_csv_of_the_columns_are_put_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    wanted = asked(
        tmp_path,
        "CsvDFSSource",
        properties={
            "hoodie.streamer.schemaprovider.source.schema.file": str(schema),
            "tidelock.streamer.malformed": "quarantine",
        },
    )
    lines = [b"1,one,1", b"2,two", b"x,three,3", b'4,"four, and more",4', b"5,\xff,5"]
    (tmp_path / "in" / "a.csv").write_bytes(b"\n".join(lines))
    done = sync(spark, wanted)
    assert done is not None
    assert done.malformed == 3
    assert [row["name"] for row in table_rows(tmp_path)] == ["one", "four, and more"]


@pytest.mark.parametrize("name", ["a.json.gz", "a.parquet"])
def test_files_are_read_through_the_store_where_there_is_no_path(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    bucket = f"memory://streamer-{name}/in"
    (_gzip if name.endswith("gz") else _parquet)(tmp_path / name, rows(0, 5))
    store = open_store(bucket)
    assert isinstance(store.put(name, (tmp_path / name).read_bytes(), Create()), Landed)
    source = "JsonDFSSource" if name.endswith("gz") else "ParquetDFSSource"
    wanted = asked(tmp_path, source, properties={"hoodie.streamer.source.dfs.root": bucket})
    sync(spark, wanted)
    assert sync(spark, wanted) is None
    assert table_rows(tmp_path) == rows(0, 5)


def test_columns_that_differ_by_case_alone_are_an_error_with_a_hint(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = asked(tmp_path)
    put_json(tmp_path / "in", "a.json", [{"id": 1, "ts": 1, "name": "a", "Name": "b"}])
    with pytest.raises(InvalidInput, match="cannot be read as it is"):
        sync(spark, wanted)
