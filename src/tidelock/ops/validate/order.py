"""Whether what was committed later shows: readers go by request time, commits have an order too.

A file group's version with the greatest request time is the one that readers see. So a version
that was committed after it, under an older request time, was acknowledged and is not there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.kernel.layers import read_layers
from tidelock.ops.validate.files import NamedFile, Overwritten, Record
from tidelock.ops.validate.findings import Finding, problem
from tidelock.ops.validate.rows import RowCheck
from tidelock.table.filegroup.slice import FileSlice, LogFile
from tidelock.table.filegroup.view import FileGroup, GroupId
from tidelock.table.timeline.metadata import CompactionOperation, OperationType

CHECK = "order"

Plans = Mapping[str, Sequence[CompactionOperation]]
"""What each completed compaction was to do, by its request time."""


def check_order(record: Record, plans: Plans) -> Iterator[Finding]:
    """Look for versions of file groups that are hidden by others which were committed before."""
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


def _hidden_bases(files: Iterable[NamedFile]) -> Iterator[Finding]:
    newest: NamedFile | None = None
    for file in sorted((f for f in files if f.is_base), key=lambda f: f.completion):
        if newest is not None and file.requested < newest.requested:
            yield problem(
                CHECK,
                file.key,
                f"it was committed at {file.completion}, after {newest.key} ({newest.completion}),"
                f" but its request time {file.requested} is the older one: readers show the other,"
                " and what this write did is hidden",
                "write the rows of this file again by an upsert, or roll the other write back",
            )
            continue
        newest = file


def _hidden_logs(
    files: Iterable[NamedFile], requested: str, operation: CompactionOperation
) -> Iterator[Finding]:
    """Compare the log files that came before a compaction with those that it was to merge."""
    merged = {path.rpartition("/")[2] for path in operation.delta_file_paths or ()}
    since = operation.base_instant_time or ""
    for file in files:
        below = since <= file.completion < requested
        if not file.is_base and below and file.key.rpartition("/")[2] not in merged:
            yield problem(
                CHECK,
                file.key,
                f"it was committed at {file.completion}, before the compaction {requested}, which"
                " does not name it: readers pass over it",
                "write its rows again by an upsert, or roll the compaction back",
            )


def check_overwrites(
    record: Record, groups: Iterable[FileGroup], completions: Mapping[str, str]
) -> Iterator[Finding]:
    """Look for file groups that were there when their partition was overwritten, and still show.

    `completions` has the completion time of each file's write, by its request time.
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
                yield _still_shown(overwrite, group, first[1])
                break


def _still_shown(overwrite: Overwritten, group: FileGroup, key: str) -> Finding:
    return problem(
        CHECK,
        key,
        f"the write {overwrite.requested} overwrote all of {group.partition or 'the table'}, but"
        f" the file group {group.file_id}, which was there before, is not among those that it"
        " replaced, and still shows",
        "overwrite the partition again",
    )


def check_log_order(
    check: RowCheck, pieces: Iterable[FileSlice], record: Record
) -> Iterator[Finding]:
    """Look for changes of one key that were committed in one order and are merged in another.

    Raises: what reading log files raises.
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
        changed = [(log, _decided(check, log)) for _, log in done]
        for at, (log, keys) in enumerate(changed):
            for before, theirs in changed[:at]:
                if before.instant > log.instant:
                    yield from _lost(log, keys, before, theirs)


def _decided(check: RowCheck, log: LogFile) -> tuple[pa.Array, pa.Array]:
    """Return the keys that a log file changes, and those whose change goes by time of commit."""
    layers = read_layers(check.store, [log], check.schema, check.merge)
    nothing = pa.array([], pa.string())
    by_time = [
        layer.keys.filter(layer.natural) if check.merge.ordered_by else layer.keys
        for layer in layers
    ]
    return (
        pa.concat_arrays([nothing, *(layer.keys for layer in layers)]),
        pa.concat_arrays([nothing, *by_time]),
    )


def _lost(
    log: LogFile,
    mine: tuple[pa.Array, pa.Array],
    before: LogFile,
    theirs: tuple[pa.Array, pa.Array],
) -> Iterator[Finding]:
    same = pa.concat_arrays(
        [
            mine[1].filter(pc.is_in(mine[1], value_set=theirs[0])),
            theirs[1].filter(pc.is_in(theirs[1], value_set=mine[0])),
        ]
    ).unique()
    if len(same):
        yield problem(
            CHECK,
            log.key,
            f"it was committed after {before.key}, but its request time {log.instant} is the older"
            f" one: of {len(same):,} keys such as {min(same.to_pylist())!r} the other's change"
            " counts, though it came first",
            "write these keys again by an upsert, or delete them again",
        )
