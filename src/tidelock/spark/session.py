"""`tl.enable(spark)` and `tl.sql(spark, "...")`: Tidelock tables in a Spark session.

A Python data source of Spark cannot request a shuffle or prune columns, so `enable` patches the
readers and writers of PySpark instead. SQL and Scala do not go through PySpark, so `enable` also
registers a plain, read-only data source for them. Streaming reads use that data source too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tidelock.core.errors import InvalidInput, MissingExtra, Unsupported
from tidelock.operations.config import PARTITION_PATH_FIELDS
from tidelock.spark.datasource.read import load
from tidelock.spark.datasource.write import save
from tidelock.spark.options import FORMAT
from tidelock.spark.streaming.sink import start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_OPTIONS: Final = "_tidelock_options"
_PATCHED: Final = "_tidelock_patched"
_ORIGINAL_SQL: Final = "_tidelock_spark_sql"

_enabled_sessions: set[str] = set()
_patched_sessions: set[str] = set()
"""Session UUIDs: several Python objects may share one Spark session."""

Action = Callable[..., Any]
"""A terminal method such as `load` or `save`: takes the builder, then the original arguments."""


def enable(spark: SparkSession, *, sql: bool = True) -> SparkSession:
    """Enable `format("tidelock")` for the reads and writes of a session; return the session.

        spark = tl.enable(SparkSession.builder.getOrCreate())
        df.write.format("tidelock").options(**hudi_options).mode("append").save(uri)
        stream.writeStream.format("tidelock").option("checkpointLocation", path).start(uri)

    With `sql`, `spark.sql` supports Tidelock tables too: see docs/sql.md.

    On a cluster, the package is shipped to the executors; they need only its dependencies. Calling
    this again is safe. Raises: `MissingExtra` without PySpark, `Unsupported` for Spark Connect.
    """
    _require_pyspark()
    from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tidelock.execution.spark.session import check_session, ship_package
    from tidelock.spark.datasource.python_source import PUSHDOWN, MergedSource, TidelockSource

    sources = check_session(spark).dataSource
    sources.register(TidelockSource)
    sources.register(MergedSource)
    spark.conf.set(PUSHDOWN, "true")
    ship_package(spark)
    patch_pyspark(DataFrameReader, {"load": _load})
    patch_pyspark(DataFrameWriter, {"save": _save, "saveAsTable": _reject, "insertInto": _reject})
    streams: dict[str, Action] = {"start": _start, "toTable": _reject}
    patch_pyspark(DataStreamWriter, streams, defer_partition_by=True)
    if sql:
        patch_spark_sql(spark)
    return spark


def sql(
    spark: SparkSession, text: str, args: Mapping[str, Any] | Sequence[Any] | None = None
) -> DataFrame:
    """Execute one SQL statement and return its rows.

        tl.sql(spark, "MERGE INTO orders USING changes c ON orders.id = c.id WHEN MATCHED ...")

    Statements on Tidelock tables are executed here, all others by Spark. A statement that changes a
    table returns one row: the operation, its instant, and the rows inserted, updated and deleted.
    `args` are the parameter values: `:name` from a mapping, `?` from a list.

    Raises: `InvalidInput` with the position of a mistake, `NotFound`, `Unsupported`,
    `MissingExtra`, and the errors of reads and writes.
    """
    _require_pyspark()
    from tidelock.execution.spark.session import check_session
    from tidelock.spark.sql.execute import execute

    if _session_uuid(check_session(spark)) not in _enabled_sessions:
        enable(spark, sql=False)
        _enabled_sessions.add(_session_uuid(spark))
    return execute(spark, text, _original_sql(spark), args=args)


@dataclass(slots=True)
class BuilderOptions:
    """The settings that calls on one reader or writer have made so far."""

    format: str | None = None
    options: dict[str, object] = field(default_factory=dict)
    mode: str | None = None
    schema: Any = None
    partitions: tuple[str, ...] | None = None

    @property
    def present(self) -> dict[str, object]:
        """The options that have a value."""
        return {key: value for key, value in self.options.items() if value is not None}

    @property
    def write_options(self) -> dict[str, object]:
        """The options that have a value, with the columns of `partitionBy`."""
        if self.partitions is None:
            return self.present
        return {**self.present, PARTITION_PATH_FIELDS.key: ",".join(self.partitions)}


def builder_options(builder: Any) -> BuilderOptions:
    """Return the recorded settings of a reader or writer."""
    found: BuilderOptions | None = builder.__dict__.get(_OPTIONS)
    if found is None:
        found = builder.__dict__[_OPTIONS] = BuilderOptions()
    return found


def patch_pyspark(
    builder: type, actions: Mapping[str, Action], *, defer_partition_by: bool = False
) -> None:
    """Patch a reader or writer class of PySpark, once.

    The class records the calls made on it, and dispatches its terminal methods to `actions` if the
    format is Tidelock's. With `defer_partition_by`, the original `partitionBy` is called only when
    the format is known to be another one: a `foreachBatch` stream cannot be partitioned.
    """
    if builder.__dict__.get(_PATCHED):
        return
    for name in ("format", "option", "options", "mode", "outputMode", "schema"):
        if hasattr(builder, name):
            setattr(builder, name, _recording(name, getattr(builder, name)))
    partition_by = getattr(builder, "partitionBy", None)
    if partition_by is not None:
        patched = _recording_partitions(partition_by, call_original=not defer_partition_by)
        setattr(builder, "partitionBy", patched)  # noqa: B010 - as above
    deferred = partition_by if defer_partition_by else None
    for name, action in actions.items():
        setattr(builder, name, _dispatching(getattr(builder, name), action, deferred))
    setattr(builder, _PATCHED, True)


def _recording(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        recorded = builder_options(self)
        match name:
            case "format":
                recorded.format = args[0] if args else kwargs["source"]
            case "option":
                key, value = (*args, *kwargs.values())
                recorded.options[key] = value
            case "options":
                recorded.options.update(kwargs)
            case "schema":
                recorded.schema = args[0] if args else kwargs["schema"]
            case _:
                (recorded.mode,) = (*args, *kwargs.values())
        return result

    return call


def _recording_partitions(
    original: Callable[..., Any], *, call_original: bool
) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, *names: Any) -> Any:
        columns = names[0] if len(names) == 1 and isinstance(names[0], list | tuple) else names
        builder_options(self).partitions = tuple(columns)
        return original(self, *names) if call_original else self

    return call


def _dispatching(
    original: Callable[..., Any], action: Action, partition_by: Callable[..., Any] | None
) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = kwargs.get("format")
        if named is not None:
            self.format(named)
        recorded = builder_options(self)
        if (recorded.format or "").lower() == FORMAT:
            return action(self, *args, **{key: kwargs[key] for key in kwargs if key != "format"})
        if partition_by is not None and recorded.partitions is not None:
            partition_by(self, *recorded.partitions)
        return original(self, *args, **kwargs)

    return call


def _load(
    reader: Any, path: str | list[str] | None = None, schema: Any = None, **options: Any
) -> Any:
    if isinstance(path, list):
        if len(path) != 1:
            raise InvalidInput(
                f"load: expected one path, got {len(path)}", hint="load one table at a time"
            )
        (path,) = path
    if schema is not None:
        reader.schema(schema)
    reader.options(**options)
    recorded = builder_options(reader)
    spark = reader._spark  # noqa: SLF001 - PySpark has no public accessor
    columns = None if recorded.schema is None else _column_names(spark, recorded.schema)
    return load(spark, path, recorded.present, columns=columns)


def _save(
    writer: Any,
    path: str | None = None,
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: N803 - the parameter name of PySpark
    **options: Any,
) -> Any:
    if mode is not None:
        writer.mode(mode)
    if partitionBy is not None:
        writer.partitionBy(partitionBy)
    writer.options(**options)
    recorded = builder_options(writer)
    save(writer._df, path, recorded.mode, recorded.write_options)  # noqa: SLF001


def _start(writer: Any, path: str | None = None, **options: Any) -> Any:
    for name in ("outputMode", "partitionBy", "queryName"):
        value = options.pop(name, None)
        if value is not None:
            getattr(writer, name)(value)
    writer.options(**options)
    recorded = builder_options(writer)
    return start(writer, path, recorded.mode, recorded.write_options)


def _reject(_: Any, table: str, *__: Any, **___: Any) -> Any:
    raise Unsupported(
        f"{table}: tables of format {FORMAT} can only be written by path",
        hint='df.write.format("tidelock").mode("append").save(uri)',
    )


def _column_names(spark: SparkSession, schema: Any) -> list[str]:
    """Return the column names of a user's schema, given as DDL text or as a struct."""
    if isinstance(schema, str):
        return spark.createDataFrame([], schema).columns
    names: list[str] = schema.names
    return names


