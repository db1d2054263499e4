"""Writes of batches that do not fit the driver: prepared, tagged, routed and written in workers.

    rows ──▶ chunks by key ──▶ tagged ──▶ chunks by slot ──▶ files
         pack           shuffle        route          shuffle

Chunks by key are persisted (on the executors' disks) until the write is over, because a conflicted
write is tagged again. Rows that are only inserted, and can be read again, are neither persisted nor
shuffled: each worker writes what it reads.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, groupby
from operator import and_
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel, TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql import types as st

from tidelock.core.errors import InvalidInput, InvariantBroken, Retry, TidelockError
from tidelock.execution.engine import (
    MISSING_KEYS_MAX,
    IsCancelled,
    PreparedRows,
    PrepareRule,
    TaggedRows,
    TagRule,
    add_keys,
    deduplicate,
    results_by_slot,
    run_stream,
    run_task,
    sort_rows_for,
)
from tidelock.execution.filegroup.context import FileResult, WriteContext
from tidelock.execution.filegroup.key_lookup import IndexKind, read_live_keys, read_slice_keys
from tidelock.execution.local.write import LocalWriter
from tidelock.execution.spark.arrow_column import (
    CHUNK_SCHEMA,
    ArrowChunk,
    from_ipc,
    read_chunks,
    split_rows,
)
from tidelock.execution.spark.frame_size import estimated_bytes, is_rereadable
from tidelock.execution.spark.job import TaskFailed, decode_outcome, run_job, run_outcome
from tidelock.execution.spark.read import pack_tasks as packed_slices
from tidelock.execution.spark.read import quote_columns
from tidelock.execution.spark.session import large_batches
from tidelock.execution.spark.types import arrow_schema_of
from tidelock.execution.write_plan import (
    FILE_ID,
    GroupTask,
    PartitionProfile,
    Profile,
    TaskKind,
    WritePlan,
    assign_slots,
    share_numbers,
)
from tidelock.hudi.keys import partition_paths
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY, as_array
from tidelock.storage.uri import StoreAddress

P = ParamSpec("P")
T = TypeVar("T")

Batches = Iterable[pa.RecordBatch]
Stage = Callable[[Batches], Batches]

ChunkNote = tuple[Profile, Mapping[str, frozenset[str] | None]]
"""What the driver receives of tagged rows: their counts, and the missing keys."""

KEY, SLICE = "key", "slice"
_SOURCE_STRIDE = 10_000
"""Larger than the number of parts, to combine the numbers of source and part."""
RESULT_SCHEMA = pa.schema([("outcome", pa.binary())])

SAMPLES: Final = 64
"""The number of sampled rows per batch."""

WEIGHT: Final = "_tidelock_weight"
_MARK: Final = "_tidelock_mark"


def _stage(
    run: Callable[Concatenate[Batches, P], Batches], *args: P.args, **kwargs: P.kwargs
) -> Stage:
    """Return the stage that runs `run` on batches.

    Its error, unless it is retryable, is passed to the driver as a chunk.
    """

    def stage(batches: Batches) -> Batches:
        try:
            yield from run(batches, *args, **kwargs)
        except TidelockError as error:
            if error.retry is not Retry.NEVER:
                raise
            yield from ArrowChunk(0, 0, 0, None, TaskFailed(error)).to_batches()

    return stage


def _pack_rows(batches: Batches, rule: PrepareRule, parts: int) -> Batches:
    """Convert a user's rows to keyed chunks, by a hash of their keys."""
    source = _partition_id()
    for number, batch in enumerate(batches):
        rows = add_keys(pa.Table.from_batches([batch]), rule)
        for part, rows_of_part in split_rows(rows, _hash_parts(rows.column(RECORD_KEY), parts)):
            counts = _partition_counts(rows_of_part)
            yield from ArrowChunk(part, source, number, rows_of_part, counts).to_batches()


def _read_keys(
    batches: Batches,
    address: StoreAddress,
    tasks: tuple[tuple[int, ...], ...],
    rule: TagRule,
    parts: int,
) -> Batches:
    """Read the keys of slices to chunks, by the same hash."""
    source = _partition_id()
    for batch in batches:
        for task in batch.column(0).to_pylist():
            for number in tasks[task]:
                yield from _key_chunks(address, rule, number, source, parts)


