"""Two streams and a backfill into one table, and a third stream that reads its changes.

    python examples/streams_into_one_table.py

Each stream needs only its own name and checkpoint location. The program can be stopped at any time
and resumes with the same folders: each micro-batch is committed exactly once, even if Spark retries
it.
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
    """Upsert a stream into the table; its batches are numbered under `name`."""
    writer = frame.writeStream.format("tidelock").options(**TABLE)
    writer.option("hoodie.datasource.write.streaming.checkpoint.identifier", name)
    writer.option("checkpointLocation", str(checkpoints / name))
    return writer.queryName(name).start(uri)


def backfill(frame: DataFrame, uri: str, day: int) -> None:
    """Write one day of historical rows; writing the same day again has no effect."""
    writer = frame.write.format("tidelock").options(**TABLE).mode("append")
    writer.option("tidelock.txn.app.id", "backfill").option("tidelock.txn.version", day)
    writer.save(uri)


def follow(spark: SparkSession, uri: str, out: str, checkpoints: Path) -> StreamingQuery:
    """Write the table's changes to files, a few commits at a time."""
    changes = spark.readStream.format("tidelock")
    changes.option("hoodie.datasource.streaming.startOffset", "earliest")
    changes.option("tidelock.stream.commits.per.trigger.max", 10)
    writer = changes.load(uri).select("id", "ts", "region").writeStream.format("json")
    return writer.option("checkpointLocation", str(checkpoints / "follow")).start(out)


def run(spark: SparkSession, folder: Path) -> None:
    """Run all queries on a small input, and check the results."""
    tl.enable(spark)
    uri, out, checkpoints = str(folder / "orders"), str(folder / "changes"), folder / "checkpoints"
    for region, first in (("eu", 0), ("us", 1_000)):
        rows = [{"id": first + n, "ts": 5, "region": region} for n in range(100)]
        (folder / region).mkdir()
        (folder / region / "1.json").write_text("\n".join(map(json.dumps, rows)))
    past = spark.createDataFrame([(n, 1, "eu") for n in range(50, 150)], SCHEMA)
    queries = [
        ingest(spark.readStream.schema(SCHEMA).json(str(folder / region)), uri, region, checkpoints)
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
        names = [name for name in ("eu", "us", "backfill") if table.app_transaction(name)]
    assert len(rows) == 250, len(rows)
    assert sum(row["ts"] == 5 for row in rows) == 200, "the backfill is older than the streams"
    followed = {(row.id, row.ts) for row in spark.read.json(out).collect()}
    assert {(row["id"], row["ts"]) for row in rows} <= followed
    print(f"{len(rows)} rows by {', '.join(names)}; {len(followed)} changes followed")


def main() -> None:
    """Run the example in a new Spark session."""
    from tidelock.execution.spark.session import local_session

    with tempfile.TemporaryDirectory(prefix="tidelock-example-") as folder:
        spark = local_session("streams into one table", cores=2)
        try:
            run(spark, Path(folder))
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
