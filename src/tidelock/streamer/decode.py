"""Decodes values into rows: JSON and CSV by Spark, Avro by fastavro; flags malformed records."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import fastavro
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql import types as st

from tidelock.core.errors import ConfigInvalid, NotFound
from tidelock.execution.spark.read import quote_columns
from tidelock.execution.spark.types import spark_schema, worker_schema
from tidelock.hudi.schema import parse_schema
from tidelock.spark.frames import all_of
from tidelock.streamer.schemas import SchemaProvider, SchemaRegistry, arrow_of
from tidelock.streamer.sources.file_formats import VALUE
from tidelock.streamer.sources.source import MALFORMED, REASON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ROW: Final = "_tidelock_row"
_TEXT: Final = "_tidelock_text"
_CORRUPT: Final = "_corrupt_record"

SchemaLookup = Callable[[], "pa.Schema | None"]
"""Returns the columns of a schema provider or of the table, if there are any."""


class Decoder(Protocol):
    """Decodes the column `value` into rows."""

    def rows(self, frame: DataFrame, *, keep: Sequence[str] = ()) -> DataFrame:
        """Return a row for each value, with the columns in `keep` unchanged.

        The malformed columns flag the values that could not be decoded.
        """
        ...


@dataclass(frozen=True, slots=True)
class Schemas:
    """The schemas for decoding: `provided` by the user, or otherwise that of the `table`.

    With a provider, rows have exactly its columns. Without one, the columns are inferred from the
    records, and columns of the table have the table's types.
    """

    provided: SchemaLookup
    table: SchemaLookup


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """Decodes one JSON object per value."""

    schemas: Schemas

    def rows(self, frame: DataFrame, *, keep: Sequence[str] = ()) -> DataFrame:
        texts = _texts(frame, keep)
        provided = self.schemas.provided()
        if provided is not None:
            schema = spark_schema(provided)
        else:
            schema = merged(self.schemas.table(), _inferred(texts, "json", {}))
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
        row = F.from_json(_TEXT, _with_malformed(schema), options)
        return _flat(texts, row, keep, "not a JSON object with the expected columns and types")


@dataclass(frozen=True, slots=True)
class CsvDecoder:
    """Decodes one CSV line per value; `names` are the columns of the header, if there is one."""

    schemas: Schemas
    options: Mapping[str, str]
    names: tuple[str, ...] | None = None

    def rows(self, frame: DataFrame, *, keep: Sequence[str] = ()) -> DataFrame:
        texts = _texts(frame, keep)
        options = {name: value for name, value in self.options.items() if name != "header"}
        schema = self._schema(texts, options)
        ddl = _with_malformed(schema).toDDL()
        options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
        row = F.from_csv(_TEXT, ddl, options)
        return _flat(texts, row, keep, "not a CSV line with the expected columns and types")

    def _schema(self, texts: DataFrame, options: Mapping[str, str]) -> st.StructType:
        provided = self.schemas.provided()
        if provided is not None and self.names is None:
            return spark_schema(provided)
        inferred = _inferred(texts, "csv", {"inferSchema": "true", **options})
        names = self.names or tuple(inferred.names)
        types = {field.name: field.dataType for field in inferred.fields}
        found = st.StructType(
            [
                st.StructField(name, types.get(f"_c{index}", st.StringType()))
                for index, name in enumerate(names)
            ]
        )
        known = self.schemas.table() if provided is None else provided
        return _typed_by(known, found)


def merged(table: pa.Schema | None, found: st.StructType) -> st.StructType:
    """Return the table's columns with their types, and the new columns found."""
    if table is None:
        return found
    known = spark_schema(table)
    added = [field for field in found.fields if field.name not in known.names]
    return st.StructType([*known.fields, *added])


def _typed_by(known: pa.Schema | None, found: st.StructType) -> st.StructType:
    """Return the columns found, in order, with the known types."""
    if known is None:
        return found
    types = {field.name: field for field in spark_schema(known).fields}
    return st.StructType([types.get(field.name, field) for field in found.fields])


def _inferred(texts: DataFrame, kind: str, options: Mapping[str, str]) -> st.StructType:
    """Return the schema that Spark infers from texts."""
    spark: SparkSession = texts.sparkSession
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - only the JVM API infers a schema from a dataset of strings
    java: Any = spark._jsparkSession  # noqa: SLF001
    values = getattr(texts.select(_TEXT).dropna()._jdf, "as")(  # noqa: SLF001
        jvm.org.apache.spark.sql.Encoders.STRING()
    )
    reader = java.read()
    for name, value in options.items():
        reader = reader.option(name, value)
    schema = DataFrame(getattr(reader, kind)(values), spark).schema
    return st.StructType([field for field in schema.fields if field.name != _CORRUPT])


def _with_malformed(schema: st.StructType) -> st.StructType:
    nullable = [st.StructField(field.name, field.dataType) for field in schema.fields]
    return st.StructType([*nullable, st.StructField(MALFORMED, st.StringType())])


