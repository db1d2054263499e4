"""Proving a table consistent: everything that can be looked at, and what is wrong with it.

Nothing is written. What a check cannot reach because something before it is broken is not guessed
at: a table whose properties or timeline cannot be read is told so, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Final

import pyarrow as pa

from tidelock.base.errors import DataCorrupt, RecordFromFuture, TidelockError
from tidelock.kernel.merge import Merger, MergeRule
from tidelock.operation.query import readable_schema
from tidelock.ops.validate import (
    clocks,
    duplicates,
    files,
    folders,
    leftovers,
    logs,
    metadata_table,
    order,
    rows,
    timeline,
)
from tidelock.ops.validate.findings import Finding, Validation, problem, warning
from tidelock.ops.validate.keys import PartitionKeys
from tidelock.ops.validate.ledger import check_ledger
from tidelock.ops.validate.record import read_record
from tidelock.store.contract import ObjectMeta, ObjectStore
from tidelock.table.filegroup.listing import list_files
from tidelock.table.filegroup.slice import FileSlice, LogFile
from tidelock.table.filegroup.view import DataFile
from tidelock.table.keys import KeyRule
from tidelock.table.metadatatable.reader import TIMELINE as METADATA_TIMELINE
from tidelock.table.properties import KeyGenerator, MergeMode, TableProperties
from tidelock.table.properties_file import KEY, load_properties
from tidelock.table.schema.meta import RECORD_KEY
from tidelock.table.snapshot import TableSnapshot, open_table
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.instant import Action, State
from tidelock.table.timeline.metadata import CompactionOperation
from tidelock.txn.entry import LEDGER_FOLDER

Check = Callable[[TableSnapshot], Iterator[Finding]]
"""A check of somebody else's, run after the others on a table that could be opened."""

_LOOKS_MAX: Final = 3
_RESTLESS: Final = warning(
    timeline.CHECK,
    TIMELINE_FOLDER,
    f"others wrote to the table each of the {_LOOKS_MAX} times it was looked at",
    "validate it again at a quieter time: a problem named here may be one of their steps",
)


def validate(
    store: ObjectStore,
    *,
    merger: Merger | None = None,
    with_rows: bool = True,
    more: Sequence[Check] = (),
) -> Validation:
    """Look at a whole table. Without `with_rows` no data file is read.

    A table that is written meanwhile may look broken for a moment. So what looks like a problem is
    looked at again if the timeline has moved on, up to a few times.

    Raises: `NotFound` if there is no table, `Unsupported` and `RecordFromFuture` for one that this
    release cannot judge, and what the store raises.
    """
    for look in range(1, _LOOKS_MAX + 1):
        before = _moment(store)
        seen: dict[str, int] = {}
        findings = list(_findings(store, merger, seen, with_rows=with_rows, more=more))
        validation = Validation(store.uri, tuple(findings), seen)
        if validation.is_consistent or _moment(store) == before:
            return validation
        if look == _LOOKS_MAX:
            return replace(validation, findings=(*findings, _RESTLESS))
    raise AssertionError


def _moment(store: ObjectStore) -> tuple[str, ...]:
    """Return what tells whether anything happened to a table."""
    folders = (TIMELINE_FOLDER, METADATA_TIMELINE)
    return tuple(meta.key for folder in folders for meta in store.list(f"{folder}/"))


def _findings(
    store: ObjectStore,
    merger: Merger | None,
    seen: dict[str, int],
    *,
    with_rows: bool,
    more: Sequence[Check],
) -> Iterator[Finding]:
    yield from leftovers.check_properties_files(store)
    try:
        properties = load_properties(store)
    except RecordFromFuture:
        raise
    except DataCorrupt as error:
        yield problem("properties", KEY, error.message, error.hint)
        return
    instants = _timeline_files(store, properties)
    seen["instants"] = len(instants)
    yield from timeline.check_timeline(instants)
    record, unread = read_record(store, instants)
    yield from unread
    try:
        snapshot = open_table(store)
        listed = list_files(store, partitioned=properties.is_partitioned)
        record = _with_history(snapshot, record, listed)
    except DataCorrupt as error:
        if not unread:
            yield problem("timeline", store.uri, error.message, error.hint)
        return
    seen["files"] = len(listed)
    yield from files.check_files(record, listed)
    yield from order.check_order(record, _plans(snapshot))
    yield from order.check_overwrites(record, snapshot.groups(), _completions(snapshot, record))
    has_ledger = next(iter(store.list(f"{LEDGER_FOLDER}/")), None) is not None
    yield from clocks.check_zones(instants, is_utc=properties.is_utc, has_ledger=has_ledger)
    yield from folders.check_folders(store, tuple(_outside(store)), listed)
    yield from leftovers.check_leftovers(store, record)
    yield from metadata_table.check_metadata_table(snapshot, record, listed)
    if with_rows and not unread:
        yield from _rows(snapshot, record, merger, listed, seen)
    for check in (check_ledger, *more):
        yield from check(snapshot)


