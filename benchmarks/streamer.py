"""The throughput of the streamer on a backlog, and the latency of a small batch."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from testkit.servers import ServerUnavailable
from testkit.servers.kafka import connector_jars, kafka
from tidelock.streamer.batch import Streamer, SyncResult
from tidelock.streamer.config import StreamerRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 600_000
BATCHES = 6
SMALL_ROWS = 100
SMALL_BATCHES = 12
_WARMING = 4
_FILES = 24
_TOPIC = "bench"


@dataclass(frozen=True, slots=True)
class Streamed:
    """One source and operation: rows per second of a backlog, and latency of a small batch."""

    source: str
    operation: str
    rows_s: float
    latency_ms: float
    slowest_ms: float


@dataclass(frozen=True, slots=True)
class _Flow:
    """A source to which records can be added."""

    name: str
    source_class: str
    properties: dict[str, object]
    give: Callable[[int, int], None]
    limit: int


def measure(missing: dict[str, str]) -> list[Streamed]:
    """Measure a backlog and small batches, from files and from Kafka; record what is missing."""
    found: list[Streamed] = []
    with tempfile.TemporaryDirectory(prefix="tidelock-bench-") as scratch, _session(scratch) as at:
        spark, has_kafka = at
        for operation in ("INSERT", "UPSERT"):
            location = Path(scratch) / f"files-{operation}"
            found.append(_taken(spark, _files(location), operation, location))
        if not has_kafka:
            missing["streamer from Kafka"] = "the jars of Spark's connector are not available"
            return found
        try:
            with kafka() as broker:
                flow = _kafka(spark, broker.endpoint)
                found.append(_taken(spark, flow, "INSERT", Path(scratch) / "kafka"))
        except ServerUnavailable as error:
            missing["streamer from Kafka"] = str(error)
    return found


def _taken(spark: SparkSession, flow: _Flow, operation: str, location: Path) -> Streamed:
    options = StreamerRequest(
        str(location / "table"),
        flow.source_class,
        op=operation,
        source_limit=flow.limit,
        properties={"hoodie.datasource.write.recordkey.field": "id", **flow.properties},
    )
    streamer = Streamer(spark, options)
    try:
        flow.give(0, RECORDS)
        backlog = list(_drained(streamer))[1:]  # the first batch is a warm-up
        rows = sum(done.rows for done in backlog)
        rows_s = rows * 1_000 / sum(done.duration_ms for done in backlog)
        times = []
        for turn in range(SMALL_BATCHES + _WARMING):
            begun = time.perf_counter()
            flow.give(RECORDS + turn * SMALL_ROWS, RECORDS + (turn + 1) * SMALL_ROWS)
            while streamer.sync() is None:
                pass
            times.append((time.perf_counter() - begun) * 1_000)
    finally:
        streamer.close()
    timed = times[_WARMING:]
    return Streamed(flow.name, operation.lower(), rows_s, median(timed), max(timed))


def _drained(streamer: Streamer) -> Iterator[SyncResult]:
    while (done := streamer.sync()) is not None:
        yield done


def _record(number: int) -> dict[str, object]:
    return {"id": number, "name": f"customer {number}", "amount": number * 0.25, "ts": number}


def _files(location: Path) -> _Flow:
    source = location / "in"
    source.mkdir(parents=True)

    def give(first: int, last: int) -> None:
        each = max(1, (last - first) // (_FILES if last - first > SMALL_ROWS else 1))
        for begin in range(first, last, each):
            lines = [json.dumps(_record(n)) for n in range(begin, min(begin + each, last))]
            hidden = source / f".{begin}"
            hidden.write_text("\n".join(lines))
            hidden.rename(source / f"{begin:09}.json")

    size = sum(len(json.dumps(_record(n))) + 1 for n in range(0, RECORDS, 1_000)) * 1_000
    properties: dict[str, object] = {"hoodie.streamer.source.dfs.root": str(source)}
    return _Flow("JSON files", "JsonDFSSource", properties, give, size // BATCHES)


def _kafka(spark: SparkSession, servers: str) -> _Flow:
    def give(first: int, last: int) -> None:
        row = "struct(id, concat('customer ', id) as name, id * 0.25 as amount, id as ts)"
        rows = spark.range(first, last, 1, 2).selectExpr(f"to_json({row}) as value")
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", servers)
        writer.option("topic", _TOPIC).save()

    properties: dict[str, object] = {
        "bootstrap.servers": servers,
        "auto.offset.reset": "earliest",
        "hoodie.streamer.source.kafka.topic": _TOPIC,
    }
    return _Flow("Kafka, JSON", "JsonKafkaSource", properties, give, RECORDS // BATCHES)


@contextmanager
def _session(scratch: str) -> Iterator[tuple[SparkSession, bool]]:
    from tidelock.execution.spark.session import local_session

    try:
        jars = ",".join(map(str, connector_jars()))
    except ServerUnavailable:
        jars = ""
    settings = {"spark.local.dir": scratch, "spark.jars": jars}
    spark = local_session("streamer", cores=2, settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark, bool(jars)
    finally:
        spark.stop()
