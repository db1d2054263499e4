"""The local engine's writing half: rows in Arrow tables, file groups written in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.errors import Conflict, InvalidInput, InvariantBroken
from tidelock.base.runtime import worker_pool
from tidelock.engine.contract import (
    MISSING_KEYS_MAX,
    Doomed,
    GroupTask,
    PartitionProfile,
    Prepared,
    Profile,
    Tagged,
    TagRule,
    WritePlan,
)
from tidelock.engine.local import default_workers
from tidelock.engine.task import by_slot, in_order, run_task, runs_without_rows
from tidelock.kernel.context import WriteContext
from tidelock.kernel.lookup import BucketRule, IndexKind, bucket_groups, keys_found
from tidelock.kernel.prepare import PrepareRule, identities, prepared, spread
from tidelock.kernel.results import FileResult
from tidelock.kernel.route import FILE_ID, slots
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.schema.meta import PARTITION_PATH, RECORD_KEY

S = TypeVar("S")
T = TypeVar("T")

SORTED_ROWS: Final = 32 * 1024
"""Rows that are sorted by slot together: more would leave the processor's cache on the way."""


@dataclass(frozen=True, slots=True)
class LocalWriter:
    """Writes to one table with up to `workers` threads; a single task needs none."""

    store: ObjectStore
    workers: int = field(default_factory=default_workers)

    @property
    def tries_twice(self) -> bool:
        """Each task runs once: one that fails ends the write."""
        return False

    def schema(self, data: object) -> pa.Schema:
        """Return the columns of an Arrow table."""
        return _table(data).schema

    def prepare(self, data: object, rule: PrepareRule) -> Prepared:
        """Return the rows of an Arrow table, prepared."""
        rows = prepared(_table(data), rule)
        paths = rows.column(PARTITION_PATH).unique().drop_null().to_pylist()
        return Prepared(rows, rows.num_rows, tuple(sorted(paths)))

    def tag(self, prepared: Prepared, rule: TagRule) -> Tagged:
        """Return the rows with the file groups that the index finds."""
        rows = _table(prepared.rows)
        if rule.anywhere:
            rows = spread(rows, list(rule.partitions))
        rows = self._located(rows, rule)
        deletes = rule.drop_missing or rule.deletes_by in rows.column_names
        if not deletes and not rule.drop_found:
            # Nothing is dropped, so nobody asks which keys the table has.
            return Tagged(rows, _profile(rows))
        found = self._found(rows, rule)
        gone = _nothing_to_delete(rows, rule, found)
        dropped = pc.or_(gone, found) if rule.drop_found else gone
        if not pc.any(dropped).as_py():
            return Tagged(rows, _profile(rows))
        kept = rows.filter(pc.invert(dropped))
        return Tagged(kept, _profile(kept), _keys_of(rows.filter(gone)))

    def write(
        self,
        tagged: Tagged,
        plan: WritePlan,
        context: WriteContext,
        *,
        doomed: Doomed | None = None,
    ) -> tuple[FileResult, ...]:
        """Write every file group of the plan, several at a time; `doomed` is asked before each."""

        def run(part: tuple[GroupTask, pa.Table]) -> tuple[int, tuple[FileResult, ...]]:
            task, rows = part
            if doomed is not None and (reason := doomed()) is not None:
                raise Conflict(
                    f"the write of {context.instant} was stopped: {reason}",
                    hint="it is tried again on what the others have written",
                )
            return task.slot, run_task(self.store, context, task, rows)

        done = self._all(run, list(parts(_table(tagged.rows), plan, self._all)))
        return by_slot(done)

    def release(self, prepared: Prepared) -> None:
        """Nothing is kept beyond the objects themselves."""

    def _located(self, rows: pa.Table, rule: TagRule) -> pa.Table:
        """Return the rows with their file ids, a row for each group that has its key."""
        match rule.kind:
            case IndexKind.NONE:
                return _with_groups(rows, pa.nulls(rows.num_rows, pa.string()))
            case IndexKind.BUCKET:
                return _with_groups(rows, bucket_groups(rows, _bucket(rule)))
            case IndexKind.SIMPLE | IndexKind.BLOOM:
                at, groups = self._looked_up(rows, rule.slices, rule.kind)
                return _joined(rows, at, groups)

    def _looked_up(
        self, rows: pa.Table, slices: Iterable[FileSlice], kind: IndexKind
    ) -> tuple[pa.Array, pa.Array]:
        """Return the places of rows whose key their partition has, and the file id of each.

        After blind inserts a key may be in several groups; then its row's place comes as often.
        """
        keys = identities(rows).dictionary_encode()
        if len(keys.dictionary) == rows.num_rows:
            return self.hits(rows, slices, kind)
        # Each key is looked for once, and what is found holds for all rows that have it.
        first = pc.index_in(keys.dictionary, value_set=keys.cast(pa.string()))
        at, groups = self.hits(rows.take(first), slices, kind)
        every = pa.table({"code": keys.indices, "at": _counted(rows.num_rows)})
        found = pa.table({"code": at.cast(keys.indices.type), "group": groups})
        both = every.join(found, "code", join_type="inner").sort_by("at")
        return _whole(both.column("at")), _whole(both.column("group"))

    def hits(
        self, rows: pa.Table, slices: Iterable[FileSlice], kind: IndexKind
    ) -> tuple[pa.Array, pa.Array]:
        """Return what `_looked_up` does, for rows of different keys."""
        paths = _whole(rows.column(PARTITION_PATH))
        keys = _whole(rows.column(RECORD_KEY))
        inside: dict[str, pa.Array] = {}
        names = paths.unique().to_pylist()
        for name in names:
            # With one partition, as in most small writes, no row is moved.
            mine = None if len(names) == 1 else pc.indices_nonzero(pc.equal(paths, name))
            inside[name] = mine
        chosen = [piece for piece in slices if piece.partition in inside]

        def look(piece: FileSlice) -> tuple[FileSlice, pa.Array]:
            mine = inside[piece.partition]
            found = keys_found(self.store, piece, keys if mine is None else keys.take(mine), kind)
            return piece, found if mine is None else mine.take(found).cast(pa.int64())

        hits = [(piece, at) for piece, at in self._all(look, chosen) if len(at)]
        places = pa.concat_arrays([pa.array([], pa.int64()), *(at for _, at in hits)])
        names = [pa.repeat(pa.scalar(piece.file_id), len(at)) for piece, at in hits]
        return places, pa.concat_arrays([pa.array([], pa.string()), *names])

    def _found(self, rows: pa.Table, rule: TagRule) -> pa.Array:
        """Mark the rows whose key, or at least whose bucket's group, the table has."""
        places = _whole(rows.column(FILE_ID))
        if rule.kind is not IndexKind.BUCKET:
            return places.is_valid()
        if rule.drop_found:
            at, _ = self._looked_up(rows, rule.slices, IndexKind.BUCKET)
            return pc.is_in(_counted(rows.num_rows), value_set=at)
        known = pa.array([f"{p.partition}/{p.file_id}" for p in rule.slices], pa.string())
        mine = pc.binary_join_element_wise(_whole(rows.column(PARTITION_PATH)), places, "/")
        return pc.is_in(mine, value_set=known)

    def _all(self, run: Callable[[S], T], work: Sequence[S]) -> list[T]:
        """Return the outcome for each piece of work, in its order; the first error ends it."""
        workers = min(self.workers, len(work))
        if workers <= 1:
            return [run(each) for each in work]
        with worker_pool("tidelock-write", workers) as pool:
            futures = [pool.submit(run, each) for each in work]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                raise