def _tag_part(
    batches: Batches, address: StoreAddress, rule: TagRule, prepare: PrepareRule
) -> Batches:
    """Tag the deduplicated rows of a part, using the keys of that part."""
    row_chunks: list[ArrowChunk] = []
    key_chunks: list[ArrowChunk] = []
    part = 0
    for chunk in read_chunks(batches):
        if chunk.rows is None:
            continue
        part = chunk.part
        (key_chunks if chunk.source < 0 else row_chunks).append(chunk)
    if not row_chunks:
        return
    rows = _concat_chunks(row_chunks)
    if prepare.dedupe:
        rows = deduplicate(rows, prepare)
    keys = _concat_chunks(key_chunks) if key_chunks else None
    rows, note = _tagged(_KeyJoinWriter(address.open(), 1, keys), rows, rule)
    yield from ArrowChunk(part, 0, 0, rows, note).to_batches()


def _tagged(writer: LocalWriter, rows: pa.Table, rule: TagRule) -> tuple[pa.Table, ChunkNote]:
    tagged = writer.tag(PreparedRows(rows, rows.num_rows, ()), rule)
    assert isinstance(tagged.rows, pa.Table)
    return tagged.rows, (tagged.profile, tagged.missing)


@dataclass(frozen=True, slots=True)
class SortRanges:
    """The rows at which the runs of each partition begin, except the first, and their slots.

    A `ranged` plan gives each slot a run of its partition's sorted rows. The local engine sorts all
    rows and splits them; here runs begin at sampled rows, so their lengths are approximate.
    """

    order_by: tuple[str, ...]
    bounds: dict[str, pa.Table]
    slots: dict[str, tuple[int, ...]]

    def slots_of(self, rows: pa.Table) -> pa.Array:
        """Return the slot of each row."""
        paths = rows.column(PARTITION_PATH).combine_chunks()
        found = pa.nulls(rows.num_rows, pa.int32())
        for path in paths.unique().to_pylist():
            selected = pc.equal(paths, path)
            at = pc.indices_nonzero(selected)
            runs = self._runs(rows.take(at), self.bounds[path])
            numbers = pa.array(self.slots[path], pa.int32()).take(runs)
            found = pc.replace_with_mask(found, selected, numbers)
        return found

    def _runs(self, rows: pa.Table, bounds: pa.Table) -> pa.Array:
        """Return the number of bounds at or before each row."""
        columns = list(self.order_by)
        marked = pa.concat_tables([_marked(bounds, columns, 1), _marked(rows, columns, 0)])
        # A bound sorts before equal rows, which belong to the run that it begins.
        keys = [*((name, "ascending") for name in columns), (_MARK, "descending")]
        order = pc.sort_indices(marked, sort_keys=keys)
        passed = pc.cumulative_sum(marked.column(_MARK).combine_chunks().take(order))
        return passed.take(pc.sort_indices(order)).slice(bounds.num_rows)


