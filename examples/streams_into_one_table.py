"""Two streams and a backfill into one table, and a third stream that follows what changes.

    python examples/streams_into_one_table.py

Every stream has a name of its own and a checkpoint of its own; that is all it takes. Stop the
program at any moment, start it again with the same folders, and it goes on: each micro-batch is in
the table once, whatever Spark repeats.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tidelock as tl

SCHEMA = "id bigint, ts bigint, region string"
TABLE = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.datasource.write.partitionpath.field": "region",
}


def ingest(frame: DataFrame, uri: str, name: str, checkpoints: Path) -> StreamingQuery:
    """Upsert a stream into the table; `name` is what its batches are counted under."""
    writer = frame.writeStream.format("tidelock").options(**TABLE)
    writer.option("hoodie.datasource.write.streaming.checkpoint.identifier", name)
    writer.option("checkpointLocation", str(checkpoints / name))
    return writer.queryName(name).start(uri)


def backfill(frame: DataFrame, uri: str, day: int) -> None:
    """Write a day of the past while the streams run; run it twice, and nothing happens twice."""
    writer = frame.write.format("tidelock").options(**TABLE).mode("append")
    writer.option("tidelock.txn.app.id", "backfill").option("tidelock.txn.version", day)
    writer.save(uri)


def follow(spark: SparkSession, uri: str, out: str, checkpoints: Path) -> StreamingQuery:
    """Follow the table's changes, a few commits at a time, into files."""
    changes = spark.readStream.format("tidelock")
    changes.option("hoodie.datasource.streaming.startOffset", "earliest")
    changes.option("tidelock.stream.commits.per.trigger.max", 10)
    writer = changes.load(uri).select("id", "ts", "region").writeStream.format("json")
    return writer.option("checkpointLocation", str(checkpoints / "follow")).start(out)


def run(spark: SparkSession, place: Path) -> None:
    """Run all of it on a little data, and check what came of it."""
    tl.enable(spark)
    uri, out, checkpoints = str(place / "orders"), str(place / "changes"), place / "checkpoints"
    for region, first in (("eu", 0), ("us", 1_000)):
        rows = [{"id": first + n, "ts": 5, "region": region} for n in range(100)]
        (place / region).mkdir()
        (place / region / "1.json").write_text("\n".join(map(json.dumps, rows)))
    past = spark.createDataFrame([(n, 1, "eu") for n in range(50, 150)], SCHEMA)
    queries = [
        ingest(spark.readStream.schema(SCHEMA).json(str(place / region)), uri, region, checkpoints)
        for region in ("eu", "us")
    ]
    try:
        for _ in range(2):
            backfill(past, uri, day=1)
        for query in queries:
            query.processAllAvailable()
        queries.append(follow(spark, uri, out, checkpoints))
        queries[-1].processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    with tl.Table.open(uri) as table:
        rows = table.read(["id", "ts"]).to_pylist()
        names = [name for name in ("eu", "us", "backfill") if table.mark(name)]
    assert len(rows) == 250, len(rows)
    assert sum(row["ts"] == 5 for row in rows) == 200, "the backfill is older than the streams"
    followed = {(row.id, row.ts) for row in spark.read.json(out).collect()}
    assert {(row["id"], row["ts"]) for row in rows} <= followed
    print(f"{len(rows)} rows by {', '.join(names)}; {len(followed)} changes followed")


def main() -> None:
    """Run it in a Spark session of its own."""
    from tidelock.engine.spark.session import local_session

    with tempfile.TemporaryDirectory(prefix="tidelock-example-") as folder:
        spark = local_session("streams into one table", cores=2)
        try:
            run(spark, Path(folder))
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
