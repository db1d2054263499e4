"""Kafka source: one topic, read by Spark's connector between offsets that the driver chooses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from tidelock.core.errors import ConfigInvalid, MissingExtra, NotFound, Unavailable
from tidelock.execution.spark.job import run_job
from tidelock.spark.frames import local_frame
from tidelock.streamer import config as c
from tidelock.streamer.decode import Decoder
from tidelock.streamer.sources.offsets import (
    OffsetRanges,
    Offsets,
    offset_ranges,
    offsets_text,
    parse_offsets,
    start_offsets,
)
from tidelock.streamer.sources.source import MALFORMED, REASON, Batch, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORD_BYTES: Final = 1_024
"""Assumed size of a record."""

_DRIVER_RECORDS_MAX: Final = 10_000
_RECORDS_MIN: Final = 1_000
_TIMEOUT_MS: Final = "15000"
_DESERIALIZER: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_NOT_CLIENT_PREFIXES: Final = ("hoodie.", "tidelock.", "fs.", "spark.", "schema.registry.")
_SET_BY_SPARK: Final = frozenset(
    {
        "auto.offset.reset",
        "enable.auto.commit",
        "group.id",
        "key.deserializer",
        "key.serializer",
        "value.deserializer",
        "value.serializer",
        "interceptor.classes",
    }
)
"""Consumer settings that Spark's connector sets itself and rejects from users."""

_METADATA_COLUMNS: Final = {
    "_hoodie_kafka_source_offset": "offset",
    "_hoodie_kafka_source_partition": "partition",
    "_hoodie_kafka_source_timestamp": "timestamp",
    "_hoodie_kafka_source_key": "key",
}


