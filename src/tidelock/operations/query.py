"""Checks read arguments and turns them into scans: file slices, columns, filters and times."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.core.errors import DataCorrupt, InvalidInput, Unsupported
from tidelock.execution.filegroup.filtering import RowFilter
from tidelock.execution.filegroup.merge import Merger, MergeRule
from tidelock.execution.filegroup.read import BATCH_ROWS
from tidelock.execution.local.read import Scan
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.partitions import list_files, list_partitions, metadata_key, partition_values
from tidelock.hudi.properties import KeyGenerator, TableProperties
from tidelock.hudi.schema import META_COLUMNS, arrow_schema, parse_schema, with_meta, without_meta
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.instant import format_time, query_time

Condition = tuple[str, str, Any]
Filter: TypeAlias = pc.Expression | Condition | Sequence[Condition]
"""An Arrow expression, or one or more conditions that must all hold."""

_OPERATORS: Final[dict[str, Callable[[pc.Expression, Any], pc.Expression]]] = {
    "=": lambda field, value: field == value,
    "==": lambda field, value: field == value,
    "!=": lambda field, value: field != value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
}
_SETS: Final = ("in", "not in")
_NULLS: Final = ("is null", "is not null")


def row_filter_of(given: Filter, schema: pa.Schema) -> RowFilter:
    """Return the filter that a user gave. Raises: `InvalidInput`."""
    if isinstance(given, pc.Expression):
        return RowFilter.of(given, schema)
    several = isinstance(given, Collection) and not isinstance(given, str)
    conditions: list[Any] = [given] if _is_condition(given) else list(given) if several else []
    if not conditions or not all(_is_condition(each) for each in conditions):
        raise InvalidInput(
            f"filter: expected an Arrow expression or conditions, got {given!r}",
            hint='use for example ("amount", ">", 10)',
        )
    whole: pc.Expression | None = None
    for name, operator, value in conditions:
        part = _expression(name, operator, value, schema)
        whole = part if whole is None else whole & part
    return RowFilter.of(whole, schema)


def prune_partitions(
    slices: Sequence[FileSlice], row_filter: RowFilter, properties: TableProperties
) -> tuple[FileSlice, ...]:
    """Return the slices without those of partitions that the filter excludes."""
    paths = sorted({piece.partition for piece in slices})
    if properties.key_generator not in (KeyGenerator.SIMPLE, KeyGenerator.COMPLEX) or not paths:
        return tuple(slices)
    known = [_partition_expression(path, row_filter, properties) for path in paths]
    if all(each is None for each in known):
        return tuple(slices)
    possible = {path for path, yes in zip(paths, row_filter.may_match(known), strict=True) if yes}
    return tuple(piece for piece in slices if piece.partition in possible)


def _partition_expression(
    path: str, row_filter: RowFilter, properties: TableProperties
) -> pc.Expression | None:
    values = partition_values(
        properties.partition_fields,
        path,
        hive_style=properties.hive_style,
        url_encode=properties.url_encode,
    )
    found: pc.Expression | None = None
    for name, text in (values or {}).items():
        # The default partition holds both nulls and empty strings, so its value is unknown.
        if text is None or name not in row_filter.columns:
            continue
        kind, kinds = row_filter.schema.field(name).type, pa.types
        # Only these values can be parsed back from the path.
        if not (kinds.is_string(kind) or kinds.is_integer(kind) or kinds.is_date32(kind)):
            continue
        try:
            value = pa.scalar(text).cast(kind)
        except pa.ArrowInvalid:
            continue
        same = pc.field(name) == value
        found = same if found is None else found & same
    return found


def _is_condition(given: object) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) == 3
        and all(isinstance(part, str) for part in given[:2])
    )


def _expression(name: str, operator: str, value: Any, schema: pa.Schema) -> pc.Expression:
    if name not in schema.names:
        raise InvalidInput(
            f"filter: unknown column {name!r}", hint=f"the columns are {', '.join(schema.names)}"
        )
    field, word = pc.field(name), operator.strip().lower()
    if word in _NULLS:
        return field.is_null() if word == "is null" else field.is_valid()
    try:
        if word in _SETS:
            if isinstance(value, str | bytes) or not isinstance(value, Collection):
                raise InvalidInput(
                    f"filter: {name} {word}: expected a list of values, got {value!r}",
                    hint=f"use [{value!r}]",
                )
            inside = field.isin(pa.array(list(value), schema.field(name).type))
            return inside if word == "in" else ~inside & field.is_valid()
        if word not in _OPERATORS:
            known = ", ".join([*_OPERATORS, *_SETS, *_NULLS])
            raise InvalidInput(f"filter: unknown operator {operator!r}", hint=f"use one of {known}")
        return _OPERATORS[word](field, _scalar(value, schema.field(name).type))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInput(
            f"filter: {value!r} does not match the type of column {name}: {error}"
        ) from error


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return the value as the column's type, or with its own type if the cast is lossy."""
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.scalar(value)