class Each(Protocol):
    """Does something for each of some things, in its order, maybe several at a time."""

    def __call__(self, run: Callable[[S], T], work: Sequence[S], /) -> list[T]:
        """Return the outcomes."""
        ...


def _one_by_one(run: Callable[[S], T], work: Sequence[S]) -> list[T]:
    return [run(each) for each in work]


def parts(
    rows: pa.Table, plan: WritePlan, each: Each = _one_by_one
) -> Iterator[tuple[GroupTask, pa.Table]]:
    """Yield each task to run with its rows."""
    if plan.ranged:
        yield from _runs(rows, plan)
        return
    found = slots(rows, plan.routes)
    if found.null_count:
        raise InvariantBroken(f"{found.null_count} rows have no slot in the plan")
    if len(plan.tasks) == 1:
        yield from _one(plan.tasks[0], rows, plan)
        return
    if rows.num_rows < SORTED_ROWS * rows.column(0).num_chunks:
        rows = rows.combine_chunks()
    sorted_parts = each(lambda part: _sorted(*part), list(_portions(rows, found)))
    for task in sorted(plan.tasks, key=lambda task: task.slot):
        mine = [part.of(task.slot) for part in sorted_parts]
        yield from _one(task, pa.Table.from_batches(mine, schema=rows.schema), plan)


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Some rows, those of each slot together, and where each slot begins; the last one ends."""

    rows: pa.RecordBatch
    starts: tuple[int, ...]

    def of(self, slot: int) -> pa.RecordBatch:
        """Return the rows of a slot."""
        if slot + 1 >= len(self.starts):
            return self.rows.slice(0, 0)
        return self.rows.slice(self.starts[slot], self.starts[slot + 1] - self.starts[slot])


def _portions(rows: pa.Table, found: pa.Array) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """Yield rows with their slots, as many as stay in a processor's cache while they are moved."""
    start = 0
    for batch in rows.to_batches(max_chunksize=SORTED_ROWS):
        yield batch, found.slice(start, batch.num_rows)
        start += batch.num_rows


