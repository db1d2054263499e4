"""What it means that a key is in a partition twice: some writes allow it, others never do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.kernel.layers import read_layers
from tidelock.ops.validate.files import Record
from tidelock.ops.validate.findings import Finding, problem, warning
from tidelock.ops.validate.rows import RowCheck
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.schema.meta import COMMIT_TIME, RECORD_KEY
from tidelock.table.timeline.metadata import OperationType

CHECK = "keys"
SHOWN_MAX: Final = 10
"""Of so many keys of a partition it is said where their rows are."""

_BLIND: Final = frozenset(
    {
        OperationType.INSERT,
        OperationType.INSERT_PREPPED,
        OperationType.BULK_INSERT,
        OperationType.BULK_INSERT_PREPPED,
        OperationType.INSERT_OVERWRITE,
        OperationType.INSERT_OVERWRITE_TABLE,
    }
)
"""Operations that do not look whether a key is there already."""

_BLIND_OR_UNKNOWN: Final = _BLIND | {""}

Copies = Sequence[tuple[str, str]]
"""File group and commit time of each row with one key."""


def explained(
    check: RowCheck,
    pieces: Sequence[FileSlice],
    keys: Sequence[str],
    record: Record,
) -> Iterator[Finding]:
    """Yield a finding for each of the first keys, and one for the rest."""
    partition = pieces[0].partition
    shown = keys[:SHOWN_MAX]
    copies = _copies(check, pieces, shown)
    for key in shown:
        yield _finding(partition, key, copies[key], record)
    if len(keys) > len(shown):
        yield problem(
            CHECK,
            partition or ".",
            f"{len(keys) - len(shown):,} more keys are in several rows",
            "mend those above first, then validate again",
        )


def outlived(check: RowCheck, pieces: Sequence[FileSlice], record: Record) -> Iterator[Finding]:
    """Yield keys that a log file deleted while an older row of them is in another file group.

    Raises: what reading log files raises.
    """
    deleted = _deleted(check, pieces, record)
    if not deleted:
        return
    wanted = pa.array(sorted(deleted), pa.string())
    for piece in pieces:
        for batch in check.batches(piece, [RECORD_KEY, COMMIT_TIME]):
            rows = batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=wanted))
            for row in rows.to_pylist():
                done = record.completions.get(row[COMMIT_TIME] or "")
                completion, group, instant = deleted[row[RECORD_KEY]]
                if done is not None and done < completion and group != piece.file_id:
                    yield problem(
                        CHECK,
                        piece.partition or ".",
                        f"the key {row[RECORD_KEY]!r} was deleted by {instant} in file group"
                        f" {group}, but the older row of {row[COMMIT_TIME]} is still in file group"
                        f" {piece.file_id}",
                        "delete the key again, then validate again",
                    )


def _deleted(
    check: RowCheck, pieces: Sequence[FileSlice], record: Record
) -> Mapping[str, tuple[str, str, str]]:
    """Return the last delete of each key: completion time, file group and request time."""
    found: dict[str, tuple[str, str, str]] = {}
    for piece in pieces:
        for log in piece.logs:
            done = record.completions.get(log.instant)
            merged = record.operations.get(log.instant) == OperationType.LOG_COMPACT
            if done is None or merged:  # what a log compaction merged is there as well
                continue
            for layer in read_layers(check.store, [log], check.schema, check.merge):
                for key in layer.keys.filter(layer.deleted).to_pylist():
                    known = found.get(key)
                    if known is None or known[0] < done:
                        found[key] = (done, piece.file_id, log.instant)
    return found


def _copies(
    check: RowCheck, pieces: Sequence[FileSlice], keys: Sequence[str]
) -> Mapping[str, list[tuple[str, str]]]:
    found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    wanted = pa.array(keys, pa.string())
    for piece in pieces:
        for batch in check.batches(piece, [RECORD_KEY, COMMIT_TIME]):
            rows = batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=wanted))
            for row in rows.to_pylist():
                found[row[RECORD_KEY]].append((piece.file_id, row[COMMIT_TIME] or ""))
    return found


def _finding(partition: str, key: str, copies: Copies, record: Record) -> Finding:
    where = "; ".join(
        f"file group {group} by {time} {record.operations.get(time, '(archived)')}".rstrip()
        for group, time in copies
    )
    what = f"the key {key!r} is in {len(copies)} rows: {where}"
    if _is_allowed(partition, copies, record):
        return warning(
            CHECK,
            partition or ".",
            f"{what}; plain inserts do not look for keys that are there",
            "nothing if duplicates are wanted; otherwise delete the key and upsert it",
        )
    return problem(
        CHECK,
        partition or ".",
        f"{what}; no upsert may do that",
        "delete the key and upsert it; then find out which two writers inserted it at once",
    )


def _is_allowed(partition: str, copies: Copies, record: Record) -> bool:
    """Tell whether plain inserts, or writes too old to know, account for all copies but one.

    An upsert updates every copy that it finds. So copies of one commit are older duplicates if
    plain inserts wrote to their file groups before.
    """
    blind = [time for _, time in copies if record.operations.get(time, "") in _BLIND_OR_UNKNOWN]
    if len(blind) >= len(copies) - 1:
        return True
    if len({time for _, time in copies}) > 1:
        return False
    before = {
        named.group
        for named in record.named
        if record.operations.get(named.requested) in _BLIND and named.requested < copies[0][1]
    }
    return sum((partition, group) in before for group, _ in copies) >= len(copies) - 1
