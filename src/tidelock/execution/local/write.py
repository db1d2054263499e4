"""The local write engine: Arrow tables in, file groups written in threads."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.core.errors import Conflict, InvalidInput, InvariantBroken
from tidelock.core.threads import ParallelMap, worker_pool
from tidelock.execution.engine import (
    MISSING_KEYS_MAX,
    IsCancelled,
    PreparedRows,
    PrepareRule,
    SlotOrder,
    TaggedRows,
    TagRule,
    prepare_rows,
    repeat_for_partitions,
    results_by_slot,
    row_identities,
    run_task,
    slot_orders,
    task_waves,
)
from tidelock.execution.filegroup.context import FileResult, FileTarget, WriteContext
from tidelock.execution.filegroup.key_lookup import (
    IndexKind,
    bucket_groups,
    find_keys,
    find_live_keys,
)
from tidelock.execution.filegroup.parquet_splice import GENERATED_COLUMNS, ColumnwiseFile
from tidelock.execution.local.read import default_workers
from tidelock.execution.write_plan import (
    FILE_ID,
    TOMBSTONE,
    GroupTask,
    PartitionProfile,
    Profile,
    TaskKind,
    WritePlan,
    group_codes,
)
from tidelock.hudi.file_groups import FileSlice, GroupId
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY, as_array, row_numbers
from tidelock.storage.contract import ObjectStore

COLUMNWISE_BYTES_MIN: Final = 64 * 1024 * 1024
"""Smaller batches are written row-wise: columnwise writing has a cost per column and file."""


def is_columnwise(rows: pa.Table, plan: WritePlan) -> bool:
    """Return whether a write only creates one file per group, from many unsorted rows."""
    return bool(
        len(plan.tasks) <= FILES_MAX
        and rows.nbytes >= COLUMNWISE_BYTES_MIN
        and TOMBSTONE not in rows.column_names
        and not plan.ranged
        and not plan.order_by
        and all(task.kind is TaskKind.CREATE and not task.rolls_over for task in plan.tasks)
    )


FILES_MAX: Final = 64
"""The maximum number of files for columnwise writing, which has all files open at once."""

GROUP_ROWS_MAX: Final = 128 * 1024
"""The maximum row group size, so that range reads need not read whole files."""


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A file being written: its slot, and its number of rows up to the end of each portion."""

    slot: int
    writer: ColumnwiseFile
    ends: list[int]

    def within(self, span: range) -> range:
        """Return the row numbers of the file in `span`."""
        return range(span.start, min(span.stop, self.ends[-1]))

    def portions(self, span: range) -> range:
        """Return the portions that contain its rows in `span`."""
        rows = self.within(span)
        return range(bisect_right(self.ends, rows.start), bisect_left(self.ends, rows.stop) + 1)


def write_by_columns(
    store: ObjectStore,
    context: WriteContext,
    rows: pa.Table,
    plan: WritePlan,
    *,
    each: ParallelMap,
    check: Callable[[], None],
) -> list[tuple[int, tuple[FileResult, ...]]]:
    """Write the file of every task, column by column, and return the results by slot.

    Raises: as uploading, and as `check`, which may cancel the write.
    """
    portions = slot_orders(rows, plan, each)
    with ExitStack() as stack:

        def open_file(task: GroupTask) -> _OpenFile:
            target = FileTarget(task.partition, task.file_id, task.slot)
            base_file = stack.enter_context(ColumnwiseFile(store, context, target))
            return _OpenFile(task.slot, base_file, _row_ends(portions, task.slot))

        check()
        tasks = [task for task in plan.tasks if _row_ends(portions, task.slot)[-1]]
        files = each(open_file, tasks)
        largest = max(file.ends[-1] for file in files)
        size = _group_rows(rows, context, largest)
        for first in range(0, largest, size):
            unfinished = [file for file in files if file.ends[-1] > first]
            for name in context.schema.names:
                check()
                _write_column(name, unfinished, portions, range(first, first + size), each)
            for file in unfinished:
                file.writer.end_group()
        return each(lambda file: (file.slot, (file.writer.finish(),)), files)


def _row_ends(portions: Sequence[SlotOrder], slot: int) -> list[int]:
    """Return the number of rows of a slot up to the end of each portion."""
    return list(accumulate(part.start(slot + 1) - part.start(slot) for part in portions))