def _sorted(rows: pa.RecordBatch, found: pa.Array) -> _Sorted:
    counts = np.bincount(found.to_numpy(zero_copy_only=False))
    starts = (0, *(int(end) for end in np.cumsum(counts)))
    return _Sorted(rows.take(pc.sort_indices(found)), starts)


def _runs(rows: pa.Table, plan: WritePlan) -> Iterator[tuple[GroupTask, pa.Table]]:
    """Yield each task with a run of its partition's rows, sorted as a whole."""
    paths = _whole(rows.column(PARTITION_PATH))
    by_partition: dict[str, list[GroupTask]] = {}
    for task in plan.tasks:
        by_partition.setdefault(task.partition, []).append(task)
    for partition, tasks in by_partition.items():
        mine = rows if len(by_partition) == 1 else rows.filter(pc.equal(paths, partition))
        ordered, start = in_order(mine, plan), 0
        for number, task in enumerate(tasks):
            size = ordered.num_rows - start if number == len(tasks) - 1 else task.rows
            if size:
                yield task, ordered.slice(start, size)
            start += size


def _one(task: GroupTask, rows: pa.Table, plan: WritePlan) -> Iterator[tuple[GroupTask, pa.Table]]:
    if rows.num_rows or runs_without_rows(task):
        yield task, in_order(rows, plan)


def _nothing_to_delete(rows: pa.Table, rule: TagRule, found: pa.Array) -> pa.Array:
    """Mark the rows that would delete what the table does not have."""
    if rule.drop_missing:
        return pc.invert(found)
    if rule.deletes_by is None or rule.deletes_by not in rows.column_names:
        return pa.repeat(pa.scalar(value=False), rows.num_rows)
    deletes = pc.fill_null(_whole(rows.column(rule.deletes_by)), fill_value=False)
    return pc.and_(deletes, pc.invert(found))


def _keys_of(rows: pa.Table) -> dict[str, frozenset[str] | None]:
    """Return the keys of rows by partition, None where they are too many to name."""
    found: dict[str, frozenset[str] | None] = {}
    paths = _whole(rows.column(PARTITION_PATH))
    for partition in paths.unique().to_pylist():
        keys = rows.column(RECORD_KEY).filter(pc.equal(paths, partition))
        few = len(keys) <= MISSING_KEYS_MAX
        found[partition] = frozenset(keys.to_pylist()) if few else None
    return found


def _profile(rows: pa.Table) -> Profile:
    if rows.column(FILE_ID).null_count == rows.num_rows:
        paths, sizes = rows.column(PARTITION_PATH).value_counts().flatten()
        found = zip(paths.to_pylist(), sizes.to_pylist(), strict=True)
        return {partition: PartitionProfile(size, {}) for partition, size in sorted(found)}
    counts = rows.group_by([PARTITION_PATH, FILE_ID], use_threads=False).aggregate(
        [([], "count_all")]
    )
    inserts: dict[str, int] = {}
    updates: dict[str, dict[str, int]] = {}
    for row in counts.to_pylist():
        partition, file_id = row[PARTITION_PATH], row[FILE_ID]
        if file_id is None:
            inserts[partition] = row["count_all"]
        else:
            updates.setdefault(partition, {})[file_id] = row["count_all"]
    return {
        partition: PartitionProfile(
            inserts.get(partition, 0), dict(sorted(updates.get(partition, {}).items()))
        )
        for partition in sorted({*inserts, *updates})
    }


def _joined(rows: pa.Table, at: pa.Array, groups: pa.Array) -> pa.Table:
    """Return the rows with their groups: once each, and once more for each further group."""
    first = pc.index_in(_counted(rows.num_rows), value_set=at)
    tagged = _with_groups(rows, groups.take(first))
    if len(at) == len(first) - first.null_count:
        return tagged
    again = pc.invert(pc.is_in(_counted(len(at)), value_set=first.drop_null().cast(pa.int64())))
    more = _with_groups(rows.take(at.filter(again)), groups.filter(again))
    return pa.concat_tables([tagged, more])


def _with_groups(rows: pa.Table, groups: pa.Array) -> pa.Table:
    return rows.append_column(pa.field(FILE_ID, pa.string()), groups)


def _counted(size: int) -> pa.Array:
    ones = pa.repeat(pa.scalar(1, pa.int64()), size)
    return pc.subtract(pc.cumulative_sum(ones), 1)


def _bucket(rule: TagRule) -> BucketRule:
    if rule.bucket is None:
        raise InvariantBroken("rows are tagged by bucket, and the rule has no buckets")
    return rule.bucket


def _table(data: object) -> pa.Table:
    if not isinstance(data, pa.Table):
        raise InvalidInput(f"the local engine takes Arrow tables, not {type(data).__name__}")
    return data


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], column.type)
    return found
