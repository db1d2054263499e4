"""A topic of Kafka, through Spark's own connector; the driver asks the broker for the offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from tidelock.base.errors import ConfigInvalid, MissingExtra, NotFound, TidelockError, Unavailable
from tidelock.engine.spark.job import run_job
from tidelock.pipeline.localframes import local_frame
from tidelock.pipeline.streamer import config as c
from tidelock.pipeline.streamer.decoding import Decoder
from tidelock.pipeline.streamer.sources.contract import MALFORMED, REASON, Batch
from tidelock.pipeline.streamer.sources.offsets import (
    Offsets,
    Ranges,
    offsets_text,
    parse_offsets,
    ranges,
    starting,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORD_BYTES: Final = 1_024
"""What a record is taken for before any was read."""

_DRIVER_RECORDS_MAX: Final = 10_000
_LEAST_RECORDS: Final = 1_000
_TIMEOUT_MS: Final = "15000"
_DESERIALIZER: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_NOT_CLIENTS: Final = ("hoodie.", "tidelock.", "fs.", "spark.", "schema.registry.")
_SPARKS: Final = frozenset(
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
"""Settings of consumers that Spark's connector sets by itself, and refuses to be given."""

_KEPT: Final = {
    "_hoodie_kafka_source_offset": "offset",
    "_hoodie_kafka_source_partition": "partition",
    "_hoodie_kafka_source_timestamp": "timestamp",
    "_hoodie_kafka_source_key": "key",
}


