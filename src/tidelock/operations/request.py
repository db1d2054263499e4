"""Write requests: converts user input to Arrow tables, checks it, and describes the write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import types as pt

from tidelock.core.errors import ConfigInvalid, InvalidInput, MissingExtra
from tidelock.execution.engine import WriteEngine
from tidelock.execution.local.read import Scan
from tidelock.hudi.keys import KeyRule
from tidelock.hudi.properties import TableType
from tidelock.hudi.schema import (
    IS_DELETED,
    META_COLUMNS,
    Evolution,
    EvolutionRule,
    evolve,
    missing_columns,
)
from tidelock.hudi.snapshot import EVOLVED_SCHEMA_KEY, TableSnapshot
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import SCHEMA_KEY, OperationType
from tidelock.operations.config import NULL_FOR_MISSING
from tidelock.storage.uri import StoreAddress
from tidelock.txn.app_transactions import AppTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelock.execution.spark.read import MergeFrame

INSERTS: Final = (OperationType.INSERT, OperationType.BULK_INSERT)
_OVERWRITES_WITH_ROWS: Final = (
    OperationType.INSERT_OVERWRITE,
    OperationType.INSERT_OVERWRITE_TABLE,
)
OVERWRITES: Final = (*_OVERWRITES_WITH_ROWS, OperationType.DELETE_PARTITION)
_WITH_ROWS: Final = (OperationType.UPSERT, *INSERTS, *_OVERWRITES_WITH_ROWS)


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write to run.

    `rows` is the input of the write engine, None for `delete_partition`. `anywhere` marks keys to
    delete without their partition. `partitions` are the partitions to delete or replace.
    `metadata` is stored in the commit, in addition to the schema. `reads` marks rows that were
    computed from the table. `app_transaction` is the application's batch.

    `compute` returns the rows of a rewrite; it is called with a snapshot before each attempt.
    `session` is the Spark session of its frames. With `tombstones`, rows that have true in the
    tombstone column delete their key.
    """

    operation: OperationType
    rows: object | None = None
    anywhere: bool = False
    partitions: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    reads: bool = False
    app_transaction: AppTransaction | None = None
    compute: Callable[..., object] | None = None
    session: object | None = None
    tombstones: bool = False

    @property
    def name(self) -> str:
        """The operation as users write it."""
        return self.operation.value.lower()

    @property
    def deletes(self) -> bool:
        """Whether the rows are keys to delete."""
        return self.operation is OperationType.DELETE

    @property
    def overwrites(self) -> bool:
        """Whether file groups are replaced."""
        return self.operation in OVERWRITES

    @property
    def inserts(self) -> bool:
        """Whether every row is an insert."""
        return self.operation in INSERTS

    def action(self, table: TableType) -> Action:
        """Return the timeline action of the write in a table of this type."""
        if self.overwrites:
            return Action.REPLACE_COMMIT
        if table is TableType.MERGE_ON_READ:
            return Action.DELTA_COMMIT
        return Action.COMMIT


def operation_type(
    name: str, where: str, *, more: Sequence[OperationType] = (), others: Sequence[str] = ()
) -> OperationType:
    """Return the write operation with a name, one that takes rows or one of `more`.

    `others` are valid names that the caller handles. Raises: `ConfigInvalid` naming `where`.
    """
    known = {kind.value.lower(): kind for kind in (*_WITH_ROWS, *more)}
    if name not in known:
        expected = ", ".join([*known, *others])
        raise ConfigInvalid(f"{where}: unknown operation {name!r}", hint=f"use one of {expected}")
    return known[name]


_ACCEPTED: Final = (
    "use an Arrow table, record batch or reader, a pandas, polars or Spark frame, or a list of"
    " dictionaries"
)

_CONVERSION_ERRORS: Final = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    UnicodeError,
    OverflowError,
)


def arrow_table(data: object, known: pa.Schema) -> pa.Table:
    """Return `data` as a table without meta columns.

    Values of dictionaries, and columns of only nulls, get the types of the table's columns, which
    are `known`. Raises: `InvalidInput`.
    """
    table = _converted(data, known)
    twice = {name for name in table.column_names if table.column_names.count(name) > 1}
    if twice:
        raise InvalidInput(
            f"rows: the column {min(twice)!r} occurs twice", hint="rename one of them"
        )
    own = [name for name in META_COLUMNS if name in table.column_names]
    return _typed_nulls(_plain(table.drop_columns(own)), known)


def _converted(data: object, known: pa.Schema) -> pa.Table:
    try:
        if isinstance(data, pa.Table):
            return data
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data])
        if isinstance(data, pa.RecordBatchReader):
            return data.read_all()
        if isinstance(data, Sequence) and not isinstance(data, str | bytes):
            return _from_dictionaries(data, known)
        if isinstance(data, Mapping):
            return pa.table(dict(data))
        if type(data).__module__.partition(".")[0] == "pandas":
            return _from_pandas(data)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).read_all()
        if hasattr(data, "to_arrow"):
            return data.to_arrow()
    except _CONVERSION_ERRORS as error:
        raise InvalidInput(
            f"rows: cannot be converted to Arrow: {error}", hint=_ACCEPTED
        ) from error
    raise InvalidInput(f"rows: unsupported type {type(data).__name__}", hint=_ACCEPTED)