_PARTITIONS_SHOWN: Final = 8


def snapshot_scan(
    snapshot: TableSnapshot,
    *,
    columns: Sequence[str] | None = None,
    partitions: Collection[str] | None = None,
    as_of: str | datetime | None = None,
    read_optimized: bool = False,
    meta_columns: bool = False,
    merger: Merger | None = None,
    batch_rows: int = BATCH_ROWS,
    filter: Filter | None = None,  # noqa: A002 - the usual name
) -> Scan:
    """Return the scan of a table's rows, now or at an earlier time.

    Raises: `InvalidInput`, `DataCorrupt`, `Unsupported`.
    """
    if batch_rows < 1:
        raise InvalidInput(
            f"batch_rows: expected a positive integer, got {batch_rows}", hint="use 1 or more"
        )
    time = None if as_of is None else point_in_time(as_of)
    schema = readable_schema(snapshot, time)
    chosen = select_columns(schema, columns, meta_columns=meta_columns, where=snapshot.store.uri)
    check_partitions(snapshot, partitions)
    slices = snapshot.verified_slices(time, partitions, read_optimized=read_optimized)
    check_partitions_exist(snapshot, partitions, {piece.partition for piece in slices})
    rule = MergeRule.of(snapshot.properties, merger=merger)
    _check_schema(snapshot, schema, slices)
    _check_keys(snapshot, slices)
    rows = None if filter is None else row_filter_of(filter, schema)
    if rows is not None:
        slices = prune_partitions(slices, rows, snapshot.properties)
    return Scan(
        snapshot.store,
        slices,
        schema,
        rule,
        chosen,
        as_of=None if time is None else snapshot.as_of_completion(time),
        batch_rows=batch_rows,
        row_filter=rows,
    )


def changes_scan(
    snapshot: TableSnapshot,
    since: str | datetime,
    until: str | datetime | None = None,
    *,
    columns: Sequence[str] | None = None,
    meta_columns: bool = False,
    merger: Merger | None = None,
) -> Scan:
    """Return the scan of the rows that commits completed in (since, until] inserted or updated.

    Raises: `NotFound` if files of the range have been cleaned, and the errors of `snapshot_scan`.
    """
    if not snapshot.properties.populates_meta_fields:
        raise Unsupported(
            f"{snapshot.store.uri}: cannot read changes of a table without meta columns"
            " (hoodie.populate.meta.fields=false)",
            hint="read a snapshot instead",
        )
    schema = readable_schema(snapshot)
    chosen = select_columns(schema, columns, meta_columns=meta_columns, where=snapshot.store.uri)
    end = None if until is None else point_in_time(until)
    changes = snapshot.slices_between(point_in_time(since), end)
    rule = MergeRule.of(snapshot.properties, merger=merger)
    _check_schema(snapshot, schema, changes.slices)
    return Scan(snapshot.store, changes.slices, schema, rule, chosen, commit_times=changes.instants)


def readable_schema(snapshot: TableSnapshot, as_of: str | None = None) -> pa.Schema:
    """Return the schema of reads: the meta columns, then the table's columns.

    Every column is nullable, because rows may predate a column. A table that was created without a
    schema and never written has only meta columns. Raises: `DataCorrupt`.
    """
    text = snapshot.schema_json(as_of) or snapshot.schema_json()
    if text is None:
        return with_meta(pa.schema([]))
    where = snapshot.store.uri
    found = arrow_schema(parse_schema(text, where=where), where=where)
    return with_meta(pa.schema([field.with_nullable(nullable=True) for field in found]))


def select_columns(
    schema: pa.Schema, columns: Sequence[str] | None, *, meta_columns: bool, where: str
) -> list[str]:
    """Return the columns to read: `columns`, or all columns if it is None.

    With `meta_columns` the meta columns come first. Raises: `InvalidInput`.
    """
    lead = list(META_COLUMNS) if meta_columns else []
    if columns is None:
        return [*lead, *without_meta(schema).names]
    given: object = columns
    is_text, is_list = isinstance(given, str), isinstance(given, Collection)
    if is_text or not is_list or not all(isinstance(name, str) for name in columns):
        hint = f"use [{columns!r}]" if is_text else 'use ["id"]'
        raise InvalidInput(f"columns: expected a list of names, got {columns!r}", hint=hint)
    if not columns:
        raise InvalidInput(
            "columns: expected at least one name, got none", hint="omit it to read all columns"
        )
    for name in columns:
        if name not in schema.names:
            near = difflib.get_close_matches(name, schema.names, n=1)
            every = ", ".join(without_meta(schema).names)
            raise InvalidInput(
                f"{where} has no column {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"the columns are {every}",
            )
        if list(columns).count(name) > 1:
            raise InvalidInput(f"columns: {name!r} occurs twice", hint="name each column once")
    return [*lead, *(name for name in columns if name not in lead)]


