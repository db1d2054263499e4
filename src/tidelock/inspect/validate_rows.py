"""Checks of rows: meta columns, keys and log blocks, batch by batch for each file slice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.core.errors import TidelockError
from tidelock.core.limits import VALIDATED_KEYS_MAX
from tidelock.execution.filegroup.log_layers import read_layers
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.filegroup.read import slice_batches
from tidelock.hudi.file_groups import FileSlice, LogFile
from tidelock.hudi.keys import KeyRule, partition_paths, record_keys
from tidelock.hudi.log_blocks import CorruptBlock, read_log
from tidelock.hudi.schema import COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.inspect.validate_files import CompletedFiles
from tidelock.inspect.validate_findings import ValidationCheck, ValidationFinding
from tidelock.storage.contract import ObjectStore

ROWS: Final = ValidationCheck("rows")


@dataclass(frozen=True, slots=True)
class RowCheck:
    """How the rows of a table are read and checked. Without `keys`, keys are not recomputed."""

    store: ObjectStore
    schema: pa.Schema
    merge: MergeRule
    keys: KeyRule | None
    committed: Collection[str]
    """Request times of completed writes."""
    start: str | None
    """Writes before this time are archived."""

    @property
    def columns(self) -> list[str]:
        """The columns that the check reads."""
        names = [COMMIT_TIME, RECORD_KEY, PARTITION_PATH, FILE_NAME]
        if self.keys is not None:
            names += [_top(name, self.schema) for name in (*self.keys.keys, *self.keys.partitions)]
        return list(dict.fromkeys(names))

    def batches(self, piece: FileSlice, columns: list[str]) -> Iterator[pa.Table]:
        """Yield columns of the merged rows of a slice."""
        return slice_batches(self.store, piece, self.schema, rule=self.merge, columns=columns)


@dataclass(slots=True)
class SliceReport:
    """The wrong rows of one slice: their number by kind, and the first key of each kind."""

    where: str
    rows: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    unreadable: ValidationFinding | None = None

    def count(self, what: str, wrong: pa.Array, batch: pa.Table) -> None:
        """Count the rows for which `wrong` is true."""
        found = batch.column(RECORD_KEY).filter(wrong)
        if len(found):
            self.wrong[what] += len(found)
            self.first.setdefault(what, str(found[0].as_py()))

    def findings(self) -> Iterator[ValidationFinding]:
        """Yield one finding for each kind."""
        for what, number in sorted(self.wrong.items()):
            rows = "1 row" if number == 1 else f"{number:,} rows"
            yield ROWS.problem(
                self.where,
                f"{rows}, the first with the key {self.first[what]!r}: {what}",
                "find the writer of this file; upserting these rows again repairs them",
            )
        if self.unreadable is not None:
            yield self.unreadable


def check_slice(
    check: RowCheck, piece: FileSlice, on_keys: Callable[[pa.ChunkedArray], None]
) -> SliceReport:
    """Check the rows of a slice, and pass the record keys of each batch to `on_keys`."""
    where = piece.base.key if piece.base is not None else piece.logs[0].key
    report = SliceReport(where)
    try:
        for batch in check.batches(piece, check.columns):
            report.rows += batch.num_rows
            _check_batch(check, piece, batch, report)
            on_keys(batch.column(RECORD_KEY))
    except TidelockError as error:
        step = error.hint or "restore the file from a copy, or roll back its write"
        reason = error.message.removeprefix(f"{check.store.uri}/")
        report.unreadable = ROWS.problem(where, f"its rows cannot be read: {reason}", step)
    return report


def _check_batch(check: RowCheck, piece: FileSlice, batch: pa.Table, report: SliceReport) -> None:
    own = [piece.file_id, *([piece.base.name] if piece.base is not None else [])]
    report.count("the record key is null", pc.is_null(batch.column(RECORD_KEY)), batch)
    report.count(
        f"{PARTITION_PATH} is not the folder {piece.partition!r}",
        _differs(batch.column(PARTITION_PATH), piece.partition),
        batch,
    )
    report.count(
        f"{FILE_NAME} is neither the base file nor the file group",
        pc.invert(_among(batch.column(FILE_NAME), own)),
        batch,
    )
    times = batch.column(COMMIT_TIME)
    known = _among(times, sorted(check.committed))
    if check.start is not None:
        known = pc.or_(known, pc.fill_null(pc.less(times, check.start), fill_value=False))
    report.count(f"{COMMIT_TIME} is not of a completed write", pc.invert(known), batch)
    if check.keys is not None:
        _check_keys(check.keys, piece, batch, report)


def _check_keys(rule: KeyRule, piece: FileSlice, batch: pa.Table, report: SliceReport) -> None:
    try:
        computed, folders = record_keys(batch, rule), partition_paths(batch, rule)
    except TidelockError as error:
        # A key column is null or missing in the schema: no row of the batch is correct.
        all_rows = pa.array([True] * batch.num_rows)
        report.count(f"no key can be computed from its columns: {error.message}", all_rows, batch)
        return
    differs = pc.fill_null(pc.not_equal(batch.column(RECORD_KEY), computed), fill_value=True)
    report.count(f"{RECORD_KEY} differs from the key computed from its columns", differs, batch)
    report.count(
        "its columns belong to another partition", _differs(folders, piece.partition), batch
    )


def _differs(values: pa.ChunkedArray | pa.Array, expected: str) -> pa.Array:
    return pc.fill_null(pc.not_equal(values, expected), fill_value=True)


def _among(values: pa.ChunkedArray, allowed: list[str]) -> pa.Array:
    return pc.is_in(values, value_set=pa.array(allowed, pa.string()))


def _top(name: str, schema: pa.Schema) -> str:
    """Return the top-level column of a field, which may be inside a struct (`a.b`)."""
    return name if name in schema.names else name.partition(".")[0]


_SAMPLE_STRIDE: Final = 997
"""The sampling interval for the split points; prime, so that it matches no pattern in the keys."""


class PartitionKeys:
    """Finds duplicate keys of one partition with bounded memory."""

    def __init__(self, *, held_max: int = VALIDATED_KEYS_MAX) -> None:
        """Hold at most `held_max` keys in memory."""
        self._held_max = held_max
        self._held: list[pa.Array] = []
        self._sample: list[str] = []
        self._count = 0

    def add(self, keys: pa.ChunkedArray) -> None:
        """Add the keys of a batch."""
        stride = min(_SAMPLE_STRIDE, max(1, self._held_max // 4))
        first = -self._count % stride
        sampled = keys.take(pa.array(range(first, len(keys), stride), pa.int64()))
        self._sample += [key for key in sampled.to_pylist() if key is not None]
        self._count += len(keys)
        if self._count <= self._held_max:
            self._held += keys.chunks
        else:
            self._held.clear()

    def duplicates(self, read_again: Callable[[], Iterable[pa.ChunkedArray]]) -> Iterator[str]:
        """Yield each key that was added more than once; `read_again` reads all keys again."""
        if self._count <= self._held_max:
            yield from _duplicates(self._held)
            return
        for low, high in self._ranges():
            in_range: list[pa.Array] = []
            for keys in read_again():
                in_range += keys.filter(_within(keys, low, high)).chunks
            yield from _duplicates(in_range)

    def _ranges(self) -> Iterator[tuple[str | None, str | None]]:
        # Ranges of half the allowed size, since sampled split points are approximate.
        parts = 2 * -(-self._count // self._held_max)
        sample = sorted(self._sample)
        cuts = sorted({sample[len(sample) * part // parts] for part in range(1, parts)})
        yield from zip([None, *cuts], [*cuts, None], strict=True)


def _within(keys: pa.ChunkedArray, low: str | None, high: str | None) -> pa.ChunkedArray:
    above = pc.is_valid(keys) if low is None else pc.greater_equal(keys, low)
    return above if high is None else pc.and_(above, pc.less(keys, high))


def _duplicates(chunks: list[pa.Array]) -> Iterator[str]:
    table = pa.table({"key": pa.chunked_array(chunks, pa.string())})
    counted = table.group_by("key").aggregate([([], "count_all")])
    found = counted.filter(pc.greater(counted["count_all"], 1)).column("key").drop_null()
    yield from sorted(found.to_pylist())


DUPLICATES: Final = ValidationCheck("keys")
SHOWN_MAX: Final = 10
"""The number of duplicate keys per partition that are reported in detail."""

_UNCHECKED: Final = frozenset(
    {
        OperationType.INSERT,
        OperationType.INSERT_PREPPED,
        OperationType.BULK_INSERT,
        OperationType.BULK_INSERT_PREPPED,
        OperationType.INSERT_OVERWRITE,
        OperationType.INSERT_OVERWRITE_TABLE,
    }
)
"""Operations that do not check whether a key exists."""

_UNCHECKED_OR_UNKNOWN: Final = _UNCHECKED | {""}

Copies = Sequence[tuple[str, str]]
"""File group and commit time of each row with one key."""


def duplicate_findings(
    check: RowCheck, pieces: Sequence[FileSlice], keys: Sequence[str], record: CompletedFiles
) -> Iterator[ValidationFinding]:
    """Yield a finding for each of the first duplicate keys, and one for the rest."""
    partition = pieces[0].partition
    shown = keys[:SHOWN_MAX]
    copies = _copies(check, pieces, shown)
    for key in shown:
        yield _finding(partition, key, copies[key], record)
    if len(keys) > len(shown):
        yield DUPLICATES.problem(
            partition or ".",
            f"{len(keys) - len(shown):,} more keys occur in several rows",
            "repair the keys above first, then validate again",
        )


def check_deleted_keys(
    check: RowCheck, pieces: Sequence[FileSlice], record: CompletedFiles
) -> Iterator[ValidationFinding]:
    """Find keys that a log file deleted and that have an older row in another file group.

    Raises: the errors of reading log files.
    """
    deleted = _deleted(check, pieces, record)
    if not deleted:
        return
    keys = pa.array(sorted(deleted), pa.string())
    for piece in pieces:
        for batch in check.batches(piece, [RECORD_KEY, COMMIT_TIME]):
            rows = batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=keys))
            for row in rows.to_pylist():
                done = record.completions.get(row[COMMIT_TIME] or "")
                completion, group, instant = deleted[row[RECORD_KEY]]
                if done is not None and done < completion and group != piece.file_id:
                    yield DUPLICATES.problem(
                        piece.partition or ".",
                        f"the key {row[RECORD_KEY]!r} was deleted by {instant} in file group"
                        f" {group}, but an older row of {row[COMMIT_TIME]} is in file group"
                        f" {piece.file_id}",
                        "delete the key again, then validate again",
                    )


def _deleted(
    check: RowCheck, pieces: Sequence[FileSlice], record: CompletedFiles
) -> Mapping[str, tuple[str, str, str]]:
    """Return the last delete of each key: completion time, file group and request time."""
    found: dict[str, tuple[str, str, str]] = {}
    for piece in pieces:
        for log in piece.logs:
            done = record.completions.get(log.instant)
            merged = record.operations.get(log.instant) == OperationType.LOG_COMPACT
            if done is None or merged:  # the merged log files are read as well
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
    key_set = pa.array(keys, pa.string())
    for piece in pieces:
        for batch in check.batches(piece, [RECORD_KEY, COMMIT_TIME]):
            rows = batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=key_set))
            for row in rows.to_pylist():
                found[row[RECORD_KEY]].append((piece.file_id, row[COMMIT_TIME] or ""))
    return found


def _finding(partition: str, key: str, copies: Copies, record: CompletedFiles) -> ValidationFinding:
    where = "; ".join(
        f"file group {group} by {time} {record.operations.get(time, '(archived)')}".rstrip()
        for group, time in copies
    )
    what = f"the key {key!r} occurs in {len(copies)} rows: {where}"
    if _is_allowed(partition, copies, record):
        return DUPLICATES.warning(
            partition or ".",
            f"{what}; inserts do not check for existing keys",
            "no action is needed if duplicates are intended; otherwise delete and upsert the key",
        )
    return DUPLICATES.problem(
        partition or ".",
        f"{what}; an upsert never creates duplicates",
        "delete and upsert the key; then find the two writers that inserted it concurrently",
    )


def _is_allowed(partition: str, copies: Copies, record: CompletedFiles) -> bool:
    """Return whether inserts, or archived writes, explain all copies but one.

    An upsert updates every copy that it finds. Therefore copies of one commit are older duplicates
    if inserts wrote to their file groups before.
    """
    unchecked = [
        time for _, time in copies if record.operations.get(time, "") in _UNCHECKED_OR_UNKNOWN
    ]
    if len(unchecked) >= len(copies) - 1:
        return True
    if len({time for _, time in copies}) > 1:
        return False
    before = {
        named.group
        for named in record.named
        if record.operations.get(named.requested) in _UNCHECKED and named.requested < copies[0][1]
    }
    return sum((partition, group) in before for group, _ in copies) >= len(copies) - 1


LOGS: Final = ValidationCheck("logs")


def check_log(store: ObjectStore, log: LogFile) -> Iterator[ValidationFinding]:
    """Check a log file of a completed write."""
    blocks = 0
    restore = f"restore it from a copy, or roll back the write {log.instant}"
    try:
        for block in read_log(store, log):
            blocks += 1
            if isinstance(block, CorruptBlock):
                yield LOGS.problem(
                    log.key,
                    f"a block of {block.size_bytes:,} bytes at offset {block.offset:,} is corrupt"
                    f" ({block.reason}); readers skip it, and its rows are lost",
                    restore,
                )
            elif block.instant != log.instant:
                yield LOGS.problem(
                    log.key,
                    f"it belongs to the write {log.instant}, but has a block of {block.instant}",
                    "time travel reads misplace it: compact this file group",
                )
    except TidelockError as error:
        reason = error.message.removeprefix(f"{store.uri}/")
        yield LOGS.problem(log.key, f"cannot be read: {reason}", error.hint or restore)
        return
    if not blocks:
        yield LOGS.problem(log.key, "it has no block", restore)
