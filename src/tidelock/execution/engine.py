"""The contract of write engines, and what all engines share: preparing rows and running tasks.

Placement is planned outside the engine, from counts: an engine answers `tag` with a `Profile`,
receives a `WritePlan`, and carries it out. So every engine produces the same table from the same
rows.

An engine must
  * prepare, look up and route rows by `prepare_rows`, `filegroup.key_lookup` and `write_plan`;
  * run each task of a plan by `run_task`, possibly several times and in any process: file names are
    derived from the task, so a second run finds and keeps the file of the first one;
  * keep prepared and tagged rows usable until `release`: a conflicted write is planned again.

Prepared rows have `_hoodie_record_key` and `_hoodie_partition_path` before the user's columns.
Those of a delete have nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from typing import Final, Protocol, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.core.errors import InvalidInput, InvariantBroken, Unsupported
from tidelock.core.threads import ParallelMap, sequential_map
from tidelock.execution.filegroup.context import FileKind, FileResult, WriteContext
from tidelock.execution.filegroup.key_lookup import BucketRule, IndexKind, Liveness
from tidelock.execution.filegroup.log_files import append_log
from tidelock.execution.filegroup.merge import (
    Layer,
    Merger,
    MergeRule,
    check_ordering,
    fold_layers,
    fold_layers_with,
    row_layer,
)
from tidelock.execution.filegroup.write import (
    concat_base,
    create_base,
    merge_base,
    revives_older_row,
)
from tidelock.execution.write_plan import (
    FILE_ID,
    SLOT,
    TOMBSTONE,
    GroupTask,
    Profile,
    TaskKind,
    WritePlan,
    assign_slots,
)
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.keys import KeyRule, partition_paths, record_keys
from tidelock.hudi.properties import MergeMode
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY, as_array, conform
from tidelock.storage.contract import ObjectStore


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Rows ready to be written. `rows` is engine-specific (an Arrow table, a data frame)."""

    rows: object
    count: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TagRule:
    """How rows are assigned to file groups, and which rows are dropped.

    `slices` are those of the rows' partitions, or all slices for keys that may be `anywhere`.
    `drop_found` drops rows whose key exists in the table, `drop_missing` those whose key does not.
    Rows marked as deletes by `delete_column` are always dropped if their key does not exist.

    A key deleted in a log file may be inserted again while its base file still has it. `live`
    resolves this for `drop_found`, and for keys in several groups. A row goes to the groups in
    which its key is live, and to one of them if it is live in none.
    """

    kind: IndexKind
    slices: tuple[FileSlice, ...]
    bucket: BucketRule | None = None
    drop_found: bool = False
    drop_missing: bool = False
    anywhere: bool = False
    delete_column: str | None = None
    live: Liveness | None = None

    def logged_slice(self, file_slice: FileSlice) -> FileSlice | None:
        """Return a slice with all its log files; None if it has none, or `live` is not set."""
        known = {} if self.live is None else self.live.logged
        return known.get((file_slice.partition, file_slice.file_id))

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions of the slices."""
        return tuple(sorted({file_slice.partition for file_slice in self.slices}))


MISSING_KEYS_MAX: Final = 2_048
"""The maximum number of missing keys that are reported for a partition."""


@dataclass(frozen=True, slots=True)
class TaggedRows:
    """Prepared rows with the column `write_plan.FILE_ID`, engine-specific, and their counts.

    `missing` has the keys, by partition, to delete that do not exist; None for more than
    `MISSING_KEYS_MAX`. If a concurrent write inserts one, it must be deleted after all.
    """

    rows: object
    profile: Profile
    missing: Mapping[str, frozenset[str] | None] = field(default_factory=dict)


IsCancelled = Callable[[], str | None]
"""Returns why a running write can no longer commit, or None. Thread-safe."""


class WriteEngine(Protocol):
    """Prepares, tags and writes rows of one table."""

    @property
    def retries_tasks(self) -> bool:
        """Whether a task may run more than once, and leave files that are in no result."""
        ...

    def schema(self, data: object) -> pa.Schema:
        """Return the Arrow schema of the user's data. Raises: `InvalidInput`."""
        ...

    def prepare(self, data: object, rule: PrepareRule) -> PreparedRows:
        """Conform, key and deduplicate the data. Raises: `InvalidInput`."""
        ...

    def tag(self, prepared: PreparedRows, rule: TagRule) -> TaggedRows:
        """Assign rows to file groups, and drop rows as the rule says."""
        ...

    def write(
        self,
        tagged: TaggedRows,
        plan: WritePlan,
        context: WriteContext,
        *,
        is_cancelled: IsCancelled | None = None,
    ) -> tuple[FileResult, ...]:
        """Run every task that has rows, and those that run without; results are ordered by slot.

        Raises: `Conflict` once `is_cancelled`, which is polled, returns a reason.
        """
        ...

    def release(self, prepared: PreparedRows) -> None:
        """Free the resources that `prepare` holds for a write."""
        ...