def _from_pandas(data: Any) -> pa.Table:
    """Return a frame's columns, and its index if it is named; other indexes are row numbers."""
    if not hasattr(data, "columns"):
        raise InvalidInput("rows: expected a pandas DataFrame, got a Series", hint=_ACCEPTED)
    names = [name for name in data.index.names if name is not None]
    if len(names) == len(data.index.names):
        twice = [name for name in names if name in data.columns]
        if twice:
            raise InvalidInput(
                f"rows: {twice[0]!r} is both a column and an index of the frame",
                hint="rename one of them, or drop the index with reset_index(drop=True)",
            )
        data = data.reset_index()
    unexpected = next((name for name in data.columns if not isinstance(name, str)), None)
    if unexpected is not None:
        raise InvalidInput(
            f"rows: expected column names to be strings, got {unexpected!r}",
            hint="rename the column: frame.columns = [...]",
        )
    return pa.Table.from_pandas(data, preserve_index=False)


def _from_dictionaries(rows: Sequence[Any], known: pa.Schema) -> pa.Table:
    unexpected = next((row for row in rows if not isinstance(row, Mapping)), None)
    if unexpected is not None:
        raise InvalidInput(f"rows: expected dictionaries, got {unexpected!r}", hint=_ACCEPTED)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _column([row.get(name) for row in rows], name, known) for name in names}
    return pa.table(columns) if columns else known.empty_table()


def _column(values: list[Any], name: str, known: pa.Schema) -> pa.Array:
    """Return values with the table's type if they match it, otherwise with their own type."""
    index = known.get_field_index(name)
    typed = None if index < 0 else _typed(values, known.field(index).type)
    if typed is not None:
        return typed
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError, OverflowError) as error:
        raise InvalidInput(f"column {name}: {error}", hint="use values of one type") from error


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """Return values as a type; None if they do not match, and the schema may have to widen."""
    try:
        typed = pa.array(values, kind)
        if not _has_integers(kind):
            return typed
        # Arrow silently truncates 0.5 to 0 for an integer type; a cast raises instead.
        inferred = pa.array(values)
        return inferred.cast(kind) if _truncates(inferred.type, kind) else typed
    except _CONVERSION_ERRORS:
        return None


