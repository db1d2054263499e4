"""Creates sources by the class names of Hudi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelock.core.errors import ConfigInvalid
from tidelock.streamer import config as c
from tidelock.streamer.decode import AvroDecoder, JsonDecoder, Schemas
from tidelock.streamer.schemas import SchemaProvider, SchemaRegistry
from tidelock.streamer.sources.changes import ChangesSource
from tidelock.streamer.sources.checkpoint_files import CheckpointFiles
from tidelock.streamer.sources.file_formats import Format
from tidelock.streamer.sources.files import FileSource
from tidelock.streamer.sources.jdbc import JdbcSource
from tidelock.streamer.sources.kafka import KafkaSource
from tidelock.streamer.sources.source import Source

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
    checkpoint_files: CheckpointFiles,
) -> Source:
    """Return the source for the last part of Hudi's class name. Raises: `ConfigInvalid`."""
    if named in _FILES:
        return FileSource(spark, settings, _FILES[named], schemas, checkpoint_files)
    match named:
        case "JsonKafkaSource":
            return KafkaSource(spark, settings, JsonDecoder(schemas))
        case "AvroKafkaSource":
            # Without a registry, the records have no schema ids.
            url = c.REGISTRY_URL.value(settings) or settings.get("schema.registry.url")
            registry = None if url is None else SchemaRegistry.of(str(url))
            return KafkaSource(spark, settings, AvroDecoder(provider, registry))
        case "HoodieIncrSource":
            return ChangesSource(spark, settings)
        case "JdbcSource":
            return JdbcSource(spark, settings)
        case _:
            raise ConfigInvalid(f"unknown source class {named!r}")
