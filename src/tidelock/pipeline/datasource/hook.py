"""`tl.enable(spark)`: the format "tidelock" for a session's reads and writes.

A Python data source of Spark's can neither ask for a shuffle nor leave out columns, so the reader
and the writer of PySpark are taught the format instead: their calls are remembered, and `load` and
`save` of this format are ours. Every other format goes where it went. What comes from SQL or Scala
does not pass through PySpark, so a plain data source is registered for it, which only reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tidelock.base.errors import InvalidInput, MissingExtra, Unsupported
from tidelock.operation.options import PARTITION_PATH_FIELDS
from tidelock.pipeline.datasource.options import FORMAT
from tidelock.pipeline.datasource.reading import load
from tidelock.pipeline.datasource.writing import save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASKED: Final = "_tidelock_asked"
_ENABLED: Final = "_tidelock_enabled"


def enable(spark: SparkSession) -> SparkSession:
    """Let a session read and write tables by `format("tidelock")`; return the session.

        spark = tl.enable(SparkSession.builder.getOrCreate())
        df.write.format("tidelock").options(**hudi_options).mode("append").save(uri)

    It is safe to call again. Raises: `MissingExtra` without PySpark, `Unsupported` for a session
    of Spark Connect.
    """
    if find_spec("pyspark") is None:
        raise MissingExtra("Spark is not installed", hint="pip install 'tidelock[spark]'")
    from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter

    from tidelock.engine.spark.session import checked
    from tidelock.pipeline.datasource.fallback import TidelockSource

    checked(spark).dataSource.register(TidelockSource)
    if not getattr(DataFrameReader, _ENABLED, False):
        _teach(DataFrameReader, {"load": _load})
        _teach(DataFrameWriter, {"save": _save, "saveAsTable": _refuse, "insertInto": _refuse})
    return spark


class _Asked:
    """What was said to one reader or writer."""

    def __init__(self) -> None:
        self.format: str | None = None
        self.options: dict[str, object] = {}
        self.mode: str | None = None
        self.schema: Any = None

    @property
    def is_ours(self) -> bool:
        return self.format is not None and self.format.lower() == FORMAT


def _teach(kind: type, ends: dict[str, Callable[..., Any]]) -> None:
    for name in ("format", "option", "options", "mode", "schema", "partitionBy"):
        if hasattr(kind, name):
            setattr(kind, name, _remembering(name, getattr(kind, name)))
    for name, ours in ends.items():
        setattr(kind, name, _ending(getattr(kind, name), ours))
    setattr(kind, _ENABLED, True)


def _remembering(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        asked = _asked(self)
        match name:
            case "format":
                asked.format = args[0] if args else kwargs["source"]
            case "option":
                key, value = (*args, *kwargs.values())
                asked.options[key] = value
            case "options":
                asked.options.update(kwargs)
            case "mode":
                asked.mode = args[0] if args else kwargs["saveMode"]
            case "schema":
                asked.schema = args[0] if args else kwargs["schema"]
            case _:
                names = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
                asked.options[PARTITION_PATH_FIELDS.key] = ",".join(names)
        return result

    return call


def _ending(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = kwargs.get("format")
        if named is not None:
            self.format(named)
        if not _asked(self).is_ours:
            return original(self, *args, **kwargs)
        return ours(self, *args, **{key: kwargs[key] for key in kwargs if key != "format"})

    return call


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
    asked = _asked(reader)
    columns = None if asked.schema is None else _names(reader._spark, asked.schema)  # noqa: SLF001
    return load(reader._spark, path, _given(asked), columns=columns)  # noqa: SLF001


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
    asked = _asked(writer)
    save(writer._df, path, asked.mode, _given(asked))  # noqa: SLF001


def _refuse(_: Any, table: str, *__: Any, **___: Any) -> Any:
    raise Unsupported(
        f"{table}: tables of the format {FORMAT} are written by their path",
        hint='df.write.format("tidelock").mode("append").save(uri)',
    )


def _given(asked: _Asked) -> dict[str, object]:
    return {key: value for key, value in asked.options.items() if value is not None}


def _names(spark: SparkSession, schema: Any) -> list[str]:
    """Return the columns of a schema that a user gave, as text or as a struct."""
    if isinstance(schema, str):
        return spark.createDataFrame([], schema).columns
    names: list[str] = schema.names
    return names


def _asked(self: Any) -> _Asked:
    found: _Asked | None = self.__dict__.get(_ASKED)
    if found is None:
        found = self.__dict__[_ASKED] = _Asked()
    return found
