"""From what a user asks to what the engine reads: slices, columns and times, all checked first."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from tidelock.base.errors import DataCorrupt, InvalidInput, Unsupported
from tidelock.engine.local import Scan
from tidelock.kernel.basefile import BATCH_ROWS
from tidelock.kernel.merge import Merger, MergeRule
from tidelock.operation.filters import Filter, row_filter, without_impossible
from tidelock.table.filegroup.listing import list_files, list_partitions
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.partition import metadata_key
from tidelock.table.schema.avro import arrow_schema, parse_schema
from tidelock.table.schema.meta import META_COLUMNS, with_meta, without_meta
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.instant import format_time, query_time

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
    passing: Filter | None = None,
) -> Scan:
    """Return the read of a table's rows, now or as of a moment of its past.

    Raises: `InvalidInput`, `DataCorrupt`, `Unsupported`.
    """
    if batch_rows < 1:
        raise InvalidInput(f"batch_rows = {batch_rows} is not positive", hint="leave it out")
    moment = None if as_of is None else point_in_time(as_of)
    schema = readable_schema(snapshot, moment)
    chosen = chosen_columns(schema, columns, meta_columns=meta_columns, where=snapshot.store.uri)
    check_partitions(snapshot, partitions)
    slices = snapshot.whole_slices(moment, partitions, read_optimized=read_optimized)
    check_known(snapshot, partitions, {piece.partition for piece in slices})
    rule = MergeRule.of(snapshot.properties, merger=merger)
    _check_schema(snapshot, schema, slices)
    _check_keys(snapshot, slices)
    rows = None if passing is None else row_filter(passing, schema)
    if rows is not None:
        slices = without_impossible(slices, rows, snapshot.properties)
    return Scan(
        snapshot.store,
        slices,
        schema,
        rule,
        chosen,
        as_of=None if moment is None else snapshot.moment(moment),
        batch_rows=batch_rows,
        passing=rows,
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
    """Return the read of the rows that writes completed in (since, until] inserted or updated.

    Raises: `NotFound` if files of the range have been cleaned, and what `snapshot_scan` raises.
    """
    if not snapshot.properties.populates_meta_fields:
        raise Unsupported(
            f"{snapshot.store.uri} does not say which write made a row, so changes are not known",
            hint="changes need a table with hoodie.populate.meta.fields=true; read a snapshot",
        )
    schema = readable_schema(snapshot)
    chosen = chosen_columns(schema, columns, meta_columns=meta_columns, where=snapshot.store.uri)
    end = None if until is None else point_in_time(until)
    changes = snapshot.slices_between(point_in_time(since), end)
    rule = MergeRule.of(snapshot.properties, merger=merger)
    _check_schema(snapshot, schema, changes.slices)
    return Scan(snapshot.store, changes.slices, schema, rule, chosen, commit_times=changes.instants)


def readable_schema(snapshot: TableSnapshot, as_of: str | None = None) -> pa.Schema:
    """Return the schema that rows are read under: the meta columns, then the user's.

    Every column is nullable, since rows may be older than a column. A table that was never written
    and was created without a schema has no columns of the user's.

    Raises: `DataCorrupt`.
    """
    text = snapshot.schema_json(as_of) or snapshot.schema_json()
    if text is None:
        return with_meta(pa.schema([]))
    where = snapshot.store.uri
    found = arrow_schema(parse_schema(text, where=where), where=where)
    return with_meta(pa.schema([field.with_nullable(nullable=True) for field in found]))


def chosen_columns(
    schema: pa.Schema, columns: Sequence[str] | None, *, meta_columns: bool, where: str
) -> list[str]:
    """Return the columns to read: all of the user's without `columns`, else exactly these.

    With `meta_columns` the meta columns lead them. Raises: `InvalidInput`.
    """
    lead = list(META_COLUMNS) if meta_columns else []
    if columns is None:
        return [*lead, *without_meta(schema).names]
    if isinstance(columns, str):
        raise InvalidInput(f"columns = {columns!r} is a string", hint=f"give [{columns!r}]")
    given: object = columns
    if not isinstance(given, Collection) or not all(isinstance(name, str) for name in given):
        raise InvalidInput(f"columns = {columns!r} is no list of names", hint='give ["id"]')
    if not columns:
        raise InvalidInput("no column was chosen", hint="leave columns out to read all of them")
    for name in columns:
        if name not in schema.names:
            near = difflib.get_close_matches(name, schema.names, n=1)
            every = ", ".join(without_meta(schema).names)
            raise InvalidInput(
                f"{where} has no column {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"the columns are {every}",
            )
        if list(columns).count(name) > 1:
            raise InvalidInput(f"the column {name!r} was chosen twice")
    return [*lead, *(name for name in columns if name not in lead)]


def check_partitions(snapshot: TableSnapshot, partitions: Collection[str] | None) -> None:
    """Refuse what is no list of partition paths, or a list for a table without partitions."""
    given: object = () if partitions is None else partitions
    if isinstance(partitions, str):
        raise InvalidInput(
            f"partitions = {partitions!r} is a string", hint=f"give [{partitions!r}]"
        )
    if not isinstance(given, Collection):
        raise InvalidInput(f"partitions = {given!r} is no list", hint='give ["day=2024-01-31"]')
    strange = next((each for each in given if not isinstance(each, str)), None)
    if strange is not None:
        raise InvalidInput(
            f"partitions has {strange!r}, which is no string",
            hint="give partition paths, as `files` shows them",
        )
    if partitions and any(partitions) and not snapshot.properties.is_partitioned:
        raise InvalidInput(f"{snapshot.store.uri} is not partitioned", hint="leave partitions out")
    check_known(snapshot, [each for each in partitions or () if not each])


def check_known(
    snapshot: TableSnapshot, partitions: Collection[str] | None, there: Collection[str] = ()
) -> None:
    """Refuse partitions that the table does not have, and name those it has.

    `there` are known to be. One that has lost all its rows is no error while its folder is there.
    """
    if not snapshot.properties.is_partitioned:
        return
    store = snapshot.store
    for partition in sorted(set(partitions or ()).difference(there)):
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
    """Return a moment as an instant's time: from 17 or 14 digits, an ISO time, or a datetime.

    Without an offset it is in UTC, as timelines are. Raises: `InvalidInput`.
    """
    if isinstance(at, str):
        if re.fullmatch(r"\d+", at, re.ASCII):
            return query_time(at)
        try:
            at = datetime.fromisoformat(at.strip())
        except ValueError:
            return query_time(str(at))  # which says what it accepts
    if not isinstance(at, datetime):
        raise InvalidInput(
            f"{at!r} is no time", hint="give 17 or 14 digits, an ISO time or a datetime"
        )
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    # Whole milliseconds without a detour over floating numbers, which would round some up.
    return format_time((since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000)


def _check_schema(
    snapshot: TableSnapshot, schema: pa.Schema, slices: Collection[FileSlice]
) -> None:
    if slices and not without_meta(schema).names:
        raise DataCorrupt(
            f"{snapshot.store.uri} has rows, but no commit and no property says their schema",
            hint="set hoodie.table.create.schema to the table's Avro schema",
        )


def _check_keys(snapshot: TableSnapshot, slices: Collection[FileSlice]) -> None:
    """Refuse log files whose rows carry no key: nothing says which base rows they replace."""
    logged = next((piece for piece in slices if piece.logs), None)
    if logged is not None and not snapshot.properties.populates_meta_fields:
        raise Unsupported(
            f"{snapshot.store.uri}/{logged.logs[0].key}: rows without record keys cannot be merged",
            hint="read it with read_optimized=True, or compact the table with its writer",
        )