@dataclass
class KafkaSource:
    """The records of one topic, or of some of its partitions."""

    spark: SparkSession
    settings: Mapping[str, object]
    decoder: Decoder
    _consumer: Any = field(default=None, init=False)

    @cached_property
    def topic(self) -> str:
        """The topic's name."""
        return c.KAFKA_TOPIC.required(self.settings)

    @property
    def name(self) -> str:
        """The topic, and the partitions if they are not all."""
        chosen = c.KAFKA_PARTITIONS.value(self.settings)
        return f"kafka:{self.topic}" + (f"[{','.join(chosen)}]" if chosen else "")

    @property
    def limit(self) -> int:
        """Records of one batch."""
        return c.KAFKA_EVENTS_MAX.required(self.settings)

    @property
    def least(self) -> int:
        """Records of a batch at least."""
        return _LEAST_RECORDS

    def next(self, since: str | None, limit: int) -> Batch | None:
        """Return the records between the offsets that were read and those that there are."""
        first, last = self._bounds()
        known = None if since is None else parse_offsets(since, self.topic)
        strict = c.KAFKA_FAIL_ON_LOSS.required(self.settings)
        latest = self._reset() is c.Reset.LATEST
        start = starting(self.topic, known, first, last, latest=latest, strict=strict)
        chosen = ranges(start, last, limit)
        if known is None and latest:
            # Where "latest" was is decided once, or a crash before the first record would move it.
            return self._batch(Ranges(start, start))
        if not chosen.count:
            return None
        return self._batch(chosen)

    def hudi_place(self, at: str) -> str | None:
        """Places are written as Hudi writes them."""
        return at

    def done_with(self, at: str) -> None:
        """Nothing is kept; consumer groups are not used."""

    def close(self) -> None:
        """Leave the broker."""
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            try:
                consumer.close()
            except Py4JError:
                return  # the JVM is gone, and the connection with it

    def _batch(self, chosen: Ranges) -> Batch:
        size = min(chosen.count * _RECORD_BYTES, 2**50)
        end = offsets_text(self.topic, chosen.end)
        return Batch(self._frame(chosen), end, chosen.count, size)

    def _frame(self, chosen: Ranges) -> DataFrame:
        reader = (
            self.spark.read.format("kafka")
            .option("assign", json.dumps({self.topic: sorted(chosen.start)}))
            .option("startingOffsets", self._json(chosen.start))
            .option("endingOffsets", self._json(chosen.end))
            .option("failOnDataLoss", "true")
        )
        tasks = c.KAFKA_TASKS_MIN.required(self.settings)
        if tasks:
            reader = reader.option("minPartitions", str(tasks))
        for name, value in self._client_settings().items():
            reader = reader.option(f"kafka.{name}", value)
        # A record without a value is a deletion in Kafka's eyes; like Hudi we have no row for it.
        records = reader.load().where(F.col("value").isNotNull())
        if not c.KAFKA_OFFSETS.required(self.settings):
            return self.decoder.rows(self._near(records.select("value"), chosen))
        kept = [F.col(column).alias(name) for name, column in _KEPT.items()]
        near = self._near(records.select("value", *kept), chosen)
        rows = self.decoder.rows(near, keep=tuple(_KEPT))
        own = [name for name in rows.columns if name not in (*_KEPT, MALFORMED, REASON)]
        return rows.select(
            *own,
            *(_kafka_column(name) for name in _KEPT),
            *(name for name in (MALFORMED, REASON) if name in rows.columns),
        )

    def _near(self, records: DataFrame, chosen: Ranges) -> DataFrame:
        """Return few records as rows in the driver: they are looked at more than once."""
        if chosen.count > _DRIVER_RECORDS_MAX:
            return records
        what = f"records of {self.name}"
        table = run_job(self.spark, what, records.toArrow, group=self.name)
        return local_frame(self.spark, table, records.schema)

    def _json(self, offsets: Offsets) -> str:
        return json.dumps({self.topic: {str(part): at for part, at in offsets.items()}})

    def _bounds(self) -> tuple[Offsets, Offsets]:
        """Return the first and the last offset of each partition, as the broker has them now."""
        try:
            jvm = self._jvm()
            consumer = self._connected(jvm)
            found = consumer.partitionsFor(self.topic)
            numbers = sorted(int(each.partition()) for each in found) if found is not None else []
            numbers = self._chosen(numbers)
            places = jvm.java.util.ArrayList()
            for number in numbers:
                places.add(jvm.org.apache.kafka.common.TopicPartition(self.topic, number))
            first, last = consumer.beginningOffsets(places), consumer.endOffsets(places)
            pairs = [(int(place.partition()), place) for place in places]
            return (
                {number: int(first[place]) for number, place in pairs},
                {number: int(last[place]) for number, place in pairs},
            )
        except Py4JError as error:
            self.close()
            raise self._unreachable(error) from error

    def _chosen(self, numbers: list[int]) -> list[int]:
        if not numbers:
            raise NotFound(
                f"there is no topic {self.topic} at {self._servers()}",
                hint=f"create it, or correct {c.KAFKA_TOPIC.key}",
            )
        wanted = c.KAFKA_PARTITIONS.value(self.settings)
        if not wanted:
            return numbers
        try:
            chosen = sorted({int(part) for part in wanted})
        except ValueError as error:
            raise ConfigInvalid(f"{c.KAFKA_PARTITIONS.key} are numbers, such as 0,1") from error
        absent = [number for number in chosen if number not in numbers]
        if absent:
            raise NotFound(
                f"the topic {self.topic} has no partition {absent[0]}; it has {len(numbers)}"
            )
        return chosen

    def _reset(self) -> c.Reset:
        plain = self.settings.get(c.KAFKA_AUTO_RESET)
        given = self.settings if plain is None else {c.KAFKA_RESET.key: plain, **self.settings}
        return c.member(c.Reset, c.KAFKA_RESET, given)

    def _servers(self) -> str:
        servers = self.settings.get(c.KAFKA_SERVERS)
        if not servers:
            raise ConfigInvalid(
                f"{c.KAFKA_SERVERS} is not set", hint="name the brokers as host:9092,host:9092"
            )
        return str(servers)

    def _client_settings(self) -> dict[str, str]:
        """Return the settings of Kafka's clients; in the properties they have no prefix."""
        self._servers()
        return {
            name: str(value)
            for name, value in self.settings.items()
            if not name.startswith(_NOT_CLIENTS) and name not in _SPARKS and "." in name
        }

    def _jvm(self) -> Any:
        jvm: Any = self.spark.sparkContext._jvm  # noqa: SLF001 - offsets are asked for in Java
        if not _is_class(jvm.org.apache.kafka.clients.consumer.KafkaConsumer):
            raise MissingExtra(
                "Spark has no connector to Kafka",
                hint="add it with --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
            )
        return jvm

    def _connected(self, jvm: Any) -> Any:
        if self._consumer is None:
            given = jvm.java.util.Properties()
            waits = {"default.api.timeout.ms": _TIMEOUT_MS, "request.timeout.ms": _TIMEOUT_MS}
            reads = {"key.deserializer": _DESERIALIZER, "value.deserializer": _DESERIALIZER}
            for name, value in {**waits, **self._client_settings(), **reads}.items():
                given.setProperty(name, value)
            self._consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(given)
        return self._consumer

    def _unreachable(self, error: Py4JError) -> TidelockError:
        cause = getattr(error, "java_exception", None)
        said = str(cause.getMessage()) if cause is not None else str(error)
        return Unavailable(
            f"the topic {self.topic} at {self._servers()} cannot be read: {said[:200]}",
            hint="check the brokers and their address; the streamer goes on from where it was",
        )


def _kafka_column(name: str) -> Any:
    return F.col(name).cast("string") if name.endswith("_key") else F.col(name)


def _is_class(found: Any) -> bool:
    """Tell whether Java has a class; what it has not looks like a package."""
    return type(found).__name__ == "JavaClass"
