"""The streamer on a real Kafka broker: every record is stored once."""

from __future__ import annotations

import io
import json
import runpy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidelock as tl
from testkit.servers import RunningServer
from testkit.servers.kafka import PARTITIONS, installed_connector
from testkit.servers.process import free_ports
from testkit.servers.schema_registry import SchemaRegistry, schema_registry
from tidelock.core.errors import DataCorrupt, InvalidInput, NotFound, Unavailable
from tidelock.streamer.batch import Streamer, SyncResult
from tidelock.streamer.config import StreamerRequest

Record = dict[str, Any]


@pytest.fixture(scope="module")
def broker(kafka_server: RunningServer, spark: SparkSession) -> RunningServer:
    if not str(spark.conf.get("spark.jars", "")):
        pytest.skip("the session began without the connector: python -m testkit.servers")
    assert installed_connector()
    return kafka_server


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as server:
        yield server


def produce(
    spark: SparkSession, broker: RunningServer, topic: str, values: Sequence[bytes | Record]
) -> None:
    """Write records to a topic, round-robin over its partitions."""
    encoded = [v if isinstance(v, bytes) else json.dumps(v).encode() for v in values]
    rows = [(bytearray(v), at % PARTITIONS) for at, v in enumerate(encoded)]
    frame = spark.createDataFrame(rows, "value binary, partition int")
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", broker.endpoint)
    writer.option("topic", topic).save()


def streamer_request(
    tmp_path: Path,
    broker: RunningServer,
    topic: str,
    source: str = "JsonKafkaSource",
    **more: Any,
) -> StreamerRequest:
    given: Mapping[str, object] = more.pop("properties", {})
    properties = {
        "bootstrap.servers": broker.endpoint,
        "auto.offset.reset": "earliest",
        "hoodie.deltastreamer.source.kafka.topic": topic,
        "hoodie.datasource.write.recordkey.field": "id",
        **given,
    }
    return StreamerRequest(
        str(tmp_path / "table"), source, properties=properties, op="INSERT", **more
    )


def sync(spark: SparkSession, request: StreamerRequest) -> SyncResult | None:
    streamer = Streamer(spark, request)
    try:
        return streamer.sync()
    finally:
        streamer.close()


def ids(tmp_path: Path) -> list[int]:
    with tl.Table.open(str(tmp_path / "table")) as table:
        found: list[int] = table.read(columns=["id"]).column("id").to_pylist()
    return sorted(found)


def records(first: int, last: int) -> list[Record]:
    return [{"id": i, "name": f"n{i}"} for i in range(first, last)]


def test_commits_store_the_offset_ranges_of_a_topic(
    spark: SparkSession, broker: RunningServer, tmp_path: Path
) -> None:
    request = streamer_request(tmp_path, broker, "ranges", source_limit=10)
    produce(spark, broker, "ranges", records(0, 16))
    first, second = sync(spark, request), sync(spark, request)
    assert first is not None
    assert second is not None
    assert first.checkpoint == "ranges,0:3,1:3,2:2,3:2"
    assert (first.rows, second.rows) == (10, 6)
    assert sync(spark, request) is None
    produce(spark, broker, "ranges", records(16, 18))
    assert sync(spark, request) is not None
    assert ids(tmp_path) == list(range(18))


def test_streamers_on_partition_sets_of_one_topic_share_a_table(
    spark: SparkSession, broker: RunningServer, tmp_path: Path
) -> None:
    produce(spark, broker, "sets", records(0, 12))
    of = "tidelock.streamer.source.kafka.partitions"
    even = streamer_request(tmp_path, broker, "sets", properties={of: "0,2"})
    odd = streamer_request(tmp_path, broker, "sets", properties={of: "1,3"})
    for request in (even, odd, even, odd):
        sync(spark, request)
    assert ids(tmp_path) == list(range(12))


def test_malformed_json_is_quarantined_and_tombstones_are_skipped(
    spark: SparkSession, broker: RunningServer, tmp_path: Path
) -> None:
    produce(spark, broker, "bad", [*records(0, 3), b"\xff\xfe", b"{"])
    frame = spark.createDataFrame([(None, b"k")], "value binary, key binary")
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", broker.endpoint)
    writer.option("topic", "bad").save()
    with pytest.raises(InvalidInput, match="2 malformed records"):
        sync(spark, streamer_request(tmp_path, broker, "bad"))
    aside = {"tidelock.streamer.malformed": "quarantine"}
    done = sync(spark, streamer_request(tmp_path, broker, "bad", properties=aside))
    assert done is not None
    assert (done.units, done.rows, done.malformed) == (6, 3, 2)


def test_offsets_can_be_added_as_columns(
    spark: SparkSession, broker: RunningServer, tmp_path: Path
) -> None:
    with_offsets = {"hoodie.streamer.source.kafka.append.offsets": "true"}
    produce(spark, broker, "kept", records(0, 2))
    sync(spark, streamer_request(tmp_path, broker, "kept", properties=with_offsets))
    with tl.Table.open(str(tmp_path / "table")) as table:
        found = sorted(table.read().to_pylist(), key=lambda row: row["id"])
    assert [row["_hoodie_kafka_source_partition"] for row in found] == [0, 1]
    assert [row["_hoodie_kafka_source_offset"] for row in found] == [0, 0]


