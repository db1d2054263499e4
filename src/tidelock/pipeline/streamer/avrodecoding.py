"""Avro records in the wire format of schema registries: a zero, the schema's number, the record.

Each record says under which schema it was written. It is read under that one, into the columns of
the schema that is the latest when the batch begins.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import fastavro
import pyarrow as pa
from pyspark.sql import types as st

from tidelock.base.errors import ConfigInvalid, NotFound
from tidelock.engine.spark.schema import spark_schema, workable
from tidelock.pipeline.streamer.schemas import Registry, SchemaProvider, arrow_of
from tidelock.pipeline.streamer.sources.contract import MALFORMED, REASON
from tidelock.pipeline.streamer.sources.formats import VALUE
from tidelock.table.schema.avro import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MAGIC: Final = 0
_HEAD_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    """An Avro record in each value; without a registry all are of the provider's schema."""

    provider: SchemaProvider
    registry: Registry | None

    def rows(self, frame: DataFrame, *, keep: Sequence[str] = ()) -> DataFrame:
        """Return a row for each record."""
        avro = self.provider.source()
        if avro is None:
            raise ConfigInvalid(
                "Avro records need a schema provider",
                hint="--schemaprovider-class SchemaRegistryProvider or FilebasedSchemaProvider",
            )
        schema = arrow_of(avro, where="the schema of the source")
        decoding = AvroDecoding(avro, workable(schema), self.registry, tuple(keep))
        kinds = {each.name: each for each in frame.schema.fields}
        told = [st.StructField(name, st.StringType()) for name in (MALFORMED, REASON)]
        fields = [*spark_schema(schema).fields, *(kinds[name] for name in keep), *told]
        return frame.mapInArrow(_decoder(decoding), st.StructType(fields))


@dataclass(frozen=True, slots=True)
class AvroDecoding:
    """Decodes in a task; sent there with the schema of the rows."""

    avro: str
    schema: pa.Schema
    registry: Registry | None
    keep: tuple[str, ...]

    def batches(self, values: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of batches of records."""
        where = "the schema of the source"
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
                    reasons.append(f"it is no Avro record of its schema: {error}"[:300])
            decoded = pa.RecordBatch.from_pylist(rows, self.schema)
            kept = [batch.column(batch.schema.get_field_index(name)) for name in self.keep]
            yield pa.RecordBatch.from_arrays(
                [
                    *decoded.columns,
                    *kept,
                    pa.array(bad, pa.string()),
                    pa.array(reasons, pa.string()),
                ],
                [*decoded.schema.names, *self.keep, MALFORMED, REASON],
            )


@dataclass(slots=True)
class _Reader:
    latest: Any
    registry: Registry | None
    known: dict[int, Any] = field(default_factory=dict)

    def record(self, value: bytes) -> dict[str, Any]:
        if self.registry is None:
            return _one(value, self.latest, None)
        if len(value) < _HEAD_BYTES or value[0] != _MAGIC:
            raise ValueError("it does not begin with a zero and the number of a schema")
        number = int.from_bytes(value[1:_HEAD_BYTES], "big")
        written = self.known.get(number)
        if written is None:
            written = self.known[number] = self._fetched(number)
        return _one(value[_HEAD_BYTES:], written, self.latest)

    def _fetched(self, number: int) -> Any:
        assert self.registry is not None
        try:
            text = self.registry.by_id(number)
        except NotFound as error:
            raise ValueError(error.message) from error
        return _parsed(text, f"the schema {number}")


def _parsed(text: str, where: str) -> Any:
    return fastavro.parse_schema(dict(parse_schema(text, where=where)))


def _one(body: bytes, written: Any, latest: Any) -> dict[str, Any]:
    stream = io.BytesIO(body)
    found = fastavro.schemaless_reader(stream, written, latest)
    if stream.read(1):
        raise ValueError("bytes follow the record")
    if not isinstance(found, dict):
        raise TypeError("it is no record")
    return found


def _decoder(
    decoding: AvroDecoding,
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def rows(values: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return decoding.batches(values)

    return rows
