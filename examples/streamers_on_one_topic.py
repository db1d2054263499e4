"""Two streamers on partition sets of one topic, into one table.

    python examples/streamers_on_one_topic.py

Needs Java and Maven: a Kafka broker is started for as long as the program runs. Each streamer has
half of the topic's partitions and a checkpoint of its own; nothing else is agreed between them. Run
either of them twice at once and each record still comes once.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import tidelock as tl
from tidelock.base.runtime import worker_pool
from tidelock.pipeline.streamer.settings import Asked
from tidelock.pipeline.streamer.sync import Streamer


def streamer(spark: SparkSession, servers: str, uri: str, partitions: str) -> Streamer:
    """Return a streamer of some partitions, as `tidelock streamer` would run it."""
    properties = {
        "bootstrap.servers": servers,
        "auto.offset.reset": "earliest",
        "hoodie.streamer.source.kafka.topic": "orders",
        "tidelock.streamer.source.kafka.partitions": partitions,
        "hoodie.datasource.write.recordkey.field": "id",
    }
    task = Asked(
        uri,
        "JsonKafkaSource",
        source_ordering_field="ts",
        source_limit=500,
        properties=properties,
    )
    return Streamer(spark, task)


def drain(each: Streamer) -> int:
    """Take batch after batch until nothing is left; return how many rows that were."""
    rows = 0
    try:
        while (done := each.sync()) is not None:
            rows += done.rows
    finally:
        each.close()
    return rows


def run(spark: SparkSession, servers: str, place: Path) -> None:
    """Fill a topic, let two streamers take it, and check what came of it."""
    records = spark.range(2_000).selectExpr(
        "to_json(struct(id, id as ts, concat('order ', id) as name)) as value",
        "cast(id % 4 as int) as partition",
    )
    writer = records.write.format("kafka").option("kafka.bootstrap.servers", servers)
    writer.option("topic", "orders").save()
    uri = str(place / "orders")
    halves = [streamer(spark, servers, uri, partitions) for partitions in ("0,1", "2,3")]
    with worker_pool("streamer", len(halves)) as pool:
        taken = list(pool.map(drain, halves))
    with tl.Table.open(uri) as table:
        found = sorted(table.read(["id"]).column("id").to_pylist())
        names = [half.writer_id for half in halves if table.mark(half.application)]
    assert found == list(range(2_000)), len(found)
    print(f"{len(found)} rows, {' + '.join(map(str, taken))}, by {' and '.join(names)}")


def main() -> None:
    """Run it with a broker and a Spark session of its own."""
    from tidelock.engine.spark.session import local_session
    from tidelock.testing.servers.kafka import connector_jars, kafka

    jars = ",".join(map(str, connector_jars()))
    with tempfile.TemporaryDirectory(prefix="tidelock-example-") as folder, kafka() as broker:
        spark = local_session("streamers", cores=2, settings={"spark.jars": jars})
        try:
            run(spark, broker.endpoint, Path(folder))
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