def sample_rows(rows: pa.Table, order_by: Iterable[str]) -> pa.Table:
    """Return sampled rows, with the number of rows that each represents."""
    columns = list(dict.fromkeys([PARTITION_PATH, *order_by]))
    step = max(1, rows.num_rows // SAMPLES)
    ordered = rows.select(columns).sort_by([(name, "ascending") for name in columns])
    chosen = ordered.take(pa.array(range(step // 2, rows.num_rows, step), pa.int64()))
    weight = pa.repeat(pa.scalar(rows.num_rows / max(1, chosen.num_rows)), chosen.num_rows)
    return chosen.append_column(WEIGHT, weight)


def sort_ranges(samples: pa.Table, plan: WritePlan) -> SortRanges:
    """Return the ranges of a plan's slots, with the number of rows that each task expects."""
    bounds: dict[str, pa.Table] = {}
    slots: dict[str, tuple[int, ...]] = {}
    order = [(name, "ascending") for name in plan.order_by]
    for path in sorted({task.partition for task in plan.tasks}):
        tasks = [task for task in plan.tasks if task.partition == path]
        slots[path] = tuple(task.slot for task in tasks)
        sampled = samples.filter(pc.equal(samples.column(PARTITION_PATH), path)).sort_by(order)
        cumulative = pc.cumulative_sum(sampled.column(WEIGHT)).to_pylist()
        positions, expected = [], 0
        for task in tasks[:-1]:
            expected += task.rows
            position = sum(1 for weight in cumulative if weight <= expected)
            positions.append(min(position, sampled.num_rows - 1))
        bounds[path] = sampled.take(pa.array(positions, pa.int64()))
    return SortRanges(plan.order_by, bounds, slots)


def _marked(rows: pa.Table, columns: list[str], mark: int) -> pa.Table:
    marks = pa.repeat(pa.scalar(mark, pa.int64()), rows.num_rows)
    return rows.select(columns).append_column(_MARK, marks)


@dataclass(frozen=True, slots=True)
class StageInput:
    """The input of a stage: chunks or, with `prepare`, a user's rows to be keyed here.

    With `tag` they are also tagged here, which requires a rule without lookups.
    """

    address: StoreAddress
    prepare: PrepareRule | None = None
    tag: TagRule | None = None

    def rows(self, batches: Batches) -> Iterator[tuple[int, pa.Table]]:
        """Yield tagged rows, and a number that identifies their source."""
        for source, rows in self._keyed(batches):
            yield source, self.tagged(rows)[0]

    def tagged(self, rows: pa.Table) -> tuple[pa.Table, ChunkNote]:
        """Return the rows with their file groups (null if unknown), and their counts."""
        if FILE_ID in rows.column_names:
            return rows, ({}, {})
        if self.tag is None:
            unassigned = pa.nulls(rows.num_rows, pa.string())
            return rows.append_column(pa.field(FILE_ID, pa.string()), unassigned), ({}, {})
        return _tagged(LocalWriter(self.address.open(), 1), rows, self.tag)

    def _keyed(self, batches: Batches) -> Iterator[tuple[int, pa.Table]]:
        if self.prepare is None:
            for chunk in read_chunks(batches):
                if chunk.rows is not None:
                    yield chunk.source * _SOURCE_STRIDE + chunk.part, chunk.rows
            return
        source = _partition_id()
        for batch in batches:
            yield source, add_keys(pa.Table.from_batches([batch]), self.prepare)

    def profile(self, batches: Batches) -> Iterator[ChunkNote]:
        """Yield the counts of the rows of each batch."""
        for _, rows in self._keyed(batches):
            yield self.tagged(rows)[1]


def _count_groups(batches: Batches, feed: StageInput) -> Batches:
    """Count the rows of each file group."""
    for note in feed.profile(batches):
        yield from ArrowChunk(0, 0, 0, None, note).to_batches()


def _sample(batches: Batches, plan: WritePlan, feed: StageInput) -> Batches:
    """Sample rows to determine sort ranges."""
    for _, rows in feed.rows(batches):
        if rows.num_rows:
            yield from ArrowChunk(0, 0, 0, sample_rows(rows, plan.order_by)).to_batches()


def _route(
    batches: Batches, plan: WritePlan, feed: StageInput, ranges: SortRanges | None
) -> Batches:
    """Route rows to the slots of their file groups, or of their ranges."""
    for number, (source, rows) in enumerate(feed.rows(batches)):
        found = assign_slots(rows, plan.routes) if ranges is None else ranges.slots_of(rows)
        if found.null_count:
            raise InvariantBroken(f"{found.null_count} rows have no slot in the plan")
        for slot, rows_of_slot in split_rows(rows, found):
            yield from ArrowChunk(slot, source, number, rows_of_slot).to_batches()


def writing_stage(address: StoreAddress, plan: WritePlan, context: WriteContext) -> Stage:
    """Return the stage that writes file groups from chunks sorted by slot."""
    tasks = {task.slot: task for task in plan.tasks}

    def stage(batches: Batches) -> Batches:
        by_slot = groupby(read_chunks(batches), key=lambda each: (each.part, each.rows is None))
        for (slot, empty), chunks in by_slot:
            if empty:
                failed = (each.note for each in chunks if isinstance(each.note, TaskFailed))
                yield from map(_outcome_batch, failed)
                continue
            rows = (chunk.rows for chunk in chunks if chunk.rows is not None)
            yield _outcome_batch(_run_task(address, plan, context, tasks[slot], rows))

    return stage


def filling_stage(plan: WritePlan, context: WriteContext, feed: StageInput, workers: int) -> Stage:
    """Return the stage that writes the rows of each worker to new groups of its own.

    No rows are shuffled: each of the `workers` Spark partitions has every n-th slot, and fills each
    with the planned number of rows; the last one takes the rest.
    """

    def stage(batches: Batches) -> Batches:
        source = _RowPortions(rows for _, rows in feed.rows(batches))
        number = _partition_id()
        if number >= workers:
            raise InvariantBroken(
                f"unexpected partition {number} of {workers}: two would write one group"
            )
        tasks = plan.tasks[number::workers]
        for task in tasks:
            rows = source.take(None if task is tasks[-1] else max(1, task.rows))
            outcome = _run_task(feed.address, plan, context, task, rows)
            yield _outcome_batch(outcome)
            if isinstance(outcome, TaskFailed):
                return

    return stage


@dataclass(slots=True)
class _RowPortions:
    """Rows that arrive in batches, taken in portions of other sizes."""

    rows: Iterator[pa.Table]
    rest: pa.Table | None = None

    def take(self, limit: int | None) -> Iterator[pa.Table]:
        """Yield the next `limit` rows, or all for None."""
        while limit is None or limit > 0:
            table = self.rest if self.rest is not None else next(self.rows, None)
            self.rest = None
            if table is None:
                return
            if limit is not None:
                if table.num_rows > limit:
                    self.rest = table.slice(limit)
                    table = table.slice(0, limit)
                limit -= table.num_rows
            yield table


def _run_task(
    address: StoreAddress,
    plan: WritePlan,
    context: WriteContext,
    task: GroupTask,
    rows: Iterable[pa.Table],
) -> object:
    def run() -> object:
        ordered = [sort_rows_for(pa.concat_tables(rows), plan)] if plan.order_by else rows
        remaining = iter(ordered)
        first = next(remaining, None)
        if first is None:
            return task.slot, ()
        return task.slot, run_stream(address.open(), context, task, chain([first], remaining))

    return run_outcome(run)


def _outcome_batch(outcome: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([pickle.dumps(outcome)], pa.binary())], schema=RESULT_SCHEMA
    )


@dataclass(frozen=True, slots=True)
class _KeyJoinWriter(LocalWriter):
    """The local engine's tagging, with lookups among the given keys only."""

    keys: pa.Table | None = None

    def find_groups(self, rows: pa.Table, rule: TagRule) -> tuple[pa.Array, pa.Array]:
        """Return the positions of rows whose key is given, and the group that has it."""
        if self.keys is None:
            return pa.array([], pa.int64()), pa.array([], pa.string())
        keys = self.keys.sort_by(SLICE)
        slices = keys.column(SLICE).combine_chunks()
        paths = pa.array([file_slice.partition for file_slice in rule.slices], pa.string())
        names = pa.array([file_slice.file_id for file_slice in rule.slices], pa.string())
        key_ids = _identity(paths.take(slices), keys.column(KEY))
        wanted_ids = _identity(rows.column(PARTITION_PATH), rows.column(RECORD_KEY))
        at = pc.index_in(key_ids, value_set=wanted_ids)
        return at.drop_null().cast(pa.int64()), names.take(slices.filter(at.is_valid()))


def _identity(paths: pa.Array | pa.ChunkedArray, keys: pa.ChunkedArray) -> pa.Array:
    # A partition path has no NUL, so the joined string is unambiguous.
    return pc.binary_join_element_wise(as_array(paths), as_array(keys), "\x00")


def _key_chunks(
    address: StoreAddress, rule: TagRule, slice_number: int, source: int, parts: int
) -> Batches:
    store, file_slice = address.open(), rule.slices[slice_number]
    logged = rule.logged_slice(file_slice) if rule.drop_found else None
    if rule.live is None or logged is None:
        found = read_slice_keys(store, file_slice)
    else:
        found = read_live_keys(store, logged, rule.live)
    for number, keys in enumerate(found):
        slices = pa.repeat(pa.scalar(slice_number, pa.int32()), len(keys))
        table = pa.table({KEY: keys.cast(pa.string()), SLICE: slices})
        for part, keys_of_part in split_rows(table, _hash_parts(table.column(KEY), parts)):
            yield from ArrowChunk(part, -1 - source, number, keys_of_part).to_batches()


def _hash_parts(keys: pa.ChunkedArray, parts: int) -> pa.Array:
    numbers, divisor = share_numbers(as_array(keys)), pa.scalar(parts, pa.uint64())
    multiples = pc.multiply(pc.divide(numbers, divisor), divisor)
    return pc.subtract(numbers, multiples).cast(pa.int32())


def _partition_counts(rows: pa.Table) -> dict[str | None, int]:
    """Return the number of rows for each partition: the note of packed rows."""
    counts = rows.column(PARTITION_PATH).combine_chunks().value_counts()
    names, sizes = (part.to_pylist() for part in counts.flatten())
    return dict(zip(names, sizes, strict=True))


def _concat_chunks(chunks: list[ArrowChunk]) -> pa.Table:
    """Return the rows of the chunks in their original order."""
    ordered = sorted(chunks, key=lambda chunk: (chunk.source, chunk.number))
    return pa.concat_tables([chunk.rows for chunk in ordered if chunk.rows is not None])


def _partition_id() -> int:
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


_COUNT, _BLANK = "_tidelock_count", "_tidelock_blank"


def count_rows(frame: DataFrame, rule: PrepareRule) -> dict[str | None, int]:
    """Return the number of rows of each partition path.

    Paths are computed from the distinct values found by Spark. Raises: `InvalidInput` for columns
    or values that cannot form a key.
    """
    add_keys(arrow_schema_of(frame.schema).empty_table(), rule)  # raises for invalid columns
    heads = dict.fromkeys(_top_column(frame, name) for name in rule.keys.partitions)
    blank = reduce(and_, (_is_blank(frame, name) for name in rule.keys.keys))
    totals = [F.count(F.lit(1)).alias(_COUNT), F.count_if(blank).alias(_BLANK)]
    keys = [F.col(name) for name in quote_columns(heads)]
    found = (frame.groupBy(*keys) if keys else frame).agg(*totals).toArrow()
    missing = pc.sum(found.column(_BLANK)).as_py() or 0
    if missing:
        raise InvalidInput(
            f"{rule.where}: the record key ({', '.join(rule.keys.keys)}) is null or empty in"
            f" {missing} rows",
            hint="set a value, or filter out such rows",
        )
    paths = partition_paths(found, rule.keys)
    counts = pa.table({"path": paths, "rows": found.column(_COUNT)})
    summed = counts.group_by("path").aggregate([("rows", "sum")])
    paths, sizes = (summed.column(name).to_pylist() for name in ("path", "rows_sum"))
    return {path: size for path, size in zip(paths, sizes, strict=True) if size}


def _is_blank(frame: DataFrame, name: str) -> Column:
    column = F.col(*quote_columns([name])) if name in frame.columns else F.col(name)
    text = isinstance(frame.select(column).schema[0].dataType, st.StringType)
    return column.isNull() | (column == "") if text else column.isNull()


def _top_column(frame: DataFrame, name: str) -> str:
    return name if name in frame.columns else name.partition(".")[0]


PART_BYTES: Final = 64 * 1024 * 1024
"""The size of rows that are tagged together, in one worker's memory."""

PARTS_MAX: Final = 2_000

_STORAGE_LEVEL: Final = StorageLevel.DISK_ONLY
"""Persisted rows are read once or twice, sequentially; on the heap they would displace work."""

_OUTCOME: Final = "outcome binary"


@dataclass(eq=False, slots=True)
class LargeRows:
    """Rows in the workers: chunks, or (`raw`) the user's frame, to be read again.

    `tag` is the rule to tag them with when they are written, unless they are tagged already.
    `persisted` are the frames that Spark holds.
    """

    frame: DataFrame
    rule: PrepareRule
    parts: int
    counts: Mapping[str | None, int]
    size_bytes: int = 0
    raw: bool = False
    tag: TagRule | None = None
    persisted: list[DataFrame] = field(default_factory=list)

    def fits(self, size_bytes: int) -> bool:
        """Return whether the rows are few enough to be collected in the driver."""
        return not self.raw and self.size_bytes <= size_bytes


@dataclass(frozen=True, slots=True)
class LargeWriter:
    """The stages of a large write, each a Spark job."""

    spark: SparkSession
    address: StoreAddress

    def prepare(self, frame: DataFrame, rule: PrepareRule) -> PreparedRows:
        """Return the keyed rows; duplicates are dropped later, when rows are tagged.

        Raises: `InvalidInput`.
        """
        if not rule.dedupe and not rule.only_keys and is_rereadable(frame):
            counts = self._run("counting rows", lambda: count_rows(frame, rule))
            rows = LargeRows(frame, rule, self._parts(frame), counts, raw=True)
        else:
            rows = self._packed(frame, rule)
        paths = tuple(sorted(path for path in rows.counts if path is not None))
        return PreparedRows(rows, sum(rows.counts.values()), paths)

    def collect(self, rows: LargeRows) -> PreparedRows:
        """Collect packed rows in the driver, and deduplicate them."""
        columns = rows.frame.select("source", "number", "payload")
        payloads: pa.Table = self._run("collecting rows", columns.toArrow)
        ordered = payloads.sort_by([("source", "ascending"), ("number", "ascending")])
        tables = [from_ipc(value.as_buffer()) for value in ordered.column("payload")]
        empty = add_keys(rows.rule.schema.empty_table(), rows.rule)
        table = pa.concat_tables([empty, *tables])
        if rows.rule.dedupe:
            table = deduplicate(table, rows.rule)
        paths = table.column(PARTITION_PATH).unique().drop_null().to_pylist()
        return PreparedRows(table, table.num_rows, tuple(sorted(paths)))

    def tag(self, prepared: PreparedRows, rule: TagRule) -> TaggedRows:
        """Return the rows with their file groups."""
        rows = _as_large(prepared.rows)
        by_key = rule.kind in (IndexKind.SIMPLE, IndexKind.BLOOM)
        nothing_to_find = rule.kind is IndexKind.NONE or (by_key and not rule.slices)
        drops = rule.drop_found or rule.drop_missing or rule.delete_column in rows.rule.schema.names
        finds = by_key and not nothing_to_find
        if finds or rows.rule.dedupe or rule.drop_found or rule.anywhere:
            return self._tag_by_key(rows, rule, by_key=by_key)
        if nothing_to_find and not drops:
            known = {path: size for path, size in rows.counts.items() if path is not None}
            return TaggedRows(rows, {path: PartitionProfile(known[path]) for path in sorted(known)})
        return self._tag_later(rows, rule)

    def _tag_later(self, rows: LargeRows, rule: TagRule) -> TaggedRows:
        """Count the rows of each group by a rule without lookups; they are tagged when written.

        Of rows that can be read again, only the key columns are read here.
        """
        frame, prepare = rows.frame, rows.rule if rows.raw else None
        if prepare is not None:
            names = [*prepare.keys.keys, *prepare.keys.partitions, rule.delete_column or ""]
            heads = {_top_column(frame, name) for name in names}
            chosen = [name for name in frame.columns if name in heads]
            fields = [field for field in prepare.schema if field.name == rule.delete_column]
            frame = frame.select(*quote_columns(chosen))
            prepare = replace(prepare, schema=pa.schema(fields))
        stage = _stage(_count_groups, StageInput(self.address, prepare, rule))
        with large_batches(self.spark):
            counted = frame.mapInArrow(stage, CHUNK_SCHEMA)
            notes = self._notes(counted, "counting rows of file groups")
        return _with_notes(replace(rows, tag=rule, persisted=[]), notes)

    def _tag_by_key(self, rows: LargeRows, rule: TagRule, *, by_key: bool) -> TaggedRows:
        """Shuffle rows and stored keys by key, deduplicate, and look up file groups."""
        if rows.raw:
            packed = self._packed(rows.frame, rows.rule)
            rows.frame, rows.parts, rows.raw = packed.frame, packed.parts, False
            rows.persisted += packed.persisted
        arriving = rows.frame
        if (by_key and rule.slices) or rule.drop_found:
            arriving = arriving.union(self._keys(rule, rows.parts))
        stage = _stage(_tag_part, self.address, rule, rows.rule)
        with large_batches(self.spark):
            shuffled = arriving.repartitionById(rows.parts, arriving["part"])
            tagged = shuffled.mapInArrow(stage, CHUNK_SCHEMA)
            tagged.persist(_STORAGE_LEVEL)
            rows.persisted.append(tagged)
            notes = self._notes(tagged, "finding the file groups of rows")
        return _with_notes(LargeRows(tagged, rows.rule, rows.parts, {}), notes)

    def write(
        self,
        tagged: TaggedRows,
        plan: WritePlan,
        context: WriteContext,
        *,
        is_cancelled: IsCancelled | None = None,
    ) -> tuple[FileResult, ...]:
        """Write every file group of the plan that has rows, and those that run without."""
        rows = _as_large(tagged.rows)
        feed = StageInput(self.address, rows.rule if rows.raw else None, rows.tag)
        with large_batches(self.spark):
            if _needs_no_shuffle(plan):
                fed = rows.frame.coalesce(len(plan.tasks))
                stage = filling_stage(plan, context, feed, fed.rdd.getNumPartitions())
            else:
                ranges = self._ranges(rows, plan, feed) if plan.ranged else None
                routed = rows.frame.mapInArrow(_stage(_route, plan, feed, ranges), CHUNK_SCHEMA)
                slots = max(1, len(plan.tasks))
                fed = routed.repartitionById(slots, routed["part"])
                fed = fed.sortWithinPartitions("part", "source", "number")
                stage = writing_stage(self.address, plan, context)
            job = fed.mapInArrow(stage, _OUTCOME)
            what = f"{len(plan.tasks)} file groups of {self.address.uri} ({context.instant})"
            found = self._run(what, job.collect, is_cancelled)
        done = [decode_outcome(bytes(row[0])) for row in found]
        return results_by_slot([*done, *self._empty(plan, context)])

    def _ranges(self, rows: LargeRows, plan: WritePlan, feed: StageInput) -> SortRanges:
        sample = rows.frame.mapInArrow(_stage(_sample, plan, feed), CHUNK_SCHEMA)
        found = self._notes(sample, "sampling rows", "payload")
        return sort_ranges(pa.concat_tables([from_ipc(bytes(data)) for _, data in found]), plan)

    def release(self, prepared: PreparedRows) -> None:
        """Unpersist the rows."""
        rows = _as_large(prepared.rows)
        for frame in rows.persisted:
            frame.unpersist()
        rows.persisted.clear()

    def _packed(self, frame: DataFrame, rule: PrepareRule) -> LargeRows:
        parts = self._parts(frame)
        with large_batches(self.spark):
            chunks = frame.mapInArrow(_stage(_pack_rows, rule, parts), CHUNK_SCHEMA)
            chunks.persist(_STORAGE_LEVEL)
            try:
                notes = self._notes(chunks, "preparing rows")
            except BaseException:
                chunks.unpersist()
                raise
        counts: dict[str | None, int] = {}
        for note, _ in notes:
            for path, size in () if note is None else note.items():
                counts[path] = counts.get(path, 0) + size
        size = sum(size for _, size in notes)
        return LargeRows(chunks, rule, parts, counts, size, persisted=[chunks])

    def _notes(self, frame: DataFrame, what: str, field: str = "size") -> list[tuple[Any, Any]]:
        """Run the job of a frame, and return the note and a field of each of its chunks."""
        rows = self._run(what, frame.select("note", field).collect)
        notes = [(pickle.loads(bytes(row[0])), row[1]) for row in rows]  # noqa: S301 - our worker
        for note, _ in notes:
            if isinstance(note, TaskFailed):
                raise note.error
        return notes

    def _keys(self, rule: TagRule, parts: int) -> DataFrame:
        """Return the keys of the slices as chunks, by the same hash as the rows."""
        slice_numbers = {id(file_slice): number for number, file_slice in enumerate(rule.slices)}
        tasks_min = self.spark.sparkContext.defaultParallelism
        tasks = packed_slices(rule.slices, tasks_min=tasks_min)
        numbers = tuple(tuple(slice_numbers[id(each)] for each in task) for task in tasks)
        stage = _stage(_read_keys, self.address, numbers, rule, parts)
        task_ids = self.spark.range(0, len(tasks), 1, max(1, len(tasks)))
        return task_ids.mapInArrow(stage, CHUNK_SCHEMA)

    def _empty(
        self, plan: WritePlan, context: WriteContext
    ) -> list[tuple[int, tuple[FileResult, ...]]]:
        """Run the tasks without rows that run nevertheless."""
        tasks = [task for task in plan.tasks if task.rows == 0 and task.runs_without_rows]
        if not tasks:
            return []
        meta = [pa.field(name, pa.string()) for name in (RECORD_KEY, PARTITION_PATH)]
        no_rows = pa.schema([*meta, *context.user_schema]).empty_table()
        store = self.address.open()
        return [(task.slot, run_task(store, context, task, no_rows)) for task in tasks]

    def _parts(self, frame: DataFrame) -> int:
        parts_min = self.spark.sparkContext.defaultParallelism
        size = estimated_bytes(frame)
        if size is None:
            return max(parts_min, int(self.spark.conf.get("spark.sql.shuffle.partitions") or 200))
        return max(parts_min, min(PARTS_MAX, size // PART_BYTES))

    def _run(
        self, what: str, action: Callable[[], T], is_cancelled: IsCancelled | None = None
    ) -> T:
        group = f"tidelock {self.address.uri}"
        return run_job(self.spark, what, action, group=group, is_cancelled=is_cancelled)


def _needs_no_shuffle(plan: WritePlan) -> bool:
    """Return whether rows can stay in their worker: all inserts, one partition, unsorted."""
    return (
        not plan.routes.groups
        and len(plan.routes.inserts) == 1
        and not plan.order_by
        and not plan.ranged
        and all(task.kind is TaskKind.CREATE and task.rolls_over for task in plan.tasks)
    )


def _with_notes(rows: LargeRows, notes: Iterable[tuple[ChunkNote | None, int]]) -> TaggedRows:
    """Return tagged rows with the counts and missing keys of all chunks."""
    found = [note for note, _ in notes if note is not None]
    profile = _merge_profiles(profile for profile, _ in found)
    return TaggedRows(rows, profile, _merge_missing(missing for _, missing in found))


def _merge_profiles(profiles: Iterable[Profile]) -> Profile:
    inserts: dict[str, int] = {}
    updates: dict[str, dict[str, int]] = {}
    for profile in profiles:
        for path, found in profile.items():
            inserts[path] = inserts.get(path, 0) + found.inserts
            groups = updates.setdefault(path, {})
            for file_id, size in found.updates.items():
                groups[file_id] = groups.get(file_id, 0) + size
    return {
        path: PartitionProfile(inserts[path], dict(sorted(updates[path].items())))
        for path in sorted(inserts)
    }


def _merge_missing(
    found: Iterable[Mapping[str, frozenset[str] | None]],
) -> dict[str, frozenset[str] | None]:
    """Merge the missing keys of all parts; None where there are too many."""
    merged: dict[str, frozenset[str] | None] = {}
    for each in found:
        for path, keys in each.items():
            before = merged.get(path, frozenset())
            combined = None if before is None or keys is None else before | keys
            is_small = combined is not None and len(combined) <= MISSING_KEYS_MAX
            merged[path] = combined if is_small else None
    return merged


def _as_large(rows: object) -> LargeRows:
    assert isinstance(rows, LargeRows)
    return rows
