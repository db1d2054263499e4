"""Sources by the names of Hudi's classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelock.base.errors import ConfigInvalid
from tidelock.pipeline.streamer import config as c
from tidelock.pipeline.streamer.avrodecoding import AvroDecoder
from tidelock.pipeline.streamer.decoding import JsonDecoder, Schemas
from tidelock.pipeline.streamer.schemas import Registry, SchemaProvider
from tidelock.pipeline.streamer.sources.changes import ChangesSource
from tidelock.pipeline.streamer.sources.contract import Source
from tidelock.pipeline.streamer.sources.files import FileSource
from tidelock.pipeline.streamer.sources.formats import Format
from tidelock.pipeline.streamer.sources.jdbc import JdbcSource
from tidelock.pipeline.streamer.sources.kafka import KafkaSource
from tidelock.pipeline.streamer.sources.spilling import Spill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES: Final = {
    "JsonDFSSource": Format.JSON,
    "CsvDFSSource": Format.CSV,
    "ParquetDFSSource": Format.PARQUET,
    "AvroDFSSource": Format.AVRO,
    "ORCDFSSource": Format.ORC,
}


def source(
    named: str,
    spark: SparkSession,
    settings: Mapping[str, object],
    *,
    provider: SchemaProvider,
    schemas: Schemas,
    spill: Spill,
) -> Source:
    """Return the source that the last part of Hudi's class name says. Raises: `ConfigInvalid`."""
    if named in _FILES:
        return FileSource(spark, settings, _FILES[named], schemas, spill)
    match named:
        case "JsonKafkaSource":
            return KafkaSource(spark, settings, JsonDecoder(schemas))
        case "AvroKafkaSource":
            return KafkaSource(spark, settings, AvroDecoder(provider, _registry(settings)))
        case "HoodieIncrSource":
            return ChangesSource(spark, settings)
        case "JdbcSource":
            return JdbcSource(spark, settings)
        case _:
            raise ConfigInvalid(f"the source {named} is not known")


def _registry(settings: Mapping[str, object]) -> Registry | None:
    """Return the registry whose numbers records carry; None if they are bare."""
    url = c.REGISTRY_URL.value(settings) or settings.get("schema.registry.url")
    return None if url is None else Registry.of(str(url))