def run_task(
    store: ObjectStore, context: WriteContext, task: GroupTask, rows: pa.Table
) -> tuple[FileResult, ...]:
    """Write the rows of one task and return the results. May run repeatedly and concurrently.

    Raises: `NotFound`, `DataCorrupt`, `InvalidInput`, `StoreUnreachable`, each naming the object.
    """
    plain, deletes = _without_routing(rows), None
    if task.deletes:
        deletes, changes = plain.column(RECORD_KEY).combine_chunks(), None
    elif TOMBSTONE in rows.column_names:
        deleted = pc.fill_null(rows.column(TOMBSTONE), fill_value=False)
        deletes = plain.filter(deleted).column(RECORD_KEY).combine_chunks()
        changes = plain = plain.filter(pc.invert(deleted))
    else:
        changes = plain
    kind = task.kind
    appends = kind is TaskKind.APPEND and task.has_deletes
    if appends and revives_older_row(store, context, _existing_slice(task), changes):
        kind = TaskKind.MERGE
    match kind:
        case TaskKind.CREATE:
            return _create(store, context, task, [plain])
        case TaskKind.REPLACE:
            created = _create(store, context, task, [plain])
            return tuple(_as_replacement(task.file_slice, each) for each in created)
        case TaskKind.MERGE:
            group, slot = _existing_slice(task), task.slot
            return (merge_base(store, context, group, slot=slot, rows=changes, deletes=deletes),)
        case TaskKind.CONCAT:
            return (concat_base(store, context, _existing_slice(task), slot=task.slot, rows=plain),)
        case TaskKind.APPEND:
            return (_append(store, context, task, changes, deletes),)
        case other:
            assert_never(other)


def run_stream(
    store: ObjectStore, context: WriteContext, task: GroupTask, batches: Iterable[pa.Table]
) -> tuple[FileResult, ...]:
    """Run a task on batches of rows. Rows of new files stream; rows to merge are held in memory."""
    if task.kind is TaskKind.CREATE:
        return _create(store, context, task, (_without_routing(rows) for rows in batches))
    return run_task(store, context, task, pa.concat_tables(batches))


def _without_routing(rows: pa.Table) -> pa.Table:
    routing = (FILE_ID, SLOT, TOMBSTONE)
    return rows.drop_columns([name for name in routing if name in rows.column_names])


def _create(
    store: ObjectStore, context: WriteContext, task: GroupTask, rows: Iterable[pa.Table]
) -> tuple[FileResult, ...]:
    if not task.rolls_over:
        # A bucket has exactly one group, whatever its size.
        context = replace(context, settings=replace(context.settings, file_bytes_max=None))
    return create_base(
        store, context, partition=task.partition, file_id=task.file_id, slot=task.slot, rows=rows
    )


def _as_replacement(file_slice: FileSlice | None, result: FileResult) -> FileResult:
    """Return the result of a base file that replaces the content of its group."""
    if file_slice is None:
        return result
    if file_slice.base is None:
        return replace(result, kind=FileKind.MERGED)
    base = file_slice.base
    stat = replace(result.stat, prev_commit=base.instant, prev_base_file=base.name)
    return replace(result, stat=stat, kind=FileKind.MERGED, replaced_base=base.name)


def _append(
    store: ObjectStore,
    context: WriteContext,
    task: GroupTask,
    rows: pa.Table | None,
    deletes: pa.Array | None,
) -> FileResult:
    group, inserted = task.file_slice, None
    if group is None:
        # The group is new, so every row is an insert.
        group = FileSlice(task.partition, task.file_id, context.instant, None)
        inserted = None if rows is None else rows.column(RECORD_KEY).combine_chunks()
    return append_log(
        store, context, group, slot=task.slot, rows=rows, deletes=deletes, inserted=inserted
    )


def sort_rows_for(rows: pa.Table, plan: WritePlan) -> pa.Table:
    """Sort the rows of one slot as the plan requires."""
    if not plan.order_by or rows.num_rows < 2:
        return rows
    return rows.sort_by([(name, "ascending") for name in plan.order_by])


