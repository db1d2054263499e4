"""A streamer that ingests, and a backfill into the same table at the same time.

    python examples/streamer_and_backfill.py

The streamer follows a folder of new files; the backfill writes the past by `df.write`. Both upsert
some of the same keys, in batches of their own. The larger `ts` wins, whoever comes last.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import tidelock as tl
from tidelock.base.runtime import worker_pool
from tidelock.pipeline.streamer.settings import Asked
from tidelock.pipeline.streamer.sync import Streamer

TABLE = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
}


def land(folder: Path, number: int) -> None:
    """Put a file into the folder the way that a source must: complete, by a rename."""
    rows = [{"id": number * 100 + n, "ts": 2, "by": "streamer"} for n in range(100)]
    hidden = folder / f".{number}.json"
    hidden.write_text("\n".join(map(json.dumps, rows)))
    hidden.rename(folder / f"{number}.json")


def ingest(spark: SparkSession, uri: str, landing: Path, files: int) -> int:
    """Follow the folder; `tidelock streamer --continuous` does this without a program."""
    properties = {"hoodie.streamer.source.dfs.root": str(landing), **TABLE}
    streamer = Streamer(spark, Asked(uri, "JsonDFSSource", properties=properties))
    rows = 0
    try:
        for number in range(files):
            land(landing, number)
            done = streamer.sync()
            rows += 0 if done is None else done.rows
    finally:
        streamer.close()
    return rows


def backfill(spark: SparkSession, uri: str, parts: int) -> int:
    """Write the past, part by part. A part that is written again after a crash is taken once."""
    for part in range(parts):
        rows = spark.range(part * 150, part * 150 + 150)
        past = rows.selectExpr("id", "cast(1 as bigint) as ts", "'backfill' as by")
        writer = past.write.format("tidelock").options(**TABLE).mode("append")
        writer.option("tidelock.txn.app.id", "backfill").option("tidelock.txn.version", part)
        writer.save(uri)
    return parts * 150


def run(spark: SparkSession, place: Path) -> None:
    """Let both write at once, and check what came of it."""
    tl.enable(spark)
    uri, landing = str(place / "orders"), place / "landing"
    landing.mkdir()
    with worker_pool("writer", 2) as pool:
        ingested = pool.submit(ingest, spark, uri, landing, 6)
        filled = pool.submit(backfill, spark, uri, 6)
        print(f"{ingested.result()} rows by the streamer, {filled.result()} by the backfill")
    with tl.Table.open(uri) as table:
        rows = {row["id"]: row["by"] for row in table.read().to_pylist()}
    wanted = {n: "streamer" if n < 600 else "backfill" for n in range(900)}
    assert rows == wanted, "the larger ts wins, whoever came last"
    print(f"{len(rows)} rows, each as the later event has it")


def main() -> None:
    """Run it in a Spark session of its own."""
    from tidelock.engine.spark.session import local_session

    with tempfile.TemporaryDirectory(prefix="tidelock-example-") as folder:
        spark = local_session("streamer and backfill", cores=2)
        try:
            run(spark, Path(folder))
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