def patch_spark_sql(spark: SparkSession) -> None:
    """Make `spark.sql` of this session support Tidelock tables; other sessions are unchanged.

    Statements that do not involve Tidelock tables go to Spark unchanged, and so do their errors.
    """
    session_class: Any = type(spark)
    if not hasattr(session_class, _ORIGINAL_SQL):
        setattr(session_class, _ORIGINAL_SQL, session_class.sql)
        session_class.sql = _patched_sql(session_class.sql)
    _patched_sessions.add(_session_uuid(spark))


def _patched_sql(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    @wraps(original)
    def sql(self: Any, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:  # noqa: N803
        if kwargs or _session_uuid(self) not in _patched_sessions:
            return original(self, sqlQuery, args, **kwargs)
        from tidelock.spark.sql.execute import execute

        return execute(self, sqlQuery, _original_sql(self), args=args, strict=False)

    return sql


def _session_uuid(spark: Any) -> str:
    return str(spark._jsparkSession.sessionUUID())  # noqa: SLF001 - PySpark has no public accessor


def _original_sql(spark: SparkSession) -> Callable[..., DataFrame]:
    """Return the unpatched `spark.sql`."""
    original = getattr(type(spark), _ORIGINAL_SQL, type(spark).sql)

    def run(text: str, args: Any = None) -> DataFrame:
        found: DataFrame = original(spark, text, args)
        return found

    return run


def _require_pyspark() -> None:
    if find_spec("pyspark") is None:
        raise MissingExtra("pyspark is not installed", hint="pip install 'tidelock[spark]'")