def test_new_topic_is_read_from_its_end_by_default(
    spark: SparkSession, broker: RunningServer, tmp_path: Path
) -> None:
    produce(spark, broker, "latest", records(0, 4))
    request = streamer_request(
        tmp_path, broker, "latest", properties={"auto.offset.reset": "latest"}
    )
    streamer = Streamer(spark, request)
    assert streamer.sync() is None
    produce(spark, broker, "latest", records(4, 6))
    assert streamer.sync() is not None
    streamer.close()
    assert ids(tmp_path) == [4, 5]


def test_existing_table_stores_the_initial_end_of_a_topic(
    spark: SparkSession, broker: RunningServer, tmp_path: Path
) -> None:
    tl.Table.create(str(tmp_path / "table"), [("id", pa.int64())], key="id").close()
    produce(spark, broker, "pinned", records(0, 4))
    request = streamer_request(
        tmp_path, broker, "pinned", properties={"auto.offset.reset": "latest"}
    )
    begun = sync(spark, request)
    assert begun is not None
    assert (begun.rows, begun.checkpoint) == (0, "pinned,0:1,1:1,2:1,3:1")
    produce(spark, broker, "pinned", records(4, 6))
    sync(spark, request)
    assert ids(tmp_path) == [4, 5]


ORDER = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}
WIDER = {
    **ORDER,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}, "default": 0},
    ],
}


def wire(number: int, schema: Mapping[str, Any], record: Record) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, dict(schema), record)
    return b"\0" + number.to_bytes(4, "big") + body.getvalue()


def test_avro_records_of_several_schemas_are_read_with_the_latest(
    spark: SparkSession, broker: RunningServer, tmp_path: Path, registry: SchemaRegistry
) -> None:
    old = registry.register("avro-value", ORDER)
    request = streamer_request(
        tmp_path,
        broker,
        "avro",
        "org.apache.hudi.utilities.sources.AvroKafkaSource",
        schemaprovider_class="org.apache.hudi.utilities.schema.SchemaRegistryProvider",
        properties={
            "hoodie.deltastreamer.schemaprovider.registry.url": registry.url("avro-value"),
            "tidelock.streamer.malformed": "quarantine",
        },
    )
    produce(spark, broker, "avro", [wire(old, ORDER, {"id": i}) for i in range(3)])
    sync(spark, request)
    wider = registry.register("avro-value", WIDER)
    later = [wire(wider, WIDER, {"id": 3, "at": 10**15}), wire(old, ORDER, {"id": 4})]
    produce(spark, broker, "avro", [*later, b"no avro", wire(99, ORDER, {"id": 5})])
    done = sync(spark, request)
    assert done is not None
    assert (done.rows, done.malformed) == (2, 2)
    with tl.Table.open(str(tmp_path / "table")) as table:
        found = {row["id"]: row["at"] for row in table.read().to_pylist()}
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert found[3].timestamp() == 10**9
    assert found[4].timestamp() == 0


def test_unavailable_registry_or_broker_is_reported_and_nothing_is_lost(
    spark: SparkSession, broker: RunningServer, tmp_path: Path, registry: SchemaRegistry
) -> None:
    number = registry.register("down-value", ORDER)
    produce(spark, broker, "down", [wire(number, ORDER, {"id": i}) for i in range(3)])
    (port,) = free_ports(1)
    away = f"http://127.0.0.1:{port}/subjects/down-value/versions/latest"
    key = "hoodie.streamer.schemaprovider.registry.url"
    provider = "SchemaRegistryProvider"

    def request(url: str, **more: object) -> StreamerRequest:
        return streamer_request(
            tmp_path,
            broker,
            "down",
            "AvroKafkaSource",
            schemaprovider_class=provider,
            properties={key: url, **more},
        )

    with pytest.raises(
        Unavailable, match=f"cannot reach the schema registry http://127.0.0.1:{port}"
    ):
        sync(spark, request(away))
    servers = {"bootstrap.servers": f"127.0.0.1:{port}", "default.api.timeout.ms": "1000"}
    with pytest.raises(Unavailable, match=f"cannot read topic down at 127.0.0.1:{port}"):
        sync(spark, request(registry.url("down-value"), **servers))
    sync(spark, request(registry.url("down-value")))
    assert ids(tmp_path) == [0, 1, 2]


def test_missing_or_recreated_topic_is_reported(
    spark: SparkSession, broker: RunningServer, tmp_path: Path
) -> None:
    quiet = {"allow.auto.create.topics": "false"}
    with pytest.raises((NotFound, Unavailable), match="absent"):
        sync(spark, streamer_request(tmp_path, broker, "absent", properties=quiet))
    produce(spark, broker, "anew", records(0, 4))
    sync(spark, streamer_request(tmp_path, broker, "anew"))
    with pytest.raises(DataCorrupt, match="the end offset 1 is before 50"):
        sync(spark, streamer_request(tmp_path, broker, "anew", checkpoint="anew,0:50"))


def test_example_of_two_streamers_on_one_topic_runs(
    spark: SparkSession,
    broker: RunningServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = Path(__file__).parents[2] / "examples" / "streamers_on_one_topic.py"
    runpy.run_path(str(recipe))["run"](spark, broker.endpoint, tmp_path)
    assert "2000 rows, 1000 + 1000" in capsys.readouterr().out