def _timeline_files(store: ObjectStore, properties: TableProperties) -> list[timeline.TimelineFile]:
    folder = f"{properties.timeline_folder}/"
    return [
        timeline.timeline_file(meta)
        for meta in store.list(folder)
        if "/" not in meta.key.removeprefix(folder)
    ]


def _outside(store: ObjectStore) -> Iterator[ObjectMeta]:
    return (meta for meta in store.list("") if not meta.key.startswith(".hoodie/"))


def _with_history(
    snapshot: TableSnapshot, record: files.Record, listed: Sequence[DataFile]
) -> files.Record:
    """Add which of the listed files' writes have been archived."""
    if record.start is None:
        return record
    old = {file.instant for file in listed if file.instant < record.start}
    known = snapshot.archive.completions(old) if old else {}
    return replace(record, archived=frozenset(known))


def _plans(snapshot: TableSnapshot) -> order.Plans:
    """Return what completed compactions were to merge, where the plan is still there."""
    found: dict[str, Sequence[CompactionOperation]] = {}
    done = snapshot.timeline.completions
    for instant in snapshot.timeline.files:
        planned = instant.action is Action.COMPACTION and instant.state is State.REQUESTED
        if planned and instant.requested in done:
            # What is complete does not need its plan any more: one that is gone is no fault.
            with suppress(TidelockError):
                plan = snapshot.timeline.compaction_plan(instant)
                found[instant.requested] = plan.operations or ()
    return found


def _completions(snapshot: TableSnapshot, record: files.Record) -> Mapping[str, str]:
    """Return the completion times of writes, those of archived ones if they are of use."""
    if not record.overwrites:
        return record.completions
    return {**snapshot.archive.completions(record.archived), **record.completions}


def _rows(
    snapshot: TableSnapshot,
    record: files.Record,
    merger: Merger | None,
    listed: Sequence[DataFile],
    seen: dict[str, int],
) -> Iterator[Finding]:
    # The logs of older slices count too: time travel and incremental queries read them.
    for file in listed:
        if isinstance(file, LogFile) and file.instant in record.completed and not file.suffix:
            yield from logs.check_log(snapshot.store, file)
    try:
        check = _row_check(snapshot, record, merger)
        pieces = snapshot.slices()
    except TidelockError as error:
        yield problem("rows", snapshot.store.uri, error.message, error.hint)
        return
    reason = _unjudged(snapshot, check, pieces)
    if reason:
        yield warning("rows", snapshot.store.uri, reason, "read it with Apache Hudi to be sure")
        if check.merge.mode is MergeMode.CUSTOM or not snapshot.properties.populates_meta_fields:
            return
    seen["rows"] = 0
    for _, group in groupby(pieces, key=lambda piece: piece.partition):
        yield from _partition(check, list(group), record, seen)


def _row_check(
    snapshot: TableSnapshot, record: files.Record, merger: Merger | None
) -> rows.RowCheck:
    properties = snapshot.properties
    known = properties.key_generator not in (KeyGenerator.CUSTOM, KeyGenerator.OTHER)
    return rows.RowCheck(
        snapshot.store,
        readable_schema(snapshot),
        MergeRule.of(properties, merger=merger),
        KeyRule.of(properties) if known and properties.record_keys else None,
        record.completed | record.archived | snapshot.timeline.completions.keys(),
        record.start,
    )


def _unjudged(snapshot: TableSnapshot, check: rows.RowCheck, pieces: Sequence[FileSlice]) -> str:
    """Say which rows cannot be judged, if any."""
    rule = check.merge
    if not snapshot.properties.populates_meta_fields:
        return "rows carry no meta columns (hoodie.populate.meta.fields=false), so no keys"
    if rule.mode is MergeMode.CUSTOM and rule.merger is None and any(p.logs for p in pieces):
        return "the table merges by a class of its own; its rows were not looked at"
    if check.keys is None:
        return "keys are made by a class of its own, or there are none; they were not made again"
    return ""


def _partition(
    check: rows.RowCheck,
    pieces: list[FileSlice],
    record: files.Record,
    seen: dict[str, int],
) -> Iterator[Finding]:
    keys = PartitionKeys()
    unreadable = False
    for piece in pieces:
        report = rows.examined(check, piece, keys.add)
        seen["rows"] += report.rows
        unreadable = unreadable or report.unreadable is not None
        yield from report.findings()
    if not unreadable:
        twice = list(keys.twice(lambda: _keys_again(check, pieces)))
        if twice:
            yield from duplicates.explained(check, pieces, twice, record)
        if any(piece.logs for piece in pieces) and check.merge.mode is not MergeMode.CUSTOM:
            yield from order.check_log_order(check, pieces, record)
            yield from duplicates.outlived(check, pieces, record)


def _keys_again(check: rows.RowCheck, pieces: Sequence[FileSlice]) -> Iterator[pa.ChunkedArray]:
    for piece in pieces:
        for batch in check.batches(piece, [RECORD_KEY]):
            yield batch.column(RECORD_KEY)