def _has_integers(kind: pa.DataType) -> bool:
    if pt.is_nested(kind):
        return any(_has_integers(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pt.is_integer(kind))


def _truncates(inferred: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether fractions would be truncated to integers."""
    if pt.is_struct(inferred) and pt.is_struct(kind):
        types = {field.name: field.type for field in kind}
        return any(
            field.name in types and _truncates(field.type, types[field.name]) for field in inferred
        )
    if pt.is_list(inferred) and pt.is_list(kind):
        return _truncates(inferred.value_type, kind.value_type)
    return bool(pt.is_floating(inferred) and pt.is_integer(kind))


def _plain(table: pa.Table) -> pa.Table:
    """Return the table with types that files support: no dictionaries, views or large offsets."""
    schema = pa.schema([pa.field(f.name, _plain_type(f.type), f.nullable) for f in table.schema])
    return table if table.schema.equals(schema) else table.cast(schema)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pt.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_binary_view(kind):
        return pa.binary()
    if pt.is_large_list(kind) or pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pt.is_timestamp(kind) and kind.unit in ("s", "ns"):
        # Hudi's files have milliseconds and microseconds; Spark cannot read nanoseconds.
        return pa.timestamp("us", kind.tz)
    return kind


def _typed_nulls(table: pa.Table, known: pa.Schema) -> pa.Table:
    """Return the table with the known types for columns of only nulls."""
    for column in list(table.schema):
        if not pt.is_null(column.type):
            continue
        index, at = known.get_field_index(column.name), table.column_names.index(column.name)
        if index >= 0:
            nulls = pa.nulls(table.num_rows, known.field(index).type)
            table = table.set_column(at, known.field(index).with_nullable(nullable=True), nulls)
    return table


def evolved_schema(
    known: pa.Schema, incoming: pa.Schema, rule: EvolutionRule, *, where: str
) -> pa.Schema:
    """Return the table's schema after a write of rows with `incoming`. Raises: `InvalidInput`."""
    offered = pa.schema(
        # The table decides whether a column is nullable; in frames every column is.
        [
            pa.field(f.name, f.type, nullable=_may_be_null(known, f.name))
            for f in incoming
            # A new column of only nulls has no type yet.
            if f.name in known.names or not pt.is_null(f.type)
        ]
    )
    try:
        return evolve(known, offered, rule if known.names else None)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error.message}", hint=error.hint) from None


def without_missing(
    found: pa.Schema,
    incoming: pa.Schema,
    rule: EvolutionRule,
    *,
    ordered_by: Sequence[str],
    null_for_missing: bool,
    where: str,
) -> pa.Schema:
    """Return the schema for rows that lack columns, which become nullable.

    As in Hudi, such rows are accepted only with `null_for_missing`: the columns are written as
    null. Raises: `InvalidInput` naming the missing columns.
    """
    if not all(_has(incoming, name) for name in rule.fixed):
        return found  # the key generator reports the column
    lost = next((name for name in ordered_by if not _has(incoming, name)), None)
    if lost is not None:
        raise InvalidInput(
            f"{where}: the rows have no ordering column {lost}",
            hint=f"add the column {lost}, which decides between rows of one key",
        )
    missing = [name for name in missing_columns(found, incoming) if name != IS_DELETED]
    if missing and not null_for_missing:
        raise InvalidInput(
            f"{where}: the rows have no column {', '.join(missing)}",
            hint=f"add the missing columns, or set {NULL_FOR_MISSING.key}=true to write null,"
            " which also overwrites existing values",
        )
    if rule.mode is Evolution.STRICT:
        return found
    relaxed = [field.with_nullable(field.nullable or field.name in missing) for field in found]
    return pa.schema(relaxed)


def _has(schema: pa.Schema, name: str) -> bool:
    return name in schema.names or name.partition(".")[0] in schema.names


def _may_be_null(known: pa.Schema, name: str) -> bool:
    index = known.get_field_index(name)
    return index < 0 or bool(known.field(index).nullable)


def check_metadata(metadata: Mapping[str, object]) -> None:
    """Check the extra metadata of a commit. Raises: `InvalidInput`."""
    for name, value in metadata.items():
        if name in (SCHEMA_KEY, EVOLVED_SCHEMA_KEY):
            raise InvalidInput(
                f"metadata: the key {name!r} is reserved for the table's schema", hint="rename it"
            )
        text: object
        for text in (name, value):
            if not isinstance(text, str) or not _is_text(text):
                raise InvalidInput(f"metadata: expected strings of valid Unicode, got {text!r}")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def key_table(keys: object, rule: KeyRule, known: pa.Schema) -> tuple[pa.Table, bool]:
    """Return the keys to delete as a table, and whether they lack their partition.

    `keys` are rows with the key columns, or a list of values for a key of one column.
    """
    listed = isinstance(keys, Sequence) and not isinstance(keys, str | bytes)
    if isinstance(keys, str | bytes | int):
        raise InvalidInput(f"keys: expected a list, got {keys!r}", hint=f"use [{keys!r}]")
    if listed and not any(isinstance(key, Mapping) for key in keys):  # type: ignore[attr-defined]
        if len(rule.keys) != 1:
            raise InvalidInput(
                f"keys: expected the columns {', '.join(rule.keys)}, got plain values",
                hint="use a dictionary for each key",
            )
        column = _column(list(keys), rule.keys[0], known)  # type: ignore[call-overload]
        table = pa.table({rule.keys[0]: column})
    else:
        table = arrow_table(keys, known)
    return table, _lacks_partition(rule, table.column_names)


def is_frame(data: object) -> bool:
    """Return whether `data` is a Spark DataFrame, without importing Spark."""
    return type(data).__module__.startswith("pyspark.sql.")


def session_of(data: object) -> SparkSession | None:
    """Return the session of a Spark DataFrame; None for other data."""
    return data.sparkSession if is_frame(data) else None  # type: ignore[attr-defined]


def session_engine(session: object, uri: str, options: Mapping[str, object]) -> WriteEngine:
    """Return the engine that writes the DataFrames of a session."""
    from tidelock.execution.spark.session import check_session
    from tidelock.execution.spark.write import SparkWriter

    spark: SparkSession = session  # type: ignore[assignment]
    return SparkWriter(check_session(spark), StoreAddress(uri, dict(options)))


def frame_keys(frame: object, rule: KeyRule) -> tuple[object, bool]:
    """Return a DataFrame of keys to delete, and whether they lack their partition.

    Raises: `InvalidInput` for a missing key column.
    """
    columns: list[str] = frame.columns  # type: ignore[attr-defined]
    for name in rule.keys:
        if name not in columns and name.partition(".")[0] not in columns:
            raise InvalidInput(
                f"record key column {name!r} does not exist",
                hint=f"the columns are {', '.join(columns)}",
            )
    return frame, _lacks_partition(rule, columns)


def _lacks_partition(rule: KeyRule, columns: Collection[str]) -> bool:
    return not {name.partition(".")[0] for name in rule.partitions} <= set(columns)


def scan_frame(
    spark: SparkSession,
    snapshot: TableSnapshot,
    scan: Scan,
    options: Mapping[str, object],
    *,
    native: bool = True,
    merging: MergeFrame | None = None,
) -> DataFrame:
    """Return a scan as a Spark DataFrame. Raises: `MissingExtra`, `Unsupported`."""
    if find_spec("pyspark") is None:
        raise MissingExtra("Spark is not installed", hint="pip install 'tidelock[spark]'")
    from tidelock.execution.spark.read import read_frame
    from tidelock.execution.spark.session import check_session

    address = StoreAddress(snapshot.store.uri, dict(options))
    return read_frame(check_session(spark), snapshot, scan, address, native=native, merging=merging)