def check_partitions(snapshot: TableSnapshot, partitions: Collection[str] | None) -> None:
    """Check that `partitions` is a list of paths, empty for a table without partitions."""
    given: object = () if partitions is None else partitions
    if isinstance(given, str) or not isinstance(given, Collection):
        hint = f"use [{given!r}]" if isinstance(given, str) else 'use ["day=2024-01-31"]'
        raise InvalidInput(f"partitions: expected a list of paths, got {given!r}", hint=hint)
    unexpected = next((each for each in given if not isinstance(each, str)), None)
    if unexpected is not None:
        raise InvalidInput(
            f"partitions: expected strings, got {unexpected!r}",
            hint="use partition paths as `files` returns them",
        )
    if partitions and any(partitions) and not snapshot.properties.is_partitioned:
        raise InvalidInput(f"{snapshot.store.uri} is not partitioned", hint="omit partitions")
    check_partitions_exist(snapshot, [each for each in partitions or () if not each])


def check_deletable(snapshot: TableSnapshot, partitions: Collection[str]) -> None:
    """Check that a table has partitions and that `partitions` are paths. Raises: `InvalidInput`."""
    if not snapshot.properties.is_partitioned:
        raise InvalidInput(
            f"{snapshot.store.uri} is not partitioned",
            hint="use insert_overwrite_table with no rows",
        )
    check_partitions(snapshot, partitions)


def check_partitions_exist(
    snapshot: TableSnapshot, partitions: Collection[str] | None, existing: Collection[str] = ()
) -> None:
    """Check that partitions exist. Raises: `InvalidInput` with the partitions of the table.

    `existing` are known to exist. An empty partition exists as long as its metadata file does.
    """
    if not snapshot.properties.is_partitioned:
        return
    store = snapshot.store
    for partition in sorted(set(partitions or ()).difference(existing)):
        if partition and store.head(metadata_key(partition)) is not None:
            continue
        written = {file.partition for file in list_files(store, partitioned=True)}
        every = sorted(written.union(list_partitions(store)))
        near = difflib.get_close_matches(partition, every, n=1) or [
            each
            for each in every
            if each.endswith(f"={partition}") or partition.endswith(f"={each}")
        ]
        shown = ", ".join(every[:_PARTITIONS_SHOWN]) + (", …" if every[_PARTITIONS_SHOWN:] else "")
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidInput(
            f"{store.uri} has no partition {partition!r}",
            hint=f"{meant}its {len(every)} partitions are: {shown}" if every else "it has none yet",
        )


def point_in_time(at: str | datetime) -> str:
    """Return a time as an instant: from 17 or 14 digits, an ISO time, or a datetime.

    A time without an offset is in UTC. Raises: `InvalidInput`.
    """
    if isinstance(at, str):
        if re.fullmatch(r"\d+", at, re.ASCII):
            return query_time(at)
        try:
            at = datetime.fromisoformat(at.strip())
        except ValueError:
            return query_time(str(at))  # raises, naming the accepted formats
    if not isinstance(at, datetime):
        raise InvalidInput(
            f"expected a time, got {at!r}", hint="use 17 or 14 digits, an ISO time or a datetime"
        )
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    # Integer arithmetic: floating-point seconds would round some times up.
    return format_time((since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000)


def _check_schema(
    snapshot: TableSnapshot, schema: pa.Schema, slices: Collection[FileSlice]
) -> None:
    if slices and not without_meta(schema).names:
        raise DataCorrupt(
            f"{snapshot.store.uri} has rows, but no schema in its commits or properties",
            hint="set hoodie.table.create.schema to the table's Avro schema",
        )


def _check_keys(snapshot: TableSnapshot, slices: Collection[FileSlice]) -> None:
    """Check that rows in log files have keys; without them they cannot be merged."""
    logged = next((piece for piece in slices if piece.logs), None)
    if logged is not None and not snapshot.properties.populates_meta_fields:
        raise Unsupported(
            f"{snapshot.store.uri}/{logged.logs[0].key}: rows without record keys cannot be merged",
            hint="read it with read_optimized=True, or compact the table with its writer",
        )
