"""Checks of the timeline: the names of its files, time zones, and the files of its actions.

An action is requested, then inflight, then completed, once. Its completion time is after its
request time and unique: readers select actions by completion time and could not distinguish two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelock.core.errors import InvalidInput, TidelockError
from tidelock.hudi.properties import KEY
from tidelock.hudi.timeline import metadata
from tidelock.hudi.timeline.instant import (
    Action,
    Instant,
    InstantState,
    latest_states,
    parse_instant,
    parse_time,
)
from tidelock.inspect.validate_files import (
    CompletedFiles,
    NamedFile,
    PartitionOverwrite,
    without_key,
)
from tidelock.inspect.validate_findings import ValidationCheck, ValidationFinding
from tidelock.storage.contract import ObjectMeta, ObjectStore

TIMELINE: Final = ValidationCheck("timeline")


@dataclass(frozen=True, slots=True)
class TimelineFile:
    """A file in the folder of the timeline; `instant` is None if its name is not an instant."""

    key: str
    size_bytes: int
    instant: Instant | None
    modified_epoch_ms: int | None = None


def timeline_file(meta: ObjectMeta) -> TimelineFile:
    """Return the timeline file of an object."""
    instant = parse_instant(meta.key.rpartition("/")[2])
    return TimelineFile(meta.key, meta.size_bytes, instant, meta.modified_epoch_ms)


def check_timeline(files: Sequence[TimelineFile]) -> Iterator[ValidationFinding]:
    """Check the names of the files on the timeline."""
    for file in files:
        yield from _check_file(file)
    known = [(file, file.instant) for file in files if file.instant is not None]
    yield from _check_actions(known)
    yield from _check_completions(known)


def _check_file(file: TimelineFile) -> Iterator[ValidationFinding]:
    instant = file.instant
    if instant is None:
        # Hadoop writes checksums of local files into the same folder.
        if not file.key.endswith(".crc"):
            yield TIMELINE.warning(
                file.key,
                "not an instant; readers skip it",
                "find the program that wrote it, and delete it",
            )
        return
    if not _is_time(instant.requested):
        yield TIMELINE.problem(
            file.key, f"{instant.requested} is not a valid time", "remove or rename the instant"
        )
    if not instant.is_completed:
        return
    if file.size_bytes == 0:
        yield TIMELINE.problem(
            file.key,
            "a completed instant of zero bytes: its changes are unknown, and some readers refuse"
            " the whole table",
            "restore it from a copy",
        )
    if not instant.completion:
        yield TIMELINE.warning(
            file.key,
            "no completion time in its name, as in old versions; readers use the time of the file,"
            " which a copy of the table changes",
            "upgrade the table with Apache Hudi",
        )
    elif not _is_time(instant.completion):
        yield TIMELINE.problem(
            file.key, f"{instant.completion} is not a valid time", "restore the name of the file"
        )
    elif instant.completion <= instant.requested:
        yield TIMELINE.problem(
            file.key,
            "its completion time is before its request time",
            "find the writer whose clock went back; its file slices may be wrong",
        )


def _check_actions(known: Sequence[tuple[TimelineFile, Instant]]) -> Iterator[ValidationFinding]:
    """Check the states of each action, and that request times are unique."""
    by_time: defaultdict[str, defaultdict[Action, list[tuple[TimelineFile, Instant]]]]
    by_time = defaultdict(lambda: defaultdict(list))
    for file, instant in known:
        by_time[instant.requested][instant.action.completed].append((file, instant))
    for requested, actions in sorted(by_time.items()):
        # A savepoint has the time of its commit.
        owners = sorted(action for action in actions if action is not Action.SAVEPOINT)
        if len(owners) > 1:
            yield TIMELINE.problem(
                actions[owners[0]][0][0].key,
                f"request time {requested} is used by {' and '.join(owners)}",
                "roll back one of them: readers identify writes by their request time",
            )
        for same in actions.values():
            yield from _check_states(same)


def _check_states(same: Sequence[tuple[TimelineFile, Instant]]) -> Iterator[ValidationFinding]:
    states = {instant.state for _, instant in same}
    done = [file for file, instant in same if instant.is_completed]
    first, action = same[0][0].key, same[0][1].action
    if len(done) > 1:
        yield TIMELINE.problem(
            done[0].key,
            f"it completed {len(done)} times: {', '.join(_file_name(file.key) for file in done)}",
            "keep the one whose files exist, and remove the others",
        )
    if InstantState.REQUESTED in states or action is Action.SAVEPOINT:
        return
    if done:
        yield TIMELINE.warning(
            done[0].key,
            "its request file is missing; readers do not need it, but Hudi's archiver does",
            "no action is needed unless a Java writer archives this table",
        )
    else:
        yield TIMELINE.problem(
            first,
            "inflight without a request file: its plan is lost, and it cannot be completed",
            "roll it back",
        )


def _check_completions(
    known: Iterable[tuple[TimelineFile, Instant]],
) -> Iterator[ValidationFinding]:
    by_completion: defaultdict[str, list[TimelineFile]] = defaultdict(list)
    for file, instant in known:
        if instant.is_completed and instant.completion:
            by_completion[instant.completion].append(file)
    for completion, files in sorted(by_completion.items()):
        names = [_file_name(file.key) for file in files]
        if len(files) > 1:
            yield TIMELINE.problem(
                files[0].key,
                f"{', '.join(names)} all completed at {completion}; an"
                " incremental reader that stops there may have seen only some of them",
                "restart incremental readers from before this time",
            )


def _is_time(time: str) -> bool:
    try:
        parse_time(time)
    except InvalidInput:
        return False
    return True


TIME_ZONES: Final = ValidationCheck("time zone")

_STEP_MS: Final = 15 * 60_000
"""Offsets of time zones are multiples of a quarter of an hour."""
_EXACT_MS: Final = 10_000
"""The file of an instant is written within this time of the time in its name."""
_APART_MAX_MS: Final = 26 * 3_600_000
"""The largest difference between two time zones."""


def check_zones(
    files: Sequence[TimelineFile], *, is_utc: bool, has_ledger: bool
) -> Iterator[ValidationFinding]:
    """Find instants of different time zones, by the times of their files."""
    if has_ledger and not is_utc:
        yield TIME_ZONES.warning(
            KEY,
            "the timeline uses local time (hoodie.table.timeline.timezone), but the ledger uses"
            " UTC",
            "run every writer in UTC, or set hoodie.table.timeline.timezone=UTC",
        )
    shifts = [(file, shift) for file in files if (shift := _shift(file)) is not None]
    exact = [file for file, shift in shifts if abs(shift) <= _EXACT_MS]
    first = min((file.modified_epoch_ms or 0 for file in exact), default=None)
    for file, shift in shifts:
        steps = round(shift / _STEP_MS)
        near = abs(shift - steps * _STEP_MS) <= _EXACT_MS and abs(shift) <= _APART_MAX_MS
        # Files of a copied table are all younger than their names. Only a file that is younger than
        # one that was written on time was written after it.
        late = first is not None and (file.modified_epoch_ms or 0) > first + _EXACT_MS
        if steps and near and (shift > 0 or late):
            # A clock that is off by hours is harmless while times follow the order of writing.
            finding = TIME_ZONES.problem if _is_out_of_order(file, files) else TIME_ZONES.warning
            yield finding(
                file.key,
                f"its name is {abs(shift) / 3_600_000:g} hours"
                f" {'ahead of' if shift > 0 else 'behind'} the time of its file, unlike others on"
                " this timeline: its writers use different time zones",
                "run every writer in UTC and set hoodie.table.timeline.timezone=UTC; then compare"
                " the rows of the writes around this one with their sources",
            )


def _is_out_of_order(file: TimelineFile, files: Sequence[TimelineFile]) -> bool:
    """Return whether the names of this and another file contradict the order of writing."""
    mine = _times(file)
    if mine is None:
        return False
    for other in files:
        theirs = _times(other)
        if theirs is not None and (theirs[0] - mine[0]) * (theirs[1] - mine[1]) < 0:
            return True
    return False


def _times(file: TimelineFile) -> tuple[int, int] | None:
    """Return the time of the file of a completed instant, and the time in its name."""
    shift = _shift(file)
    written = file.modified_epoch_ms
    return None if shift is None or written is None else (written, written + shift)


def _shift(file: TimelineFile) -> int | None:
    """Return by how much the name of a completed instant is ahead of its file; None if unknown."""
    instant = file.instant
    if instant is None or not instant.completion or file.modified_epoch_ms is None:
        return None
    try:
        return parse_time(instant.completion) - file.modified_epoch_ms
    except InvalidInput:
        return None


_PLANNED: Final = (
    metadata.OperationType.COMPACT,
    metadata.OperationType.LOG_COMPACT,
    metadata.OperationType.CLUSTER,
)


def read_timeline(
    store: ObjectStore, files: Sequence[TimelineFile]
) -> tuple[CompletedFiles, tuple[ValidationFinding, ...]]:
    """Return the files on the timeline, and findings for what cannot be read or contradicts."""
    keys = {file.instant: file.key for file in files if file.instant is not None}
    instants = latest_states(keys)
    writes = [i for i in instants if i.action.writes_data]
    done = [i for i in writes if i.is_completed]
    record = CompletedFiles(
        completed=frozenset(i.requested for i in done),
        pending=frozenset(i.requested for i in writes if not i.is_completed),
        start=_start(instants),
        completions={i.requested: i.completion for i in done if i.completion},
    )
    findings: list[ValidationFinding] = []
    for instant in instants:
        for state in _states_to_read(instant, keys):
            content = _content(store, keys[state], state, findings)
            if content is not None and state.is_completed:
                _add_action(record, instant, content)
            elif isinstance(content, metadata.CleanerPlan):
                record.removing.update(_planned(content))
    findings += _rolled_back_but_complete(record, done, keys)
    return record, tuple(findings)


def _states_to_read(instant: Instant, keys: Mapping[Instant, str]) -> Iterator[Instant]:
    """Yield the states of an action to read: the last one, or the plan of a pending action."""
    if instant.is_completed or instant.state is InstantState.REQUESTED:
        yield instant
        return
    for each in keys:
        if each.identity == instant.identity and each.state is InstantState.REQUESTED:
            yield each


def _content(
    store: ObjectStore, key: str, instant: Instant, findings: list[ValidationFinding]
) -> metadata.TimelineRecord | None:
    kind = metadata.CONTENT.get((instant.action, instant.state))
    found = store.get(key)
    if found is None:
        # Archived or rolled back during the validation; the next one sees a consistent table.
        return None
    if kind is None or not found.body:
        return None
    try:
        return metadata.decode(kind, found.body, where=key)
    except TidelockError as error:
        step = error.hint or "restore it from a copy; readers cannot open the table without it"
        findings.append(TIMELINE.problem(key, without_key(error.message, key), step))
        return None


def _add_action(record: CompletedFiles, instant: Instant, content: metadata.TimelineRecord) -> None:
    match content:
        case metadata.CommitMetadata():
            record.operations[instant.requested] = content.operation_type or ""
            for partition, stats in content.partition_to_write_stats.items():
                record.named += [
                    _named(instant, partition, stat) for stat in stats if stat.path and stat.file_id
                ]
            if isinstance(content, metadata.ReplaceCommitMetadata):
                for partition, groups in content.partition_to_replace_file_ids.items():
                    record.replaced.update((partition, group) for group in groups)
                record.overwrites += _overwrites(instant, content)
        case metadata.CleanMetadata():
            for cleaned in content.partition_metadata.values():
                paths = (*cleaned.delete_path_patterns, *cleaned.success_delete_files)
                _add_removed(record, paths, instant)
        case metadata.RollbackMetadata():
            _add_rollback(record, content, instant)
        case metadata.RestoreMetadata():
            for rollbacks in content.hoodie_restore_metadata.values():
                for rollback in rollbacks:
                    if rollback is not None:
                        _add_rollback(record, rollback, instant)
        case _:
            pass


def _overwrites(
    instant: Instant, content: metadata.ReplaceCommitMetadata
) -> Iterator[PartitionOverwrite]:
    named = frozenset(content.partition_to_replace_file_ids)
    match content.operation_type:
        case metadata.OperationType.INSERT_OVERWRITE_TABLE:
            yield PartitionOverwrite(instant.requested, instant.completion, None)
        case metadata.OperationType.INSERT_OVERWRITE:
            named |= frozenset(content.partition_to_write_stats)
            yield PartitionOverwrite(instant.requested, instant.completion, named)
        case metadata.OperationType.DELETE_PARTITION:
            yield PartitionOverwrite(instant.requested, instant.completion, named)
        case _:
            return


def _add_rollback(record: CompletedFiles, rollback: metadata.RollbackMetadata, by: Instant) -> None:
    for instant in rollback.commits_rollback:
        done = max(by.completion, record.rolled_back.get(instant, ""))
        record.rolled_back[instant] = done
    for partition in rollback.partition_metadata.values():
        _add_removed(record, partition.success_delete_files, by)


def _add_removed(record: CompletedFiles, paths: Iterable[str], by: Instant) -> None:
    record.removed.update((_file_name(path), f"{by.action} {by.requested}") for path in paths)


def _planned(plan: metadata.CleanerPlan) -> Iterator[str]:
    """Yield the names of the files that a clean will delete."""
    for names in (plan.files_to_be_deleted_per_partition or {}).values():
        yield from map(_file_name, names)
    for files in (plan.file_paths_to_be_deleted_per_partition or {}).values():
        yield from (_file_name(file.file_path or "") for file in files)


def _named(instant: Instant, partition: str, stat: metadata.WriteStat) -> NamedFile:
    assert stat.path is not None
    assert stat.file_id is not None
    return NamedFile(
        stat.path,
        (partition, stat.file_id),
        instant.requested,
        instant.completion,
        # Java writes zero for an unknown size: no file is empty.
        stat.file_size_in_bytes or None,
        not _file_name(stat.path).startswith("."),
    )


def _rolled_back_but_complete(
    record: CompletedFiles, done: Sequence[Instant], keys: Mapping[Instant, str]
) -> Iterator[ValidationFinding]:
    for instant in done:
        when = record.rolled_back.get(instant.requested)
        # Java rolls back an attempt to execute a plan with a rollback of the plan's instant; the
        # plan is executed later.
        planned = record.operations.get(instant.requested) in _PLANNED
        if when is not None and not (planned and instant.completion > when):
            yield TIMELINE.problem(
                keys[instant],
                "it is complete, although a rollback of it completed",
                "its files are deleted: restore the table to a savepoint before it",
            )


def _start(instants: Sequence[Instant]) -> str | None:
    saved = {i.requested for i in instants if i.is_completed and i.action is Action.SAVEPOINT}
    writes = (i for i in instants if i.action.writes_data and i.requested not in saved)
    return next((instant.requested for instant in writes), None)


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]