def _write_column(
    name: str, files: list[_OpenFile], portions: list[SlotOrder], span: range, each: ParallelMap
) -> None:
    """Write a column of the rows of each file whose numbers are in `span`."""
    if name in GENERATED_COLUMNS:
        each(lambda file: file.writer.add_generated(name, len(file.within(span))), files)
        return
    portion_numbers = sorted({number for file in files for number in file.portions(span)})
    parts = [portions[number] for number in portion_numbers]
    columns = each(lambda part: pc.take(part.rows.column(name), part.order), parts)
    ordered = dict(zip(portion_numbers, columns, strict=True))

    def write_file(file: _OpenFile) -> None:
        numbers, chunks = file.portions(span), []
        for number in numbers:
            start, end = (portions[number].start(file.slot + more) for more in (0, 1))
            chunks.append(ordered[number].slice(start, end - start))
        column = pa.chunked_array(chunks)
        before = file.ends[numbers[0] - 1] if numbers[0] else 0
        rows = file.within(span)
        file.writer.add(name, column.slice(rows.start - before, len(rows)))

    each(write_file, files)


def _group_rows(rows: pa.Table, context: WriteContext, largest: int) -> int:
    """Return the size of row groups, so that those of the largest file are about equal."""
    width = max(1, rows.nbytes // max(1, rows.num_rows))
    rows_max = min(GROUP_ROWS_MAX, max(1, context.settings.row_group_bytes // int(width)))
    groups = -(-largest // rows_max)
    return -(-largest // groups)


S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LocalWriter:
    """Writes to one table with up to `workers` threads; a single task runs in the caller's."""

    store: ObjectStore
    workers: int = field(default_factory=default_workers)
    retries_tasks: bool = field(default=False, init=False)

    def schema(self, data: object) -> pa.Schema:
        """Return the schema of an Arrow table."""
        return _arrow_table(data).schema

    def prepare(self, data: object, rule: PrepareRule) -> PreparedRows:
        """Prepare the rows of an Arrow table."""
        rows = prepare_rows(_arrow_table(data), rule)
        paths = rows.column(PARTITION_PATH).unique().drop_null().to_pylist()
        return PreparedRows(rows, rows.num_rows, tuple(sorted(paths)))

    def tag(self, prepared: PreparedRows, rule: TagRule) -> TaggedRows:
        """Return the rows with the file groups that the index finds."""
        rows = _arrow_table(prepared.rows)
        if rule.anywhere:
            rows = repeat_for_partitions(rows, list(rule.partitions))
        rows = self._locate(rows, rule)
        deletes = rule.drop_missing or rule.delete_column in rows.column_names
        if not deletes and not rule.drop_found:
            # Nothing is dropped, so it does not matter which keys exist.
            return TaggedRows(rows, _profile(rows))
        found = self._known_rows(rows, rule)
        missing = _deletes_of_missing(rows, rule, found)
        dropped = pc.or_(missing, found) if rule.drop_found else missing
        if not pc.any(dropped).as_py():
            return TaggedRows(rows, _profile(rows))
        remaining = rows.filter(pc.invert(dropped))
        return TaggedRows(remaining, _profile(remaining), _keys_by_partition(rows.filter(missing)))

    def write(
        self,
        tagged: TaggedRows,
        plan: WritePlan,
        context: WriteContext,
        *,
        is_cancelled: IsCancelled | None = None,
    ) -> tuple[FileResult, ...]:
        """Write every file group of the plan, several at a time, unless `is_cancelled`."""

        def check() -> None:
            if is_cancelled is not None and (reason := is_cancelled()) is not None:
                raise Conflict(
                    f"write {context.instant} was cancelled: {reason}",
                    hint="the write is retried on the latest version of the table",
                )

        def run(part: tuple[GroupTask, pa.Table]) -> tuple[int, tuple[FileResult, ...]]:
            check()
            return part[0].slot, run_task(self.store, context, *part)

        rows = _arrow_table(tagged.rows)
        if is_columnwise(rows, plan):
            with worker_pool("tidelock-load", self.workers) as pool:

                def each(run: Callable[[S], T], work: Sequence[S]) -> list[T]:
                    futures = [pool.submit(run, one) for one in work]
                    wait(futures)  # discard files only when no thread writes to them
                    return [future.result() for future in futures]

                return results_by_slot(
                    write_by_columns(self.store, context, rows, plan, each=each, check=check)
                )
        done = []
        for wave in task_waves(rows, plan, self._map, tasks_min=self.workers):
            done += self._map(run, wave)
        return results_by_slot(done)

    def release(self, prepared: PreparedRows) -> None:
        """Do nothing: there are no resources to free."""

    def _locate(self, rows: pa.Table, rule: TagRule) -> pa.Table:
        """Return the rows with their file ids, one row for each group that has the key."""
        match rule.kind:
            case IndexKind.NONE:
                return _with_file_ids(rows, pa.nulls(rows.num_rows, pa.string()))
            case IndexKind.BUCKET:
                if rule.bucket is None:
                    raise InvariantBroken("the tag rule of a bucket index has no bucket rule")
                return _with_file_ids(rows, bucket_groups(rows, rule.bucket, self._map))
            case IndexKind.SIMPLE | IndexKind.BLOOM:
                at, groups = self._look_up(rows, rule)
                return _join_groups(rows, at, groups)

    def _look_up(self, rows: pa.Table, rule: TagRule) -> tuple[pa.Array, pa.Array]:
        """Return the positions of rows whose key is in their partition, and the file id of each.

        After blind inserts a key may be in several groups; its position is then repeated.
        """
        keys = row_identities(rows).dictionary_encode()
        if len(keys.dictionary) == rows.num_rows:
            return self._drop_deleted(rows, *self.find_groups(rows, rule), rule)
        # Look up each key once; the result applies to all rows that have it.
        first = pc.index_in(keys.dictionary, value_set=keys.cast(pa.string()))
        unique_rows = rows.take(first)
        at, groups = self._drop_deleted(unique_rows, *self.find_groups(unique_rows, rule), rule)
        all_rows = pa.table({"code": keys.indices, "at": row_numbers(rows.num_rows)})
        found = pa.table({"code": at.cast(keys.indices.type), "group": groups})
        matches = all_rows.join(found, "code", join_type="inner").sort_by("at")
        return as_array(matches.column("at")), as_array(matches.column("group"))

    def find_groups(self, rows: pa.Table, rule: TagRule) -> tuple[pa.Array, pa.Array]:
        """Look up rows with unique keys; returns the same as `_look_up`.

        Keys that log files deleted are included, unless found rows are to be dropped.
        """
        paths = as_array(rows.column(PARTITION_PATH))
        keys = as_array(rows.column(RECORD_KEY))
        names = paths.unique().to_pylist()
        # With one partition, as in most small writes, no row is copied.
        rows_in = {
            name: None if len(names) == 1 else pc.indices_nonzero(pc.equal(paths, name))
            for name in names
        }
        chosen = [file_slice for file_slice in rule.slices if file_slice.partition in rows_in]

        def look_up(file_slice: FileSlice) -> tuple[FileSlice, pa.Array]:
            selected = rows_in[file_slice.partition]
            candidates = keys if selected is None else keys.take(selected)
            logged = rule.logged_slice(file_slice) if rule.drop_found else None
            if rule.live is None or logged is None:
                found = find_keys(self.store, file_slice, candidates, rule.kind)
            else:
                found = find_live_keys(self.store, logged, candidates, rule.live)
            return file_slice, found if selected is None else selected.take(found).cast(pa.int64())

        found = [(each.file_id, at) for each, at in self._map(look_up, chosen) if len(at)]
        positions = pa.concat_arrays([pa.array([], pa.int64()), *(at for _, at in found)])
        groups = [pa.repeat(pa.scalar(file_id), len(at)) for file_id, at in found]
        return positions, pa.concat_arrays([pa.array([], pa.string()), *groups])

    def _drop_deleted(
        self, rows: pa.Table, at: pa.Array, groups: pa.Array, rule: TagRule
    ) -> tuple[pa.Array, pa.Array]:
        """Drop groups in which a key was deleted from the result of a lookup.

        Only keys in several groups are checked. A key that is live in none keeps the first group.
        """
        live = rule.live
        if live is None or rule.drop_found or pc.count_distinct(at).as_py() == len(at):
            return at, groups
        repeated = _repeated_positions(at)
        paths, keys = (as_array(rows.column(name)) for name in (PARTITION_PATH, RECORD_KEY))
        pairs = zip(
            paths.take(at.take(repeated)).to_pylist(),
            groups.take(repeated).to_pylist(),
            strict=True,
        )
        to_check: dict[GroupId, list[int]] = {}
        for number, pair in zip(repeated.to_pylist(), pairs, strict=True):
            if pair in live.logged:
                to_check.setdefault(pair, []).append(number)

        def find_deleted(part: tuple[GroupId, list[int]]) -> list[int]:
            group, numbers = part
            group_keys = keys.take(at.take(pa.array(numbers)))
            alive = find_live_keys(self.store, live.logged[group], group_keys, live).to_pylist()
            return [numbers[i] for i in {*range(len(numbers))}.difference(alive)]

        retained = np.ones(len(at), dtype=bool)
        for deleted in self._map(find_deleted, list(to_check.items())):
            retained[deleted] = False
        rows_at = at.to_numpy(zero_copy_only=False)
        alive_at = np.isin(rows_at, rows_at[retained])
        first = np.zeros(len(at), dtype=bool)
        first[np.unique(rows_at, return_index=True)[1]] = True
        chosen = pa.array(retained | (first & ~alive_at))
        return at.filter(chosen), groups.filter(chosen)

    def _known_rows(self, rows: pa.Table, rule: TagRule) -> pa.Array:
        """Mark the rows whose key, or at least whose bucket's group, exists in the table."""
        if rule.kind is not IndexKind.BUCKET:
            return as_array(rows.column(FILE_ID)).is_valid()
        if rule.drop_found:
            at, _ = self._look_up(rows, rule)
            return pc.is_in(row_numbers(rows.num_rows), value_set=at)
        at, pairs = group_codes(rows)
        known = {(file_slice.partition, file_slice.file_id) for file_slice in rule.slices}
        return pa.array([pair in known for pair in pairs], pa.bool_()).take(at)

    def _map(self, run: Callable[[S], T], work: Sequence[S]) -> list[T]:
        """Apply `run` to each item, in threads; results are in order, the first error is raised."""
        workers = min(self.workers, len(work))
        if workers <= 1:
            return list(map(run, work))
        with worker_pool("tidelock-write", workers) as pool:
            futures = [pool.submit(run, each) for each in work]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                raise


def _deletes_of_missing(rows: pa.Table, rule: TagRule, found: pa.Array) -> pa.Array:
    """Mark the rows that delete keys which do not exist."""
    if rule.drop_missing:
        return pc.invert(found)
    if rule.delete_column is None or rule.delete_column not in rows.column_names:
        return pa.repeat(pa.scalar(value=False), rows.num_rows)
    deletes = pc.fill_null(as_array(rows.column(rule.delete_column)), fill_value=False)
    return pc.and_(deletes, pc.invert(found))


def _keys_by_partition(rows: pa.Table) -> dict[str, frozenset[str] | None]:
    """Return the keys of rows by partition, None where there are too many."""
    found: dict[str, frozenset[str] | None] = {}
    paths = as_array(rows.column(PARTITION_PATH))
    for partition in paths.unique().to_pylist():
        keys = rows.column(RECORD_KEY).filter(pc.equal(paths, partition))
        is_small = len(keys) <= MISSING_KEYS_MAX
        found[partition] = frozenset(keys.to_pylist()) if is_small else None
    return found


def _profile(rows: pa.Table) -> Profile:
    at, pairs = group_codes(rows)
    counts = np.bincount(at.to_numpy(zero_copy_only=False), minlength=len(pairs))
    inserts: dict[str, int] = {}
    updates: dict[str, dict[str, int]] = {}
    for (partition, file_id), count in zip(pairs, counts.tolist(), strict=True):
        if file_id is None:
            inserts[partition] = count
        else:
            updates.setdefault(partition, {})[file_id] = count
    return {
        partition: PartitionProfile(
            inserts.get(partition, 0), dict(sorted(updates.get(partition, {}).items()))
        )
        for partition in sorted({*inserts, *updates})
    }


def _join_groups(rows: pa.Table, at: pa.Array, groups: pa.Array) -> pa.Table:
    """Return the rows with their groups: once each, and again for each further group."""
    first = pc.index_in(row_numbers(rows.num_rows), value_set=at)
    tagged = _with_file_ids(rows, groups.take(first))
    if len(at) == len(first) - first.null_count:
        return tagged
    firsts = first.drop_null().cast(pa.int64())
    is_repeated = pc.invert(pc.is_in(row_numbers(len(at)), value_set=firsts))
    repeated = _with_file_ids(rows.take(at.filter(is_repeated)), groups.filter(is_repeated))
    return pa.concat_tables([tagged, repeated])


def _with_file_ids(rows: pa.Table, groups: pa.Array) -> pa.Table:
    return rows.append_column(pa.field(FILE_ID, groups.type), groups)


def _repeated_positions(at: pa.Array) -> pa.Array:
    """Return the positions of values that occur more than once."""
    counts = at.value_counts()
    often = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    return pc.indices_nonzero(pc.is_in(at, value_set=often)).cast(pa.int64())


def _arrow_table(data: object) -> pa.Table:
    if not isinstance(data, pa.Table):
        raise InvalidInput(f"local engine: expected an Arrow table, got {type(data).__name__}")
    return data