def results_by_slot(
    results: Sequence[tuple[int, tuple[FileResult, ...]]],
) -> tuple[FileResult, ...]:
    """Return the results of all tasks ordered by slot."""
    return tuple(each for _, found in sorted(results, key=itemgetter(0)) for each in found)


def _existing_slice(task: GroupTask) -> FileSlice:
    if task.file_slice is None:
        raise InvariantBroken(
            f"file group {task.file_id} does not exist, but has a {task.kind} task"
        )
    return task.file_slice


RELEASE_BYTES_MAX: Final = 64 * 1024 * 1024
"""After larger reads, memory is kept: allocating it again would be as expensive."""


def release_memory() -> None:
    """Return unused memory of the allocator to the operating system.

    The allocator keeps pages of every size for each thread that has used them. A process that
    performs many small reads and compactions would hold ten times its peak usage.
    """
    pa.default_memory_pool().release_unused()


PORTION_ROWS_MAX: Final = 128 * 1024
"""The number of rows that are ordered by slot together."""

WAVE_BYTES: Final = 384 * 1024 * 1024
"""The approximate size of rows copied to their tasks at a time, in addition to the input."""

_CHUNK_ROWS_MIN: Final = 16 * 1024
"""Smaller chunks are combined before rows are copied."""

_UINT16_SLOTS: Final = 2**16


def rows_by_task(rows: pa.Table, plan: WritePlan) -> Iterator[tuple[GroupTask, pa.Table]]:
    """Yield each task to run with its rows."""
    for wave in task_waves(rows, plan):
        yield from wave


def task_waves(
    rows: pa.Table, plan: WritePlan, each: ParallelMap = sequential_map, *, tasks_min: int = 1
) -> Iterator[list[tuple[GroupTask, pa.Table]]]:
    """Yield batches of tasks with their rows, limited in size because rows are copied.

    A batch has at least `tasks_min` tasks, so that all workers are busy.
    """
    if plan.ranged:
        yield list(_ranged_rows(rows, plan))
        return
    if len(plan.tasks) == 1:
        _row_slots(rows, plan)
        yield list(_with_rows(plan.tasks[0], rows.drop_columns([FILE_ID]), plan))
        return
    portions = slot_orders(rows, plan, each)
    schema = rows.drop_columns([FILE_ID]).schema
    tasks = sorted(plan.tasks, key=lambda task: task.slot)
    for batch in _task_batches(tasks, rows, tasks_min):
        first, last = batch[0].slot, batch[-1].slot
        moved_rows = each(lambda part: part.rows_of(first, last), portions)  # noqa: B023 - called at once
        wave: list[tuple[GroupTask, pa.Table]] = []
        for task in batch:
            # No variable may refer to them: each keeps the buffers of the whole wave.
            wave += _with_rows(task, _joined(moved_rows, task.slot - first, schema), plan)
        del moved_rows
        yield wave


