"""The cost of a micro-batch in the sink, compared with Spark's own Parquet sink."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import tidelock as tl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOAL = 1.3
BATCH_ROWS = (1_000, 50_000)
ROUNDS = 2
_BATCHES = 14
_WARMING = 4
_PATIENCE_S = 120.0
_KEYED = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "value"}
_SINKS: Mapping[str, tuple[str, dict[str, str]]] = {
    "Parquet files": ("parquet", {}),
    "bulk_insert": ("tidelock", {**_KEYED, "hoodie.datasource.write.operation": "bulk_insert"}),
    "insert": ("tidelock", {**_KEYED, "hoodie.datasource.write.operation": "insert"}),
    "upsert, merge-on-read, 4 buckets": (
        "tidelock",
        {
            **_KEYED,
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "4",
        },
    ),
    "upsert, copy-on-write": ("tidelock", _KEYED),
}
PLAIN = next(iter(_SINKS))


@dataclass(frozen=True, slots=True)
class Streaming:
    """One sink: the median time of a whole trigger, and of the sink's part, in milliseconds."""

    sink: str
    batch_rows: int
    trigger_ms: float
    sink_ms: float
    times_plain: float


def measure() -> list[Streaming]:
    """Write the same source into each sink in turn, several times."""
    from tidelock.execution.spark.session import local_session

    found: list[Streaming] = []
    with tempfile.TemporaryDirectory(prefix="tidelock-bench-") as scratch:
        settings = {"spark.local.dir": scratch, "spark.sql.shuffle.partitions": "2"}
        spark = tl.enable(local_session("streaming", cores=2, settings=settings))
        spark.sparkContext.setLogLevel("OFF")
        try:
            for rows in BATCH_ROWS:
                found += _measured(spark, rows, Path(scratch))
        finally:
            spark.stop()
    return found


def _measured(spark: SparkSession, rows: int, scratch: Path) -> list[Streaming]:
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in _SINKS}
    for turn in range(ROUNDS):
        for number, name in enumerate(_SINKS):
            location = scratch / f"{rows}-{turn}-{number}"
            samples[name] += _run(spark, *_SINKS[name], rows=rows, location=location)
    plain = median(trigger for trigger, _ in samples[PLAIN])
    found = []
    for name, taken in samples.items():
        trigger = median(each for each, _ in taken)
        sink = median(each for _, each in taken)
        found.append(Streaming(name, rows, trigger, sink, trigger / plain))
    return found


def _run(
    spark: SparkSession, kind: str, options: Mapping[str, str], *, rows: int, location: Path
) -> list[tuple[float, float]]:
    source = spark.readStream.format("rate-micro-batch")
    source = source.option("rowsPerBatch", rows).option("numPartitions", 2)
    writer = source.load().writeStream.format(kind).options(**options)
    query = writer.option("checkpointLocation", f"{location}-checkpoint").start(str(location))
    until = time.monotonic() + _PATIENCE_S
    while len(query.recentProgress) < _BATCHES + _WARMING and time.monotonic() < until:
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        time.sleep(0.2)
    progress = query.recentProgress[_WARMING : _BATCHES + _WARMING]
    query.stop()
    times = [each["durationMs"] for each in progress]
    return [(each["triggerExecution"], each["addBatch"]) for each in times]