def _texts(frame: DataFrame, keep: Sequence[str]) -> DataFrame:
    """Return each value twice: as valid UTF-8 for messages, and as text to parse if valid."""
    text = F.col(VALUE).cast("string")
    shown = F.make_valid_utf8(text).alias(VALUE)
    return frame.select(shown, F.when(F.is_valid_utf8(text), text).alias(_TEXT), *keep)


def _flat(frame: DataFrame, row: Any, keep: Sequence[str], reason: str) -> DataFrame:
    rows = frame.select(VALUE, row.alias(_ROW), *keep).select(VALUE, f"{_ROW}.*", *keep)
    # For a value that is not an object, Spark sets neither columns nor a corrupt record.
    own = [name for name in rows.columns if name not in (VALUE, MALFORMED, *keep)]
    empty = all_of(F.col(name).isNull() for name in quote_columns(own))
    bad = F.coalesce(F.col(MALFORMED), F.when(empty, F.col(VALUE)))
    rows = rows.withColumn(MALFORMED, bad).drop(VALUE)
    return rows.withColumn(REASON, F.when(F.col(MALFORMED).isNotNull(), F.lit(reason)))


_MAGIC: Final = 0
_HEADER_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    """Decodes one Avro record per value; without a registry, all have the provider's schema."""

    provider: SchemaProvider
    registry: SchemaRegistry | None

    def rows(self, frame: DataFrame, *, keep: Sequence[str] = ()) -> DataFrame:
        avro = self.provider.source()
        if avro is None:
            raise ConfigInvalid(
                "schema provider: required for Avro records",
                hint="use --schemaprovider-class SchemaRegistryProvider or FilebasedSchemaProvider",
            )
        schema = arrow_of(avro, where="the source schema")
        decoding = AvroDecoding(avro, worker_schema(schema), self.registry, tuple(keep))
        by_name = {each.name: each for each in frame.schema.fields}
        extra = [st.StructField(name, st.StringType()) for name in (MALFORMED, REASON)]
        fields = [*spark_schema(schema).fields, *(by_name[name] for name in keep), *extra]
        return frame.mapInArrow(
            lambda values: decoding.batches(values),  # noqa: PLW0108 - Spark takes functions only
            st.StructType(fields),
        )


@dataclass(frozen=True, slots=True)
class AvroDecoding:
    """Decodes Avro records in a Spark task."""

    avro: str
    schema: pa.Schema
    registry: SchemaRegistry | None
    keep: tuple[str, ...]

    def batches(self, values: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of batches of records."""
        where = "the source schema"
        reader = _Reader(_parsed(self.avro, where), self.registry)
        for batch in values:
            rows: list[dict[str, Any]] = []
            bad: list[str | None] = []
            reasons: list[str | None] = []
            for value in batch.column(batch.schema.get_field_index(VALUE)).to_pylist():
                try:
                    rows.append(reader.record(value))
                    bad.append(None)
                    reasons.append(None)
                except (ValueError, KeyError, IndexError, EOFError, TypeError) as error:
                    rows.append({})
                    bad.append(value.hex())
                    reasons.append(f"not a valid Avro record: {error}"[:300])
            decoded = pa.RecordBatch.from_pylist(rows, self.schema)
            unchanged = [batch.column(batch.schema.get_field_index(name)) for name in self.keep]
            yield pa.RecordBatch.from_arrays(
                [
                    *decoded.columns,
                    *unchanged,
                    pa.array(bad, pa.string()),
                    pa.array(reasons, pa.string()),
                ],
                [*decoded.schema.names, *self.keep, MALFORMED, REASON],
            )


@dataclass(slots=True)
class _Reader:
    latest: Any
    registry: SchemaRegistry | None
    cached: dict[int, Any] = field(default_factory=dict)

    def record(self, value: bytes) -> dict[str, Any]:
        if self.registry is None:
            return _decode(value, self.latest, None)
        if len(value) < _HEADER_BYTES or value[0] != _MAGIC:
            raise ValueError("expected a zero byte and a schema id at the start")
        schema_id = int.from_bytes(value[1:_HEADER_BYTES], "big")
        written = self.cached.get(schema_id)
        if written is None:
            written = self.cached[schema_id] = self._fetch(schema_id)
        return _decode(value[_HEADER_BYTES:], written, self.latest)

    def _fetch(self, schema_id: int) -> Any:
        assert self.registry is not None
        try:
            text = self.registry.by_id(schema_id)
        except NotFound as error:
            raise ValueError(error.message) from error
        return _parsed(text, f"schema {schema_id}")


def _parsed(text: str, where: str) -> Any:
    return fastavro.parse_schema(dict(parse_schema(text, where=where)))


def _decode(body: bytes, written: Any, latest: Any) -> dict[str, Any]:
    stream = io.BytesIO(body)
    found = fastavro.schemaless_reader(stream, written, latest)
    if stream.read(1):
        raise ValueError("unexpected bytes after the record")
    if not isinstance(found, dict):
        raise TypeError("expected a record")
    return found
