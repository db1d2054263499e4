"""Two streamers that share the partitions of one Kafka topic and write to one table.

    python examples/streamers_on_one_topic.py

Requires Java and Maven: the program starts a Kafka broker. Each streamer has half of the topic's
partitions and its own checkpoint; there is no other coordination. Even if two processes run the
same streamer concurrently, each record is stored once.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import tidelock as tl
from tidelock.core.threads import worker_pool
from tidelock.streamer.batch import Streamer
from tidelock.streamer.config import StreamerRequest


def make_streamer(spark: SparkSession, servers: str, uri: str, partitions: str) -> Streamer:
    """Return a streamer of some partitions, as run by `tidelock streamer`."""
    properties = {
        "bootstrap.servers": servers,
        "auto.offset.reset": "earliest",
        "hoodie.streamer.source.kafka.topic": "orders",
        "tidelock.streamer.source.kafka.partitions": partitions,
        "hoodie.datasource.write.recordkey.field": "id",
    }
    request = StreamerRequest(
        uri,
        "JsonKafkaSource",
        source_ordering_field="ts",
        source_limit=500,
        properties=properties,
    )
    return Streamer(spark, request)


def drain(streamer: Streamer) -> int:
    """Write batches until the source is empty; return the number of rows."""
    rows = 0
    try:
        while (result := streamer.sync()) is not None:
            rows += result.rows
    finally:
        streamer.close()
    return rows


def run(spark: SparkSession, servers: str, folder: Path) -> None:
    """Fill a topic, ingest it with two streamers, and check the table."""
    records = spark.range(2_000).selectExpr(
        "to_json(struct(id, id as ts, concat('order ', id) as name)) as value",
        "cast(id % 4 as int) as partition",
    )
    writer = records.write.format("kafka").option("kafka.bootstrap.servers", servers)
    writer.option("topic", "orders").save()
    uri = str(folder / "orders")
    halves = [make_streamer(spark, servers, uri, partitions) for partitions in ("0,1", "2,3")]
    with worker_pool("streamer", len(halves)) as pool:
        counts = list(pool.map(drain, halves))
    with tl.Table.open(uri) as table:
        found = sorted(table.read(["id"]).column("id").to_pylist())
        names = [half.writer_id for half in halves if table.app_transaction(half.application)]
    assert found == list(range(2_000)), len(found)
    print(f"{len(found)} rows, {' + '.join(map(str, counts))}, by {' and '.join(names)}")


def main() -> None:
    """Run the example with a new broker and Spark session."""
    from testkit.servers.kafka import connector_jars, kafka
    from tidelock.execution.spark.session import local_session

    jars = ",".join(map(str, connector_jars()))
    with tempfile.TemporaryDirectory(prefix="tidelock-example-") as folder, kafka() as broker:
        spark = local_session("streamers", cores=2, settings={"spark.jars": jars})
        try:
            run(spark, broker.endpoint, Path(folder))
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
