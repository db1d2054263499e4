"""Reading the timeline: what completed actions say, and which of them cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelock.base.errors import TidelockError
from tidelock.ops.validate.files import NamedFile, Overwritten, Record
from tidelock.ops.validate.findings import Finding, problem
from tidelock.ops.validate.timeline import CHECK, TimelineFile
from tidelock.store.contract import ObjectStore
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action, Instant, State, furthest
from tidelock.table.timeline.metadata import (
    CONTENT,
    CleanerPlan,
    CleanMetadata,
    CommitMetadata,
    OperationType,
    ReplaceCommitMetadata,
    RestoreMetadata,
    RollbackMetadata,
    TimelineRecord,
    WriteStat,
)

_PLANNED: Final = (OperationType.COMPACT, OperationType.LOG_COMPACT, OperationType.CLUSTER)


@dataclass(slots=True)
class _Gathered:
    """A record under construction."""

    named: list[NamedFile] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)
    removing: set[str] = field(default_factory=set)
    replaced: set[tuple[str, str]] = field(default_factory=set)
    rolled_back: dict[str, str] = field(default_factory=dict)
    """Instants that a rollback names, and when the last one completed."""
    operations: dict[str, str] = field(default_factory=dict)
    overwrites: list[Overwritten] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def read_record(
    store: ObjectStore, files: Sequence[TimelineFile]
) -> tuple[Record, tuple[Finding, ...]]:
    """Return what the timeline says about files, and what of it cannot be read or be true."""
    keys = {file.instant: file.key for file in files if file.instant is not None}
    instants = furthest(keys)
    gathered = _Gathered()
    for instant in instants:
        for state in _states_to_read(instant, keys):
            content = _content(store, keys[state], state, gathered)
            if content is not None and state.is_completed:
                _gather(gathered, instant, content)
            elif isinstance(content, CleanerPlan):
                gathered.removing.update(_planned(content))
    done = [i for i in instants if i.is_completed and i.action.writes_data]
    gathered.findings += _undone(gathered, done, keys)
    record = Record(
        named=tuple(gathered.named),
        removed=gathered.removed,
        removing=frozenset(gathered.removing),
        replaced=frozenset(gathered.replaced),
        completed=frozenset(i.requested for i in done),
        pending=frozenset(
            i.requested for i in instants if not i.is_completed and i.action.writes_data
        ),
        rolled_back=frozenset(gathered.rolled_back),
        start=_start(instants),
        operations=gathered.operations,
        completions={i.requested: i.completion for i in done if i.completion},
        overwrites=tuple(gathered.overwrites),
    )
    return record, tuple(gathered.findings)


def _states_to_read(instant: Instant, keys: Mapping[Instant, str]) -> Iterator[Instant]:
    """Yield the states of an action whose files matter: the last, and the plan of a pending one."""
    if instant.is_completed or instant.state is State.REQUESTED:
        yield instant
        return
    for each in keys:
        if each.identity == instant.identity and each.state is State.REQUESTED:
            yield each


def _content(
    store: ObjectStore, key: str, instant: Instant, gathered: _Gathered
) -> TimelineRecord | None:
    kind = CONTENT.get((instant.action, instant.state))
    found = store.get(key)
    if found is None:
        # Archived or rolled back while we look; the next validation sees the table at rest.
        return None
    if kind is None or not found.body:
        return None
    try:
        return decode(kind, found.body, where=key)
    except TidelockError as error:
        step = error.hint or "restore it from a copy; readers cannot open the table without it"
        gathered.findings.append(problem(CHECK, key, error.message.removeprefix(f"{key} "), step))
        return None


def _gather(gathered: _Gathered, instant: Instant, content: TimelineRecord) -> None:
    match content:
        case CommitMetadata():
            gathered.operations[instant.requested] = content.operation_type or ""
            for partition, stats in content.partition_to_write_stats.items():
                gathered.named += [
                    _named(instant, partition, stat) for stat in stats if stat.path and stat.file_id
                ]
            if isinstance(content, ReplaceCommitMetadata):
                for partition, groups in content.partition_to_replace_file_ids.items():
                    gathered.replaced.update((partition, group) for group in groups)
                gathered.overwrites += _overwritten(instant, content)
        case CleanMetadata():
            _gather_clean(gathered, content, instant)
        case RollbackMetadata():
            _gather_rollback(gathered, content, instant)
        case RestoreMetadata():
            for rollbacks in content.hoodie_restore_metadata.values():
                for rollback in rollbacks:
                    if rollback is not None:
                        _gather_rollback(gathered, rollback, instant)
        case _:
            pass


def _overwritten(instant: Instant, content: ReplaceCommitMetadata) -> Iterator[Overwritten]:
    named = frozenset(content.partition_to_replace_file_ids)
    match content.operation_type:
        case OperationType.INSERT_OVERWRITE_TABLE:
            yield Overwritten(instant.requested, instant.completion, None)
        case OperationType.INSERT_OVERWRITE:
            named |= frozenset(content.partition_to_write_stats)
            yield Overwritten(instant.requested, instant.completion, named)
        case OperationType.DELETE_PARTITION:
            yield Overwritten(instant.requested, instant.completion, named)
        case _:
            return


def _gather_clean(gathered: _Gathered, clean: CleanMetadata, by: Instant) -> None:
    for cleaned in clean.partition_metadata.values():
        paths = (*cleaned.delete_path_patterns, *cleaned.success_delete_files)
        _gather_removed(gathered, paths, by)


def _gather_rollback(gathered: _Gathered, rollback: RollbackMetadata, by: Instant) -> None:
    for instant in rollback.commits_rollback:
        done = max(by.completion, gathered.rolled_back.get(instant, ""))
        gathered.rolled_back[instant] = done
    for partition in rollback.partition_metadata.values():
        _gather_removed(gathered, partition.success_delete_files, by)


def _gather_removed(gathered: _Gathered, paths: Iterable[str], by: Instant) -> None:
    gathered.removed.update((_name(path), f"{by.action} {by.requested}") for path in paths)


def _planned(plan: CleanerPlan) -> Iterator[str]:
    """Yield the names of the files that a clean is to delete."""
    for names in (plan.files_to_be_deleted_per_partition or {}).values():
        yield from map(_name, names)
    for files in (plan.file_paths_to_be_deleted_per_partition or {}).values():
        yield from (_name(file.file_path or "") for file in files)


def _named(instant: Instant, partition: str, stat: WriteStat) -> NamedFile:
    assert stat.path is not None
    assert stat.file_id is not None
    return NamedFile(
        stat.path,
        (partition, stat.file_id),
        instant.requested,
        instant.completion,
        # Zero is what Java writes where it does not know: no file is empty.
        stat.file_size_in_bytes or None,
        not _name(stat.path).startswith("."),
    )


def _undone(
    gathered: _Gathered, done: Sequence[Instant], keys: Mapping[Instant, str]
) -> Iterator[Finding]:
    for instant in done:
        when = gathered.rolled_back.get(instant.requested)
        # Java takes an attempt at a plan back by a rollback of the plan's instant; the plan is
        # carried out later.
        planned = gathered.operations.get(instant.requested) in _PLANNED
        if when is not None and not (planned and instant.completion > when):
            yield problem(
                CHECK,
                keys[instant],
                "it is complete, but a rollback says that it never will be",
                "its files are gone or going: restore the table to a savepoint before it",
            )


def _start(instants: Sequence[Instant]) -> str | None:
    kept = {i.requested for i in instants if i.is_completed and i.action is Action.SAVEPOINT}
    writes = (i for i in instants if i.action.writes_data and i.requested not in kept)
    return next((instant.requested for instant in writes), None)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
