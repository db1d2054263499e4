"""A streamer and a concurrent backfill into the same table.

    python examples/streamer_and_backfill.py

The streamer ingests new files of a folder; the backfill writes historical rows with `df.write`.
Both upsert some of the same keys. The row with the larger `ts` wins, regardless of commit order.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import tidelock as tl
from tidelock.core.threads import worker_pool
from tidelock.streamer.batch import Streamer
from tidelock.streamer.config import StreamerRequest

TABLE = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
}


def land(folder: Path, number: int) -> None:
    """Add a complete file to the folder atomically, by renaming it."""
    rows = [{"id": number * 100 + n, "ts": 2, "by": "streamer"} for n in range(100)]
    hidden = folder / f".{number}.json"
    hidden.write_text("\n".join(map(json.dumps, rows)))
    hidden.rename(folder / f"{number}.json")


def ingest(spark: SparkSession, uri: str, landing: Path, files: int) -> int:
    """Ingest the folder, like `tidelock streamer --continuous`."""
    properties = {"hoodie.streamer.source.dfs.root": str(landing), **TABLE}
    streamer = Streamer(spark, StreamerRequest(uri, "JsonDFSSource", properties=properties))
    rows = 0
    try:
        for number in range(files):
            land(landing, number)
            result = streamer.sync()
            rows += 0 if result is None else result.rows
    finally:
        streamer.close()
    return rows


def backfill(spark: SparkSession, uri: str, parts: int) -> int:
    """Write historical rows in parts. A part that is written again after a crash has no effect."""
    for part in range(parts):
        rows = spark.range(part * 150, part * 150 + 150)
        frame = rows.selectExpr("id", "cast(1 as bigint) as ts", "'backfill' as by")
        writer = frame.write.format("tidelock").options(**TABLE).mode("append")
        writer.option("tidelock.txn.app.id", "backfill").option("tidelock.txn.version", part)
        writer.save(uri)
    return parts * 150


def run(spark: SparkSession, folder: Path) -> None:
    """Run both writers concurrently, and check the table."""
    tl.enable(spark)
    uri, landing = str(folder / "orders"), folder / "landing"
    landing.mkdir()
    with worker_pool("writer", 2) as pool:
        ingested = pool.submit(ingest, spark, uri, landing, 6)
        backfilled = pool.submit(backfill, spark, uri, 6)
        print(f"{ingested.result()} rows by the streamer, {backfilled.result()} by the backfill")
    with tl.Table.open(uri) as table:
        rows = {row["id"]: row["by"] for row in table.read().to_pylist()}
    expected = {n: "streamer" if n < 600 else "backfill" for n in range(900)}
    assert rows == expected, "the larger ts wins, regardless of commit order"
    print(f"{len(rows)} rows, each with its larger ts")


def main() -> None:
    """Run the example in a new Spark session."""
    from tidelock.execution.spark.session import local_session

    with tempfile.TemporaryDirectory(prefix="tidelock-example-") as folder:
        spark = local_session("streamer and backfill", cores=2)
        try:
            run(spark, Path(folder))
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
