"""Start positions of the streamer: fresh, after another streamer, and in an S3 bucket."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidelock as tl
from testkit.servers.s3 import S3Server
from tidelock.core.errors import ConfigInvalid, NotFound
from tidelock.core.outcome import Landed
from tidelock.storage.contract import Create
from tidelock.storage.uri import open_store
from tidelock.streamer.batch import Streamer, SyncResult
from tidelock.streamer.config import StreamerRequest
from tidelock.streamer.initial_checkpoint import initial_checkpoint

OTHER_TABLE = "InitialCheckpointFromAnotherHoodieTimelineProvider"
CONNECT = "org.apache.hudi.utilities.checkpointing.KafkaConnectHdfsProvider"
PATH = "hoodie.deltastreamer.checkpoint.provider.path"


def sync(spark: SparkSession, request: StreamerRequest) -> SyncResult | None:
    streamer = Streamer(spark, request)
    try:
        return streamer.sync()
    finally:
        streamer.close()


def lines(first: int, last: int) -> bytes:
    return "".join(
        f"{json.dumps({'id': i, 'name': f'n{i}'})}\n" for i in range(first, last)
    ).encode()


def streamer_request(folder: Path, table: str = "table", **more: Any) -> StreamerRequest:
    properties = {
        "hoodie.streamer.source.dfs.root": str(folder / "in"),
        "hoodie.datasource.write.recordkey.field": "id",
        **more.pop("properties", {}),
    }
    op = more.pop("op", "INSERT")
    return StreamerRequest(
        str(folder / table), "JsonDFSSource", op=op, properties=properties, **more
    )


def ids(uri: object, **options: object) -> list[int]:
    with tl.Table.open(str(uri), options=options) as table:
        found: list[int] = sorted(table.read(["id"]).column("id").to_pylist())
    return found


def put(folder: Path, name: str, body: bytes) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f".{name}").write_bytes(body)
    (folder / "in" / f".{name}").rename(folder / "in" / name)


def test_checkpoint_is_ignored_once_per_value(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "a.json", lines(0, 2))
    sync(spark, streamer_request(tmp_path))
    again = streamer_request(tmp_path, ignore_checkpoint="on monday")
    assert sync(spark, again) is not None
    assert sync(spark, again) is None
    assert sync(spark, streamer_request(tmp_path)) is None
    assert ids(tmp_path / "table") == [0, 0, 1, 1]


def test_filter_dupes_skips_existing_keys(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "a.json", lines(0, 2))
    sync(spark, streamer_request(tmp_path))
    put(tmp_path, "b.json", lines(1, 4))
    sync(spark, streamer_request(tmp_path, filter_dupes=True))
    assert ids(tmp_path / "table") == [0, 1, 2, 3]


def test_each_batch_of_an_overwriting_streamer_replaces_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    request = streamer_request(tmp_path, op="INSERT_OVERWRITE_TABLE")
    for name, first in (("a.json", 0), ("b.json", 5)):
        put(tmp_path, name, lines(first, first + 2))
        sync(spark, request)
    assert sync(spark, request) is None
    assert ids(tmp_path / "table") == [5, 6]


def test_streamer_starts_after_the_checkpoint_of_another_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "a.json", lines(0, 2))
    sync(spark, streamer_request(tmp_path, "mirror"))
    behind = {PATH: str(tmp_path / "mirror")}
    request = streamer_request(tmp_path, initial_checkpoint_provider=OTHER_TABLE, properties=behind)
    put(tmp_path, "b.json", lines(5, 7))
    assert sync(spark, request) is not None
    put(tmp_path, "c.json", lines(8, 9))
    sync(spark, streamer_request(tmp_path, "mirror"))
    assert sync(spark, request) is not None
    assert sync(spark, request) is None
    assert ids(tmp_path / "table") == [5, 6, 8]


def test_topic_is_read_after_the_files_of_kafka_connect(tmp_path: Path) -> None:
    for name in ("a.b+0+0+9.avro", "day=1/a.b+0+10+20.avro", "a.b+1+5+7.snappy.parquet", "x.log"):
        file = tmp_path / "connect" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    settings = {PATH: str(tmp_path / "connect")}
    assert initial_checkpoint(CONNECT, settings, "kafka:a.b") == "a.b,0:21,1:8"
    (tmp_path / "connect" / "a.b+3+0+1.avro").touch()
    with pytest.raises(ConfigInvalid, match=r"no file of the partitions \[2\]"):
        initial_checkpoint(CONNECT, settings, "kafka:a.b")
    (tmp_path / "none").mkdir()
    with pytest.raises(NotFound, match="expected files of Kafka Connect"):
        initial_checkpoint(CONNECT, {PATH: str(tmp_path / "none")}, "kafka:a.b")


def test_table_without_a_streamer_provides_no_checkpoint(tmp_path: Path) -> None:
    with tl.Table.create(str(tmp_path / "t"), {"id": "int64"}, key="id") as table:
        table.upsert([{"id": 1}])
    with pytest.raises(NotFound, match="no commit has a checkpoint of json:/in"):
        initial_checkpoint(OTHER_TABLE, {PATH: str(tmp_path / "t")}, "json:/in")


def test_folder_in_a_bucket_is_ingested_into_a_table_in_a_bucket(
    spark: SparkSession, seaweedfs_server: S3Server
) -> None:
    seaweedfs_server.create_bucket("streamers")
    bucket_uri = f"s3://streamers/{uuid.uuid4().hex}"
    settings = {
        "tidelock.s3.endpoint": seaweedfs_server.endpoint,
        "tidelock.s3.region": seaweedfs_server.region,
        "hoodie.aws.access.key": seaweedfs_server.access_key,
        "hoodie.aws.secret.key": seaweedfs_server.secret_key,
    }
    landing = open_store(f"{bucket_uri}/in", settings)
    request = StreamerRequest(
        f"{bucket_uri}/table",
        "JsonDFSSource",
        op="INSERT",
        properties={
            "hoodie.streamer.source.dfs.root": f"{bucket_uri}/in",
            "hoodie.datasource.write.recordkey.field": "id",
            **settings,
        },
    )
    assert sync(spark, request) is None
    for number in range(3):
        # Most of them have the same time, because S3 stores whole seconds.
        body = lines(number, number + 1)
        assert isinstance(landing.put(f"{number}.json", body, Create()), Landed)
        assert sync(spark, request) is not None
    assert sync(spark, request) is None
    assert ids(f"{bucket_uri}/table", **settings) == [0, 1, 2]
