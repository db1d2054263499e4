"""Checks of the ledger: one chain of valid entries that the timeline matches; commit order."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.core.errors import DataCorrupt, RecordFromFuture
from tidelock.execution.filegroup.log_layers import read_layers
from tidelock.hudi.file_groups import FileGroup, FileSlice, GroupId, LogFile
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import CompactionOperation, OperationType
from tidelock.inspect.validate_files import CompletedFiles, NamedFile
from tidelock.inspect.validate_findings import ValidationCheck, ValidationFinding
from tidelock.inspect.validate_rows import RowCheck
from tidelock.storage.contract import ObjectStore
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn import entries as e
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.state import LedgerState, validate_entry

LEDGER: Final = ValidationCheck("ledger")
UNPUBLISHED = "its commit is not on the timeline yet"


@dataclass(slots=True)
class _LedgerRead:
    """The state and the commits of the entries read so far."""

    state: LedgerState = field(default_factory=LedgerState)
    commits: list[tuple[e.LedgerEntry, e.Commit]] = field(default_factory=list)
    first_time: str = ""


def check_ledger(snapshot: TableSnapshot) -> Iterator[ValidationFinding]:
    """Check the ledger of a table; a table without one has no findings."""
    store = snapshot.store
    read = _LedgerRead()
    found = store.get(CHECKPOINT_KEY)
    if found is not None:
        try:
            read.state = checkpoints.decode_checkpoint(found.body, where=CHECKPOINT_KEY).state
        except RecordFromFuture:
            raise
        except DataCorrupt as error:
            yield LEDGER.problem(CHECKPOINT_KEY, error.message, "restore it from a copy")
            return
    findings = [*_check_checkpoint(store, read.state), *_read(store, read)]
    yield from findings
    if not findings:
        yield from _check_published(snapshot, read)
        yield from _check_timeline(snapshot, read)


def _check_checkpoint(store: ObjectStore, checkpoint: LedgerState) -> Iterator[ValidationFinding]:
    """Compare the checkpoint with the entries that it covers, if they still exist."""
    below = _LedgerRead()
    last = checkpoint.position
    if not last or checkpoint.boundary or store.head(e.entry_key(1)) is None:
        return  # entries before the boundary are only in the checkpoint
    findings = list(_read(store, below, last=last))
    yield from findings
    if not findings and _encoded(below.state) != _encoded(checkpoint):
        yield LEDGER.problem(
            CHECKPOINT_KEY,
            f"it does not match the entries up to {last}",
            "stop all writers and delete it: all entries exist, and it is rebuilt from them",
        )


def _encoded(state: LedgerState) -> bytes:
    return checkpoints.encode(checkpoints.Checkpoint(state, ""))


def _read(
    store: ObjectStore, read: _LedgerRead, *, last: int | None = None
) -> Iterator[ValidationFinding]:
    """Apply the entries above the checkpoint; stop at the first invalid one."""
    start_after = e.entry_key(read.state.position)
    for meta in store.list(f"{e.LEDGER_FOLDER}/", start_after=start_after):
        position = e.position_of(meta.key)
        if position is None:
            continue
        if last is not None and position > last:
            return
        if position != read.state.position + 1:
            yield LEDGER.problem(
                e.entry_key(read.state.position + 1),
                f"missing, although entry {position} exists",
                "restore it from a copy: its decision is stored nowhere else",
            )
            return
        stored = store.get(meta.key)
        if stored is None:
            return  # moved into a checkpoint during the validation
        try:
            entry = e.decode(stored.body, where=meta.key)
        except RecordFromFuture:
            raise
        except DataCorrupt as error:
            yield LEDGER.problem(meta.key, error.message, "restore it from a copy")
            return
        fault = _fault(entry, position, read.state)
        if fault:
            yield LEDGER.problem(
                meta.key, fault, "stop all writers; restore the ledger from a copy"
            )
            return
        read.first_time = read.first_time or entry.time
        read.state = read.state.after(entry)
        if isinstance(entry.fact, e.Commit):
            read.commits.append((entry, entry.fact))


def _fault(entry: e.LedgerEntry, position: int, state: LedgerState) -> str:
    """Return the reason why an entry is invalid at its position; empty if it is valid."""
    if entry.position != position:
        return f"expected entry {position}, found entry {entry.position}"
    if not state.precedes(entry):
        return "it does not refer to its predecessor: it was written after another entry"
    if entry.time <= state.time:
        return f"its time {entry.time} is not after {state.time}, the time of its predecessor"
    return validate_entry(entry.fact, state, owner=entry.owner) or ""


def _check_published(snapshot: TableSnapshot, read: _LedgerRead) -> Iterator[ValidationFinding]:
    """Compare each commit with its file on the timeline, in ledger order."""
    unpublished: list[str] = []
    existing = set(snapshot.timeline.files)
    for entry, commit in read.commits:
        if commit.instant in read.state.aborted:
            continue  # rolled back
        done = Instant(commit.instant, commit.action.completed, InstantState.COMPLETED, entry.time)
        if done not in existing:
            if not _is_archived(snapshot, done):
                unpublished.append(e.entry_key(entry.position))
            continue
        for key in unpublished:
            yield LEDGER.problem(
                key,
                f"its commit is not on the timeline, although the later {done.file_name} is",
                "readers may have missed it: any write with tidelock publishes it",
            )
        unpublished.clear()
        if not _is_same(snapshot, done, commit):
            yield LEDGER.problem(
                snapshot.timeline.key(done),
                f"its bytes differ from ledger entry {entry.position}",
                "delete it: the next write with tidelock publishes it again from the ledger",
            )
    for key in unpublished:
        yield LEDGER.warning(
            key,
            UNPUBLISHED,
            "its writer died before publishing it: the next write with tidelock publishes it",
        )


def _is_archived(snapshot: TableSnapshot, done: Instant) -> bool:
    start = snapshot.timeline.start
    return done.action is Action.SAVEPOINT or (start is not None and done.requested < start)


def _is_same(snapshot: TableSnapshot, done: Instant, commit: e.Commit) -> bool:
    found = snapshot.store.get(snapshot.timeline.key(done))
    if found is None:
        return True  # archived during the validation
    if isinstance(commit.content, e.InlineContent):
        return found.body == commit.content.data
    return hashlib.sha256(found.body).hexdigest() == commit.content.sha256


def _check_timeline(snapshot: TableSnapshot, read: _LedgerRead) -> Iterator[ValidationFinding]:
    """Find writes on the timeline that the ledger rolled back or does not contain."""
    for instant in snapshot.timeline.writes():
        key = snapshot.timeline.key(instant)
        if instant.requested in read.state.aborted:
            yield LEDGER.problem(
                key,
                "the ledger rolled it back, but it is complete: only readers of tidelock ignore it",
                "remove this file from the timeline, then delete the files in it",
            )
        elif read.first_time and not _is_known(instant, read):
            yield LEDGER.warning(
                key,
                "not in the ledger: an external writer committed it",
                "no action is needed: the next write with tidelock imports it",
            )


def _is_known(instant: Instant, read: _LedgerRead) -> bool:
    return (
        instant.requested in read.state.committed
        or instant.requested < read.state.archived
        or instant.completion < read.first_time
    )


ORDER: Final = ValidationCheck("order")

Plans = Mapping[str, Sequence[CompactionOperation]]
"""The plan of each completed compaction, by its request time."""


def check_order(record: CompletedFiles, plans: Plans) -> Iterator[ValidationFinding]:
    """Find file versions that are hidden by versions committed earlier."""
    groups: defaultdict[GroupId, list[NamedFile]] = defaultdict(list)
    for named in record.named:
        if named.group not in record.replaced and named.completion:
            groups[named.group].append(named)
    for _, files in sorted(groups.items()):
        yield from _hidden_bases(files)
    for requested, operations in sorted(plans.items()):
        for operation in operations:
            group = (operation.partition_path or "", operation.file_id or "")
            yield from _hidden_logs(groups.get(group, ()), requested, operation)


def _hidden_bases(files: Iterable[NamedFile]) -> Iterator[ValidationFinding]:
    newest: NamedFile | None = None
    for file in sorted((f for f in files if f.is_base), key=lambda f: f.completion):
        if newest is not None and file.requested < newest.requested:
            yield ORDER.problem(
                file.key,
                f"it was committed at {file.completion}, after {newest.key} ({newest.completion}),"
                f" but its request time {file.requested} is older: readers use the other file, and"
                " the changes of this write are hidden",
                "upsert the rows of this file again, or roll back the other write",
            )
            continue
        newest = file


def _hidden_logs(
    files: Iterable[NamedFile], requested: str, operation: CompactionOperation
) -> Iterator[ValidationFinding]:
    """Compare the log files committed before a compaction with those in its plan."""
    merged = {path.rpartition("/")[2] for path in operation.delta_file_paths or ()}
    since = operation.base_instant_time or ""
    for file in files:
        below = since <= file.completion < requested
        if not file.is_base and below and file.key.rpartition("/")[2] not in merged:
            yield ORDER.problem(
                file.key,
                f"it was committed at {file.completion}, before the compaction {requested}, whose"
                " plan does not have it: readers skip it",
                "upsert its rows again, or roll back the compaction",
            )


def check_overwrites(
    record: CompletedFiles, groups: Iterable[FileGroup], completions: Mapping[str, str]
) -> Iterator[ValidationFinding]:
    """Find file groups that an overwrite of their partition should have replaced.

    `completions` has the completion time of each write, by its request time.
    """
    written: defaultdict[str, set[GroupId]] = defaultdict(set)
    for named in record.named:
        written[named.requested].add(named.group)
    for group in groups:
        if group.group_id in record.replaced:
            continue
        files = [file for piece in group.slices for file in (piece.base, *piece.logs) if file]
        done = [(completions.get(file.instant, ""), file) for file in files]
        first = min(((at, file.key) for at, file in done if at), default=None)
        for overwrite in record.overwrites if first else ():
            if (
                first is not None
                and overwrite.covers(group.partition)
                and first[0] < overwrite.completion
                and group.group_id not in written[overwrite.requested]
            ):
                yield ORDER.problem(
                    first[1],
                    f"the write {overwrite.requested} overwrote all of"
                    f" {group.partition or 'the table'}, but did not replace the file group"
                    f" {group.file_id}, which is older, so readers still read it",
                    "overwrite the partition again",
                )
                break


def check_log_order(
    check: RowCheck, pieces: Iterable[FileSlice], record: CompletedFiles
) -> Iterator[ValidationFinding]:
    """Find changes of one key that are merged in another order than they were committed.

    Raises: the errors of reading log files.
    """
    for piece in pieces:
        done = [
            (record.completions[log.instant], log)
            for log in piece.logs
            if log.instant in record.completions
            and record.operations.get(log.instant) != OperationType.LOG_COMPACT
        ]
        done.sort(key=lambda pair: pair[0])
        if all(before.instant <= log.instant for (_, before), (_, log) in pairwise(done)):
            continue
        changed = [(log, _changed_keys(check, log)) for _, log in done]
        for at, (log, keys) in enumerate(changed):
            for before, theirs in changed[:at]:
                if before.instant > log.instant:
                    yield from _wrong_order(log, keys, before, theirs)


def _changed_keys(check: RowCheck, log: LogFile) -> tuple[pa.Array, pa.Array]:
    """Return the keys that a log file changes, and those whose changes are ordered by commit."""
    layers = read_layers(check.store, [log], check.schema, check.merge)
    empty = pa.array([], pa.string())
    by_time = [
        layer.keys.filter(layer.natural) if check.merge.ordered_by else layer.keys
        for layer in layers
    ]
    return (
        pa.concat_arrays([empty, *(layer.keys for layer in layers)]),
        pa.concat_arrays([empty, *by_time]),
    )


def _wrong_order(
    log: LogFile,
    mine: tuple[pa.Array, pa.Array],
    before: LogFile,
    theirs: tuple[pa.Array, pa.Array],
) -> Iterator[ValidationFinding]:
    same = pa.concat_arrays(
        [
            mine[1].filter(pc.is_in(mine[1], value_set=theirs[0])),
            theirs[1].filter(pc.is_in(theirs[1], value_set=mine[0])),
        ]
    ).unique()
    if len(same):
        yield ORDER.problem(
            log.key,
            f"it was committed after {before.key}, but its request time {log.instant} is older: for"
            f" {len(same):,} keys such as {min(same.to_pylist())!r} the other change, which came"
            " first, takes precedence",
            "upsert or delete these keys again",
        )