def _joined(portions: Sequence[Sequence[pa.RecordBatch]], at: int, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([portion[at] for portion in portions], schema)


def slot_orders(rows: pa.Table, plan: WritePlan, each: ParallelMap) -> list[SlotOrder]:
    """Return the rows in portions, each with the order of its rows by slot."""
    found = _row_slots(rows, plan)
    rows = rows.drop_columns([FILE_ID])
    if rows.num_rows < _CHUNK_ROWS_MIN * rows.column(0).num_chunks:
        rows = rows.combine_chunks()
    return each(lambda part: _order_by_slot(*part), list(_portions(rows, found)))


def _row_slots(rows: pa.Table, plan: WritePlan) -> pa.Array:
    found = assign_slots(rows, plan.routes)
    if found.null_count:
        raise InvariantBroken(f"{found.null_count} rows have no slot in the plan")
    return found


def _task_batches(
    tasks: Sequence[GroupTask], rows: pa.Table, tasks_min: int
) -> Iterator[list[GroupTask]]:
    """Yield batches of tasks whose expected rows take about `WAVE_BYTES`."""
    width = rows.nbytes / max(1, rows.num_rows)
    batch: list[GroupTask] = []
    size = 0.0
    for task in tasks:
        if len(batch) >= tasks_min and size + task.rows * width > WAVE_BYTES:
            yield batch
            batch, size = [], 0.0
        batch.append(task)
        size += task.rows * width
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class SlotOrder:
    """Some rows, their order by slot, and the start of each slot in that order."""

    rows: pa.RecordBatch
    order: pa.Array
    starts: tuple[int, ...]

    def rows_of(self, first: int, last: int) -> list[pa.RecordBatch]:
        """Return the rows of each slot from `first` to `last`; all are copied together."""
        starts = [self.start(slot) - self.start(first) for slot in range(first, last + 2)]
        rows = self.rows.take(self.order.slice(self.start(first), starts[-1]))
        return [rows.slice(start, end - start) for start, end in pairwise(starts)]

    def start(self, slot: int) -> int:
        """Return the start of a slot; the end, for slots after the last one with rows."""
        return self.starts[min(slot, len(self.starts) - 1)]


def _portions(rows: pa.Table, found: pa.Array) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """Yield rows with their slots, in portions small enough for the processor cache."""
    start = 0
    for batch in rows.to_batches(max_chunksize=PORTION_ROWS_MAX):
        yield batch, found.slice(start, batch.num_rows)
        start += batch.num_rows


def _order_by_slot(rows: pa.RecordBatch, found: pa.Array) -> SlotOrder:
    slots_of = found.to_numpy(zero_copy_only=False)
    starts = (0, *(int(end) for end in np.cumsum(np.bincount(slots_of))))
    kind = np.uint16 if len(starts) <= _UINT16_SLOTS else np.int32
    # Two-byte numbers use a radix sort.
    order = np.argsort(slots_of.astype(kind), kind="stable").astype(np.int32)
    return SlotOrder(rows, pa.array(order), starts)


def _ranged_rows(rows: pa.Table, plan: WritePlan) -> Iterator[tuple[GroupTask, pa.Table]]:
    """Yield each task with a run of its partition's rows, sorted as a whole."""
    paths = rows.column(PARTITION_PATH)
    by_partition: dict[str, list[GroupTask]] = {}
    for task in plan.tasks:
        by_partition.setdefault(task.partition, []).append(task)
    for partition, tasks in by_partition.items():
        whole = len(by_partition) == 1
        rows_of_partition = rows if whole else rows.filter(pc.equal(paths, partition))
        ordered, start = sort_rows_for(rows_of_partition, plan), 0
        for number, task in enumerate(tasks):
            size = ordered.num_rows - start if number == len(tasks) - 1 else task.rows
            if size:
                yield task, ordered.slice(start, size)
            start += size


def _with_rows(
    task: GroupTask, rows: pa.Table, plan: WritePlan
) -> Iterator[tuple[GroupTask, pa.Table]]:
    if rows.num_rows or task.runs_without_rows:
        yield task, sort_rows_for(rows, plan)


_SEPARATOR: Final = "\x00"
"""Separates path and key in a joined string; it cannot occur in a partition path."""


@dataclass(frozen=True, slots=True)
class PrepareRule:
    """How rows are prepared. `schema` has the user's columns, after evolution.

    With `only_keys` the rows are those of a delete: they need the key columns, and the partition
    columns unless they are deleted from every partition (`anywhere`).
    """

    schema: pa.Schema
    keys: KeyRule
    merge: MergeRule
    dedupe: bool = True
    only_keys: bool = False
    anywhere: bool = False
    where: str = "the rows"


def prepare_rows(rows: pa.Table, rule: PrepareRule) -> pa.Table:
    """Return the rows conformed, keyed, and deduplicated if the rule says so.

    Raises: `InvalidInput` naming the column and the row of a missing, null or invalid value.
    """
    rows_with_keys = add_keys(rows, rule)
    return deduplicate(rows_with_keys, rule) if rule.dedupe else rows_with_keys


def add_keys(rows: pa.Table, rule: PrepareRule) -> pa.Table:
    """Return the rows with the table's columns and types, and with key and partition path.

    Raises: `InvalidInput`.
    """
    rows = _align_decimal_scales(rows, rule)
    try:
        keys = record_keys(rows, rule.keys)
        if rule.anywhere:
            paths = pa.nulls(rows.num_rows, pa.string())
        else:
            paths = partition_paths(rows, rule.keys)
    except InvalidInput as error:
        raise type(error)(f"{rule.where}: {error.message}", hint=error.hint) from error
    columns = {RECORD_KEY: keys, PARTITION_PATH: paths}
    if rule.only_keys:
        return pa.table(columns)
    conforming = conform(rows, rule.schema, where=rule.where)
    _check_nulls(conforming, rule)
    fields = [pa.field(name, pa.string()) for name in (RECORD_KEY, PARTITION_PATH)]
    return pa.Table.from_arrays(
        [*columns.values(), *conforming.columns], schema=pa.schema([*fields, *conforming.schema])
    )


def deduplicate(rows: pa.Table, rule: PrepareRule) -> pa.Table:
    """Return one row for each key and partition, by the merge rule, in the original order.

    Rows are as returned by `add_keys`. A delete that wins (`_hoodie_is_deleted`) stays as a row.
    """
    keys = row_identities(rows)
    if pc.count_distinct(keys).as_py() == len(keys):
        return rows
    if rule.merge.mode is MergeMode.CUSTOM and not rule.only_keys:
        return _merge_duplicates(rows, rule)
    # No entry is treated as deleted, so that a winning delete keeps its row.
    none_deleted = pa.repeat(pa.scalar(value=False), len(keys))
    layer = Layer(keys, rows, none_deleted, none_deleted)
    if not rule.only_keys:
        check_ordering(rule.merge, rows.schema)
        parsed = row_layer(rows, rows.schema, rule.merge, rule.where)
        layer = replace(layer, natural=parsed.natural, ordering=parsed.ordering)
    return rows.take(fold_layers([layer], rows.schema).row.sort())


def row_identities(rows: pa.Table) -> pa.Array:
    """Return what identifies rows: the key, with its partition if there are several."""
    keys = as_array(rows.column(RECORD_KEY))
    paths = rows.column(PARTITION_PATH)
    if pc.count_distinct(paths, mode="all").as_py() <= 1:
        return keys
    return pc.binary_join_element_wise(pc.fill_null(as_array(paths), ""), keys, _SEPARATOR)


def repeat_for_partitions(rows: pa.Table, partitions: list[str]) -> pa.Table:
    """Return keys without a partition once for each partition, to look them up in all."""
    field, index = pa.field(PARTITION_PATH, pa.string()), rows.column_names.index(PARTITION_PATH)
    parts = [
        rows.set_column(index, field, pa.repeat(pa.scalar(partition), rows.num_rows))
        for partition in partitions
    ]
    return pa.concat_tables([rows.slice(0, 0), *parts])


def _merge_duplicates(rows: pa.Table, rule: PrepareRule) -> pa.Table:
    """Merge the versions of each key with the user's merger, in their order."""
    merger = rule.merge.merger
    if merger is None:
        raise Unsupported(
            f"{rule.where}: the batch has duplicate keys, and the table uses a custom merge class",
            hint="pass a Merger, or one row per key",
        )
    paths = as_array(rows.column(PARTITION_PATH))
    tables = [
        _merge_partition(merger, rows.filter(pc.equal(paths, path)))
        for path in paths.unique().to_pylist()
    ]
    return pa.concat_tables(tables, promote_options="permissive")


def _merge_partition(merger: Merger, rows: pa.Table) -> pa.Table:
    keys = as_array(rows.column(RECORD_KEY))
    layers, remaining = [], rows
    while remaining.num_rows:
        # The first version of every key forms one layer, the second the next, and so on.
        current_keys = as_array(remaining.column(RECORD_KEY))
        positions = pa.array(range(len(current_keys)), pa.int64())
        groups = pa.table({"key": current_keys, "at": positions}).group_by("key")
        at = groups.aggregate([("at", "min")]).column("at_min").combine_chunks()
        chosen = remaining.take(at)
        none_deleted = pa.repeat(pa.scalar(value=False), chosen.num_rows)
        layers.append(Layer(current_keys.take(at), chosen, none_deleted, none_deleted))
        remaining = remaining.filter(pc.invert(pc.is_in(positions, value_set=at)))
    merged = fold_layers_with(merger, layers, rows.schema)
    order = pc.index_in(keys.unique(), value_set=merged.keys)
    return merged.rows.take(merged.row.take(order).drop_null())


def _align_decimal_scales(rows: pa.Table, rule: PrepareRule) -> pa.Table:
    """Cast decimal key columns to the table's scale, which is visible in their text."""
    for name in (*rule.keys.keys, *rule.keys.partitions):
        at, index = rule.schema.get_field_index(name), rows.schema.get_field_index(name)
        if at < 0 or index < 0:
            continue
        target, found = rule.schema.field(at).type, rows.schema.field(index).type
        if pt.is_decimal(target) and pt.is_decimal(found) and target.scale != found.scale:
            try:
                column = rows.column(index).cast(target)
            except pa.ArrowInvalid as error:
                raise InvalidInput(
                    f"{rule.where}: column {name}: expected {target}: {error}"
                ) from error
            rows = rows.set_column(index, name, column)
    return rows


def _check_nulls(rows: pa.Table, rule: PrepareRule) -> None:
    for column in rule.schema:
        missing = 0 if column.nullable else rows.column(column.name).null_count
        if missing:
            raise InvalidInput(
                f"{rule.where}: column {column.name} is not nullable, but null in {missing} rows",
                hint="set a value, or filter out such rows",
            )
