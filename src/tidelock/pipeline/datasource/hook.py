"""`tl.enable(spark)`: the format "tidelock" for a session's reads, writes and streams.

A Python data source of Spark's can neither ask for a shuffle nor leave out columns, so the reader
and the writers of PySpark are taught the format instead. What comes from SQL or Scala does not pass
through PySpark, so a plain data source is registered for it, which only reads; it is also what
streams of changes are read by.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tidelock.base.errors import InvalidInput, MissingExtra, Unsupported
from tidelock.operation.options import PARTITION_PATH_FIELDS
from tidelock.pipeline.datasource.asking import Asked, End, asked_of, teach
from tidelock.pipeline.datasource.options import FORMAT
from tidelock.pipeline.datasource.reading import load
from tidelock.pipeline.datasource.writing import save
from tidelock.pipeline.streaming.sink import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def enable(spark: SparkSession, *, sql: bool = True) -> SparkSession:
    """Let a session read and write tables by `format("tidelock")`; return the session.

        spark = tl.enable(SparkSession.builder.getOrCreate())
        df.write.format("tidelock").options(**hudi_options).mode("append").save(uri)
        stream.writeStream.format("tidelock").option("checkpointLocation", place).start(uri)

    With `sql` its `spark.sql` knows the tables too: see docs/sql.md.

    On a cluster the package is shipped to the executors, which need only the libraries it uses.
    It is safe to call again. Raises: `MissingExtra` without PySpark, `Unsupported` for a session
    of Spark Connect.
    """
    if find_spec("pyspark") is None:
        raise MissingExtra("Spark is not installed", hint="pip install 'tidelock[spark]'")
    from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tidelock.engine.spark.session import checked
    from tidelock.engine.spark.shipping import ship
    from tidelock.pipeline.datasource.fallback import TidelockSource
    from tidelock.pipeline.datasource.merged import PUSHDOWN, MergedSource

    sources = checked(spark).dataSource
    sources.register(TidelockSource)
    sources.register(MergedSource)
    spark.conf.set(PUSHDOWN, "true")
    ship(spark)
    teach(DataFrameReader, {"load": _load})
    teach(DataFrameWriter, {"save": _save, "saveAsTable": _refuse, "insertInto": _refuse})
    streams: dict[str, End] = {"start": _start, "toTable": _refuse}
    teach(DataStreamWriter, streams, holds_back_partitions=True)
    if sql:
        from tidelock.pipeline.sql.session import teach_sql

        teach_sql(spark)
    return spark


def _load(
    reader: Any, path: str | list[str] | None = None, schema: Any = None, **options: Any
) -> Any:
    if isinstance(path, list):
        if len(path) != 1:
            raise InvalidInput(f"{len(path)} paths were given", hint="load one table at a time")
        (path,) = path
    if schema is not None:
        reader.schema(schema)
    reader.options(**options)
    asked = asked_of(reader)
    columns = None if asked.schema is None else _names(reader._spark, asked.schema)  # noqa: SLF001
    return load(reader._spark, path, asked.given, columns=columns)  # noqa: SLF001


def _save(
    writer: Any,
    path: str | None = None,
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: N803 - PySpark's name for it
    **options: Any,
) -> Any:
    if mode is not None:
        writer.mode(mode)
    if partitionBy is not None:
        writer.partitionBy(partitionBy)
    writer.options(**options)
    asked = asked_of(writer)
    save(writer._df, path, asked.mode, _with_partitions(asked))  # noqa: SLF001


def _start(writer: Any, path: str | None = None, **options: Any) -> Any:
    for name in ("outputMode", "partitionBy", "queryName"):
        value = options.pop(name, None)
        if value is not None:
            getattr(writer, name)(value)
    writer.options(**options)
    asked = asked_of(writer)
    return start(writer, path, asked.mode, _with_partitions(asked))


def _refuse(_: Any, table: str, *__: Any, **___: Any) -> Any:
    raise Unsupported(
        f"{table}: tables of the format {FORMAT} are written by their path",
        hint='df.write.format("tidelock").mode("append").save(uri)',
    )


def _with_partitions(asked: Asked) -> dict[str, object]:
    if asked.partitions is None:
        return asked.given
    return {**asked.given, PARTITION_PATH_FIELDS.key: ",".join(asked.partitions)}


def _names(spark: SparkSession, schema: Any) -> list[str]:
    """Return the columns of a schema that a user gave, as text or as a struct."""
    if isinstance(schema, str):
        return spark.createDataFrame([], schema).columns
    names: list[str] = schema.names
    return names