@dataclass
class KafkaSource(Source):
    """Reads the records of one topic, or of some of its partitions."""

    spark: SparkSession
    settings: Mapping[str, object]
    decoder: Decoder
    _consumer: Any = field(default=None, init=False)
    limit_min = _RECORDS_MIN

    @cached_property
    def topic(self) -> str:
        return c.KAFKA_TOPIC.required(self.settings)

    @property
    def name(self) -> str:
        """The topic, and the partitions if only some are read."""
        partitions = c.KAFKA_PARTITIONS.value(self.settings)
        return f"kafka:{self.topic}" + (f"[{','.join(partitions)}]" if partitions else "")

    @property
    def limit(self) -> int:
        return c.KAFKA_EVENTS_MAX.required(self.settings)

    def next(self, since: str | None, limit: int) -> Batch | None:
        """Return the records between the last read offsets and the current end offsets."""
        first, last = self._bounds()
        known = None if since is None else parse_offsets(since, self.topic)
        strict = c.KAFKA_FAIL_ON_LOSS.required(self.settings)
        latest = self._reset() is c.OffsetReset.LATEST
        start = start_offsets(self.topic, known, first, last, latest=latest, strict=strict)
        ranges = offset_ranges(start, last, limit)
        if known is None and latest:
            # An empty batch fixes the position of "latest"; a crash must not move it.
            return self._batch(OffsetRanges(start, start))
        return self._batch(ranges) if ranges.count else None

    def close(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            try:
                consumer.close()
            except Py4JError:
                return  # the JVM has exited, and the connection with it

    def _batch(self, ranges: OffsetRanges) -> Batch:
        size = min(ranges.count * _RECORD_BYTES, 2**50)
        end = offsets_text(self.topic, ranges.end)
        return Batch(self._frame(ranges), end, ranges.count, size)

    def _frame(self, ranges: OffsetRanges) -> DataFrame:
        reader = (
            self.spark.read.format("kafka")
            .option("assign", json.dumps({self.topic: sorted(ranges.start)}))
            .option("startingOffsets", self._json(ranges.start))
            .option("endingOffsets", self._json(ranges.end))
            .option("failOnDataLoss", "true")
        )
        tasks = c.KAFKA_TASKS_MIN.required(self.settings)
        if tasks:
            reader = reader.option("minPartitions", str(tasks))
        for name, value in self._client_settings().items():
            reader = reader.option(f"kafka.{name}", value)
        # A record without a value is a tombstone in Kafka; like Hudi's streamer, we skip it.
        records = reader.load().where(F.col("value").isNotNull())
        if not c.KAFKA_OFFSETS.required(self.settings):
            return self.decoder.rows(self._local_if_small(records.select("value"), ranges))
        metadata = [F.col(column).alias(name) for name, column in _METADATA_COLUMNS.items()]
        values = self._local_if_small(records.select("value", *metadata), ranges)
        rows = self.decoder.rows(values, keep=tuple(_METADATA_COLUMNS))
        own = [name for name in rows.columns if name not in (*_METADATA_COLUMNS, MALFORMED, REASON)]
        return rows.select(
            *own,
            *(
                F.col(n).cast("string") if n.endswith("_key") else F.col(n)
                for n in _METADATA_COLUMNS
            ),
            *(name for name in (MALFORMED, REASON) if name in rows.columns),
        )

    def _local_if_small(self, records: DataFrame, ranges: OffsetRanges) -> DataFrame:
        """Return a small batch as a local frame: it is evaluated more than once."""
        if ranges.count > _DRIVER_RECORDS_MAX:
            return records
        job = f"records of {self.name}"
        table = run_job(self.spark, job, records.toArrow, group=self.name)
        return local_frame(self.spark, table, records.schema)

    def _json(self, offsets: Offsets) -> str:
        return json.dumps({self.topic: {str(part): offset for part, offset in offsets.items()}})

    def _bounds(self) -> tuple[Offsets, Offsets]:
        """Return the current beginning and end offsets of each partition."""
        try:
            jvm = self._jvm()
            consumer = self._connected(jvm)
            found = consumer.partitionsFor(self.topic)
            numbers = sorted(int(each.partition()) for each in found) if found is not None else []
            numbers = self._selected_partitions(numbers)
            partitions = jvm.java.util.ArrayList()
            for number in numbers:
                partitions.add(jvm.org.apache.kafka.common.TopicPartition(self.topic, number))
            first, last = consumer.beginningOffsets(partitions), consumer.endOffsets(partitions)
            pairs = [(int(partition.partition()), partition) for partition in partitions]
            return (
                {number: int(first[partition]) for number, partition in pairs},
                {number: int(last[partition]) for number, partition in pairs},
            )
        except Py4JError as error:
            self.close()
            cause = getattr(error, "java_exception", None)
            message = str(error if cause is None else cause.getMessage())
            raise Unavailable(
                f"cannot read topic {self.topic} at {self._servers()}: {message[:200]}",
                hint="check the brokers and their addresses; the streamer resumes where it stopped",
            ) from error

    def _selected_partitions(self, numbers: list[int]) -> list[int]:
        if not numbers:
            raise NotFound(
                f"topic {self.topic} not found at {self._servers()}",
                hint=f"create it, or correct {c.KAFKA_TOPIC.key}",
            )
        requested = c.KAFKA_PARTITIONS.value(self.settings)
        if not requested:
            return numbers
        try:
            selected = sorted({int(part) for part in requested})
        except ValueError as error:
            raise ConfigInvalid(
                f"{c.KAFKA_PARTITIONS.key}: expected integers such as 0,1, got"
                f" {','.join(requested)!r}",
                hint="use the numbers of partitions, separated by commas",
            ) from error
        absent = [number for number in selected if number not in numbers]
        if absent:
            raise NotFound(
                f"topic {self.topic} has no partition {absent[0]}; it has {len(numbers)}"
                " partitions",
                hint=f"correct {c.KAFKA_PARTITIONS.key}",
            )
        return selected

    def _reset(self) -> c.OffsetReset:
        plain = self.settings.get(c.KAFKA_AUTO_RESET)
        settings = self.settings if plain is None else {c.KAFKA_RESET.key: plain, **self.settings}
        return c.KAFKA_RESET.member(c.OffsetReset, settings)

    def _servers(self) -> str:
        servers = self.settings.get(c.KAFKA_SERVERS)
        if not servers:
            raise ConfigInvalid(
                f"{c.KAFKA_SERVERS}: required", hint="for example host1:9092,host2:9092"
            )
        return str(servers)

    def _client_settings(self) -> dict[str, str]:
        """Return the settings for Kafka's clients; in the properties they have no prefix."""
        self._servers()
        return {
            name: str(value)
            for name, value in self.settings.items()
            if "." in name
            and name not in _SET_BY_SPARK
            and not name.startswith(_NOT_CLIENT_PREFIXES)
        }

    def _jvm(self) -> Any:
        jvm: Any = self.spark.sparkContext._jvm  # noqa: SLF001 - the consumer is a Java class
        # py4j treats an unknown name as a package.
        if type(jvm.org.apache.kafka.clients.consumer.KafkaConsumer).__name__ != "JavaClass":
            raise MissingExtra(
                "Spark's Kafka connector is not installed",
                hint="add it with --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
            )
        return jvm

    def _connected(self, jvm: Any) -> Any:
        if self._consumer is None:
            properties = jvm.java.util.Properties()
            timeouts = {"default.api.timeout.ms": _TIMEOUT_MS, "request.timeout.ms": _TIMEOUT_MS}
            deserializers = {"key.deserializer": _DESERIALIZER, "value.deserializer": _DESERIALIZER}
            settings = {**timeouts, **self._client_settings(), **deserializers}
            for name, value in settings.items():
                properties.setProperty(name, value)
            self._consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
        return self._consumer
