"""From text to rows: JSON and CSV under a schema, by Spark, with what does not fit set aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql import types as st

from tidelock.engine.spark.read import quoted
from tidelock.engine.spark.schema import spark_schema
from tidelock.pipeline.streamer.sources.contract import MALFORMED, REASON
from tidelock.pipeline.streamer.sources.formats import VALUE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_ROW: Final = "_tidelock_row"
_TEXT: Final = "_tidelock_text"
_CORRUPT: Final = "_corrupt_record"

Known = Callable[[], "pa.Schema | None"]
"""Gives the columns that are known: those of a schema provider, or of the table."""


class Decoder(Protocol):
    """Makes rows of the column `value`."""

    def rows(self, frame: DataFrame, *, keep: Sequence[str] = ()) -> DataFrame:
        """Return a row for each value, with the columns `keep` as they are.

        The columns of malformed records say which could not be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Schemas:
    """What is known of the records: `provided` by the user, or else `table`, the table's own.

    Where a provider says what the records are, nothing else is in the rows. Without one the
    records themselves say which columns there are, and the table of which type those are that it
    has.
    """

    provided: Known
    table: Known


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """A JSON object in each value."""

    schemas: Schemas

    def rows(self, frame: DataFrame, *, keep: Sequence[str] = ()) -> DataFrame:
        """Return a row for each object."""
        texts = _texts(frame, keep)
        provided = self.schemas.provided()
        if provided is not None:
            schema = spark_schema(provided)
        else:
            schema = merged(self.schemas.table(), _inferred(texts, "json", {}))
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
        row = F.from_json(_TEXT, _with_malformed(schema), options)
        return _flat(texts, row, keep, "it is no JSON object of the columns and types expected")


@dataclass(frozen=True, slots=True)
class CsvDecoder:
    """A line of a CSV file in each value; `names` are those of its header, if it has one."""

    schemas: Schemas
    options: Mapping[str, str]
    names: tuple[str, ...] | None = None

    def rows(self, frame: DataFrame, *, keep: Sequence[str] = ()) -> DataFrame:
        """Return a row for each line."""
        texts = _texts(frame, keep)
        given = {name: value for name, value in self.options.items() if name != "header"}
        schema = self._schema(texts, given)
        ddl = _with_malformed(schema).toDDL()
        given |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
        row = F.from_csv(_TEXT, ddl, given)
        return _flat(texts, row, keep, "it is no line of the columns and types expected")

    def _schema(self, texts: DataFrame, options: Mapping[str, str]) -> st.StructType:
        provided = self.schemas.provided()
        if provided is not None and self.names is None:
            return spark_schema(provided)
        guessed = _inferred(texts, "csv", {"inferSchema": "true", **options})
        names = self.names or tuple(guessed.names)
        kinds = {field.name: field.dataType for field in guessed.fields}
        found = st.StructType(
            [
                st.StructField(name, kinds.get(f"_c{place}", st.StringType()))
                for place, name in enumerate(names)
            ]
        )
        known = self.schemas.table() if provided is None else provided
        return _typed_by(known, found)


def merged(table: pa.Schema | None, found: st.StructType) -> st.StructType:
    """Return the columns found, and those of the table, which keep their types."""
    if table is None:
        return found
    known = spark_schema(table)
    added = [field for field in found.fields if field.name not in known.names]
    return st.StructType([*known.fields, *added])


def _typed_by(known: pa.Schema | None, found: st.StructType) -> st.StructType:
    """Return the columns found, in their order, with the types that are known."""
    if known is None:
        return found
    types = {field.name: field for field in spark_schema(known).fields}
    return st.StructType([types.get(field.name, field) for field in found.fields])


def _inferred(texts: DataFrame, kind: str, options: Mapping[str, str]) -> st.StructType:
    """Return the schema that Spark reads out of texts."""
    spark: SparkSession = texts.sparkSession
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - only Java infers from what is no file
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
    """Return values as text to be parsed, where they are text, and as text to be shown."""
    text = F.col(VALUE).cast("string")
    shown = F.make_valid_utf8(text).alias(VALUE)
    return frame.select(shown, F.when(F.is_valid_utf8(text), text).alias(_TEXT), *keep)


def _flat(frame: DataFrame, row: Any, keep: Sequence[str], reason: str) -> DataFrame:
    rows = frame.select(VALUE, row.alias(_ROW), *keep).select(VALUE, f"{_ROW}.*", *keep)
    # What is no object at all gives neither a row nor a corrupt record.
    own = [name for name in rows.columns if name not in (VALUE, MALFORMED, *keep)]
    empty = F.lit(True)  # noqa: FBT003 - a column that is true
    for name in quoted(own):
        empty = empty & F.col(name).isNull()
    bad = F.coalesce(F.col(MALFORMED), F.when(empty, F.col(VALUE)))
    rows = rows.withColumn(MALFORMED, bad).drop(VALUE)
    return rows.withColumn(REASON, F.when(F.col(MALFORMED).isNotNull(), F.lit(reason)))
