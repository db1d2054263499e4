"""`tidelock table validate`: check a whole table for consistency.

Nothing is written. A check whose input is corrupt is skipped: for a table whose properties or
timeline cannot be read, only that is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Final

import pyarrow as pa

from tidelock.core.errors import DataCorrupt, RecordFromFuture, TidelockError
from tidelock.execution.filegroup.merge import Merger, MergeRule
from tidelock.hudi.file_groups import DataFile, FileSlice, LogFile
from tidelock.hudi.keys import KeyRule
from tidelock.hudi.metadata_table import TIMELINE as METADATA_TIMELINE
from tidelock.hudi.partitions import list_files
from tidelock.hudi.properties import KEY, KeyGenerator, MergeMode, TableProperties, load_properties
from tidelock.hudi.schema import RECORD_KEY
from tidelock.hudi.snapshot import TableSnapshot, open_table
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.instant import Action, InstantState
from tidelock.hudi.timeline.metadata import CompactionOperation
from tidelock.inspect import (
    validate_files,
    validate_ledger,
    validate_metadata,
    validate_rows,
    validate_timeline,
)
from tidelock.inspect.validate_findings import Validation, ValidationFinding
from tidelock.inspect.validate_ledger import check_ledger
from tidelock.inspect.validate_rows import PartitionKeys
from tidelock.inspect.validate_timeline import TIMELINE, read_timeline
from tidelock.operations.query import readable_schema
from tidelock.storage.contract import ObjectStore
from tidelock.txn.entries import LEDGER_FOLDER

TableCheck = Callable[[TableSnapshot], Iterator[ValidationFinding]]
"""An additional check, run after the others on a table that could be opened."""

_ATTEMPTS_MAX: Final = 3
_CHANGING: Final = TIMELINE.warning(
    TIMELINE_FOLDER,
    f"the table changed during each of {_ATTEMPTS_MAX} validations",
    "validate it again while no writer is active: a reported problem may be a write in progress",
)


def validate(
    store: ObjectStore,
    *,
    merger: Merger | None = None,
    with_rows: bool = True,
    more: Sequence[TableCheck] = (),
) -> Validation:
    """Check a whole table. Without `with_rows` no data file is read.

    A table that is being written may look inconsistent for a moment. Therefore the validation is
    repeated a few times if it finds problems and the timeline has changed meanwhile.

    Raises: `NotFound` without a table, `Unsupported` and `RecordFromFuture` for one that this
    release cannot check, and the errors of the store.
    """
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        before = _timeline_keys(store)
        examined: dict[str, int] = {}
        findings = list(_findings(store, merger, examined, with_rows=with_rows, more=more))
        validation = Validation(store.uri, tuple(findings), examined)
        if validation.is_consistent or _timeline_keys(store) == before:
            return validation
        if attempt == _ATTEMPTS_MAX:
            return replace(validation, findings=(*findings, _CHANGING))
    raise AssertionError


def _timeline_keys(store: ObjectStore) -> tuple[str, ...]:
    """Return the keys of the timelines, which change with every action."""
    folders = (TIMELINE_FOLDER, METADATA_TIMELINE)
    return tuple(meta.key for folder in folders for meta in store.list(f"{folder}/"))


def _findings(
    store: ObjectStore,
    merger: Merger | None,
    examined: dict[str, int],
    *,
    with_rows: bool,
    more: Sequence[TableCheck],
) -> Iterator[ValidationFinding]:
    yield from validate_files.check_properties_files(store)
    try:
        properties = load_properties(store)
    except RecordFromFuture:
        raise
    except DataCorrupt as error:
        yield validate_files.PROPERTIES.problem(KEY, error.message, error.hint)
        return
    instants = _timeline_files(store, properties)
    examined["instants"] = len(instants)
    yield from validate_timeline.check_timeline(instants)
    record, unread = read_timeline(store, instants)
    yield from unread
    try:
        snapshot = open_table(store)
        listed = list_files(store, partitioned=properties.is_partitioned)
        record = _with_history(snapshot, record, listed)
    except DataCorrupt as error:
        if not unread:
            yield TIMELINE.problem(store.uri, error.message, error.hint)
        return
    examined["files"] = len(listed)
    yield from validate_files.check_files(record, listed)
    yield from validate_ledger.check_order(record, _plans(snapshot))
    yield from validate_ledger.check_overwrites(
        record, snapshot.groups(), _completions(snapshot, record)
    )
    has_ledger = next(iter(store.list(f"{LEDGER_FOLDER}/")), None) is not None
    yield from validate_timeline.check_zones(
        instants, is_utc=properties.is_utc, has_ledger=has_ledger
    )
    outside = [meta for meta in store.list("") if not meta.key.startswith(".hoodie/")]
    yield from validate_files.check_folders(store, outside, listed)
    yield from validate_files.check_leftovers(store, record)
    yield from validate_metadata.check_metadata_table(snapshot, record, listed)
    if with_rows and not unread:
        yield from _rows(snapshot, record, merger, listed, examined)
    for check in (check_ledger, *more):
        yield from check(snapshot)


def _timeline_files(
    store: ObjectStore, properties: TableProperties
) -> list[validate_timeline.TimelineFile]:
    folder = f"{properties.timeline_folder}/"
    return [
        validate_timeline.timeline_file(meta)
        for meta in store.list(folder)
        if "/" not in meta.key.removeprefix(folder)
    ]


def _with_history(
    snapshot: TableSnapshot, record: validate_files.CompletedFiles, listed: Sequence[DataFile]
) -> validate_files.CompletedFiles:
    """Add the writes of listed files that have been archived."""
    if record.start is None:
        return record
    old = {file.instant for file in listed if file.instant < record.start}
    known = snapshot.archive.completions(old) if old else {}
    return replace(record, archived=frozenset(known))


def _plans(snapshot: TableSnapshot) -> validate_ledger.Plans:
    """Return the plans of completed compactions, if they still exist."""
    found: dict[str, Sequence[CompactionOperation]] = {}
    done = snapshot.timeline.completions
    for instant in snapshot.timeline.files:
        planned = instant.action is Action.COMPACTION and instant.state is InstantState.REQUESTED
        if planned and instant.requested in done:
            # A completed compaction does not need its plan, so a missing one is not reported.
            with suppress(TidelockError):
                plan = snapshot.timeline.compaction_plan(instant)
                found[instant.requested] = plan.operations or ()
    return found


def _completions(
    snapshot: TableSnapshot, record: validate_files.CompletedFiles
) -> Mapping[str, str]:
    """Return the completion times of writes, with archived ones if there are overwrites."""
    if not record.overwrites:
        return record.completions
    return {**snapshot.archive.completions(record.archived), **record.completions}


def _rows(
    snapshot: TableSnapshot,
    record: validate_files.CompletedFiles,
    merger: Merger | None,
    listed: Sequence[DataFile],
    examined: dict[str, int],
) -> Iterator[ValidationFinding]:
    # Logs of older slices are checked too: time travel and incremental queries read them.
    for file in listed:
        if isinstance(file, LogFile) and file.instant in record.completed and not file.suffix:
            yield from validate_rows.check_log(snapshot.store, file)
    try:
        check = _row_check(snapshot, record, merger)
        pieces = snapshot.slices()
    except TidelockError as error:
        yield validate_rows.ROWS.problem(snapshot.store.uri, error.message, error.hint)
        return
    reason = _unchecked(snapshot, check, pieces)
    if reason:
        yield validate_rows.ROWS.warning(
            snapshot.store.uri, reason, "read it with Apache Hudi to check it"
        )
        if check.merge.mode is MergeMode.CUSTOM or not snapshot.properties.populates_meta_fields:
            return
    examined["rows"] = 0
    for _, group in groupby(pieces, key=lambda piece: piece.partition):
        yield from _partition(check, list(group), record, examined)


def _row_check(
    snapshot: TableSnapshot, record: validate_files.CompletedFiles, merger: Merger | None
) -> validate_rows.RowCheck:
    properties = snapshot.properties
    known = properties.key_generator not in (KeyGenerator.CUSTOM, KeyGenerator.OTHER)
    return validate_rows.RowCheck(
        snapshot.store,
        readable_schema(snapshot),
        MergeRule.of(properties, merger=merger),
        KeyRule.of(properties) if known and properties.record_keys else None,
        record.completed | record.archived | snapshot.timeline.completions.keys(),
        record.start,
    )


def _unchecked(
    snapshot: TableSnapshot, check: validate_rows.RowCheck, pieces: Sequence[FileSlice]
) -> str:
    """Return the reason why rows or keys cannot be checked; empty if they can."""
    rule = check.merge
    if not snapshot.properties.populates_meta_fields:
        return (
            "rows have no meta columns (hoodie.populate.meta.fields=false), so keys were not"
            " checked"
        )
    if rule.mode is MergeMode.CUSTOM and rule.merger is None and any(p.logs for p in pieces):
        return "the table has a custom merger class; its rows were not checked"
    if check.keys is None:
        return "the table has a custom key generator or no keys; they were not checked"
    return ""


def _partition(
    check: validate_rows.RowCheck,
    pieces: list[FileSlice],
    record: validate_files.CompletedFiles,
    examined: dict[str, int],
) -> Iterator[ValidationFinding]:
    keys = PartitionKeys()
    unreadable = False
    for piece in pieces:
        report = validate_rows.check_slice(check, piece, keys.add)
        examined["rows"] += report.rows
        unreadable = unreadable or report.unreadable is not None
        yield from report.findings()
    if not unreadable:
        duplicates = list(keys.duplicates(lambda: _read_keys(check, pieces)))
        if duplicates:
            yield from validate_rows.duplicate_findings(check, pieces, duplicates, record)
        if any(piece.logs for piece in pieces) and check.merge.mode is not MergeMode.CUSTOM:
            yield from validate_ledger.check_log_order(check, pieces, record)
            yield from validate_rows.check_deleted_keys(check, pieces, record)


def _read_keys(
    check: validate_rows.RowCheck, pieces: Sequence[FileSlice]
) -> Iterator[pa.ChunkedArray]:
    for piece in pieces:
        for batch in check.batches(piece, [RECORD_KEY]):
            yield batch.column(RECORD_KEY)
