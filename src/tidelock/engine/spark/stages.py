"""What Python workers do with the rows of a large write, stage by stage. Nothing here knows Spark's
driver: each stage is a function from the batches that reach a worker to those that leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from tidelock.base.errors import InvariantBroken, Retry, TidelockError
from tidelock.engine.contract import GroupTask, Prepared, Profile, TagRule, WritePlan
from tidelock.engine.local_write import LocalWriter
from tidelock.engine.spark.job import Failed, Outcome, outcome_of, sent
from tidelock.engine.spark.parcel import Parcel, parcels, split
from tidelock.engine.spark.ranges import Ranges, sampled
from tidelock.engine.task import in_order, run_stream
from tidelock.kernel.context import WriteContext
from tidelock.kernel.lookup import live_keys, slice_keys
from tidelock.kernel.prepare import PrepareRule, deduplicated, keyed
from tidelock.kernel.route import FILE_ID, share_numbers, slots
from tidelock.store.address import StoreAddress
from tidelock.table.schema.meta import PARTITION_PATH, RECORD_KEY

Batches = Iterable[pa.RecordBatch]
Stage = Callable[[Batches], Batches]

Note = tuple[Profile, Mapping[str, frozenset[str] | None]]
"""What the driver learns of tagged rows: their counts, and the keys that were not there."""

KEY, PLACE = "key", "place"
_PARTS_APART = 10_000
"""Above the number of parts, so that a part's number and its source's make one."""
RESULT = pa.schema([("outcome", pa.binary())])


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows of a parcel each partition gets: the note of packed rows."""

    by_path: dict[str | None, int]


def packing(rule: PrepareRule, parts: int) -> Stage:
    """Return the stage that makes keyed parcels of a user's rows, by a hash of their keys."""

    def stage(batches: Batches) -> Batches:
        source = _partition()
        for number, batch in enumerate(batches):
            try:
                rows = keyed(pa.Table.from_batches([batch]), rule)
            except TidelockError as error:
                yield from _failure(error)
                return
            for part, mine in split(rows, _part_of(rows.column(RECORD_KEY), parts)):
                yield from Parcel(part, source, number, mine, _counted(mine)).sent()

    return stage


def reading_keys(
    address: StoreAddress, tasks: tuple[tuple[int, ...], ...], rule: TagRule, parts: int
) -> Stage:
    """Return the stage that makes parcels of the keys that slices hold, by the same hash."""

    def stage(batches: Batches) -> Batches:
        source = _partition()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for place in tasks[task]:
                    try:
                        yield from _keys_of(address, rule, place, source, parts)
                    except TidelockError as error:
                        yield from _failure(error)
                        return

    return stage


def tagging(address: StoreAddress, rule: TagRule, prepare: PrepareRule) -> Stage:
    """Return the stage that tags the rows of a part, one per key, among the keys of that part."""

    def stage(batches: Batches) -> Batches:
        arrived: list[Parcel] = []
        known: list[Parcel] = []
        part = 0
        for parcel in parcels(batches):
            if parcel.rows is None:
                continue
            part = parcel.part
            (known if parcel.source < 0 else arrived).append(parcel)
        if not arrived:
            return
        rows = _joined(arrived)
        try:
            if prepare.dedupe:
                rows = deduplicated(rows, prepare)
            writer = _KnownKeys(address.open(), 1, _joined(known) if known else None)
            tagged = writer.tag(Prepared(rows, rows.num_rows, ()), rule)
        except TidelockError as error:
            yield from _failure(error)
            return
        assert isinstance(tagged.rows, pa.Table)
        yield from Parcel(part, 0, 0, tagged.rows, (tagged.profile, tagged.missing)).sent()

    return stage


@dataclass(frozen=True, slots=True)
class Feed:
    """How rows reach a stage: as parcels, or with `prepare` as a user's rows that are keyed here.

    With `tag` they are tagged here too, which needs a rule that looks nothing up.
    """

    address: StoreAddress
    prepare: PrepareRule | None = None
    tag: TagRule | None = None

    def rows(self, batches: Batches) -> Iterator[tuple[int, pa.Table]]:
        """Yield tagged rows, and a number that tells where they came from."""
        for source, rows in self._keyed(batches):
            yield source, self.tagged(rows)[0]

    def tagged(self, rows: pa.Table) -> tuple[pa.Table, Note]:
        """Return the rows with their file groups (none if nothing says one), and their counts."""
        if FILE_ID in rows.column_names:
            return rows, ({}, {})
        if self.tag is None:
            nowhere = pa.nulls(rows.num_rows, pa.string())
            return rows.append_column(pa.field(FILE_ID, pa.string()), nowhere), ({}, {})
        writer = LocalWriter(self.address.open(), 1)
        found = writer.tag(Prepared(rows, rows.num_rows, ()), self.tag)
        assert isinstance(found.rows, pa.Table)
        return found.rows, (found.profile, found.missing)

    def _keyed(self, batches: Batches) -> Iterator[tuple[int, pa.Table]]:
        if self.prepare is None:
            for parcel in parcels(batches):
                if parcel.rows is not None:
                    yield parcel.source * _PARTS_APART + parcel.part, parcel.rows
            return
        source = _partition()
        for batch in batches:
            yield source, keyed(pa.Table.from_batches([batch]), self.prepare)

    def profile(self, batches: Batches) -> Iterator[Note]:
        """Yield the counts of the rows of each batch."""
        for _, rows in self._keyed(batches):
            yield self.tagged(rows)[1]


def profiling(feed: Feed) -> Stage:
    """Return the stage that counts the rows of each file group, and keeps none."""

    def stage(batches: Batches) -> Batches:
        try:
            for note in feed.profile(batches):
                yield from Parcel(0, 0, 0, None, note).sent()
        except TidelockError as error:
            yield from _failure(error)

    return stage


def sampling(plan: WritePlan, feed: Feed) -> Stage:
    """Return the stage that takes a sample of rows, to see where runs of them begin."""

    def stage(batches: Batches) -> Batches:
        try:
            for _, rows in feed.rows(batches):
                if rows.num_rows:
                    yield from Parcel(0, 0, 0, sampled(rows, plan.order_by)).sent()
        except TidelockError as error:
            yield from _failure(error)

    return stage


def routing(plan: WritePlan, feed: Feed, ranges: Ranges | None) -> Stage:
    """Return the stage that sends rows to the slots of their file groups, or of their ranges."""

    def stage(batches: Batches) -> Batches:
        try:
            for number, (source, rows) in enumerate(feed.rows(batches)):
                found = slots(rows, plan.routes) if ranges is None else ranges.slots_of(rows)
                if found.null_count:
                    raise InvariantBroken(f"{found.null_count} rows have no slot in the plan")
                for slot, mine in split(rows, found):
                    yield from Parcel(slot, source, number, mine).sent()
        except TidelockError as error:
            yield from _failure(error)

    return stage


def writing(address: StoreAddress, plan: WritePlan, context: WriteContext) -> Stage:
    """Return the stage that writes file groups from parcels that come sorted by slot."""
    tasks = {task.slot: task for task in plan.tasks}

    def stage(batches: Batches) -> Batches:
        for (slot, empty), mine in groupby(parcels(batches), key=_slot_of):
            if empty:
                yield from (_told(p.note) for p in mine if isinstance(p.note, Failed))
                continue
            rows = (parcel.rows for parcel in mine if parcel.rows is not None)
            yield _told(_written(address, plan, context, tasks[slot], rows))

    return stage


def filling(plan: WritePlan, context: WriteContext, feed: Feed, workers: int) -> Stage:
    """Return the stage that writes what reaches a worker to new groups of its own.

    No row moves between workers: of `workers` Spark partitions each has every so many-th slot, and
    gives each as many rows as were planned; the last one takes what is left.
    """

    def stage(batches: Batches) -> Batches:
        source = _Portions(rows for _, rows in feed.rows(batches))
        number = _partition()
        if number >= workers:
            raise InvariantBroken(f"partition {number} of {workers}: two would fill one group")
        mine = plan.tasks[number::workers]
        for task in mine:
            rows = source.upto(None if task is mine[-1] else max(1, task.rows))
            outcome = _written(feed.address, plan, context, task, rows)
            yield _told(outcome)
            if isinstance(outcome, Failed):
                return

    return stage


@dataclass(slots=True)
class _Portions:
    """Rows that come in batches, taken in portions of other sizes."""

    rows: Iterator[pa.Table]
    left: pa.Table | None = None

    def upto(self, most: int | None) -> Iterator[pa.Table]:
        """Yield the next rows, `most` of them, or all for None."""
        while most is None or most > 0:
            table = self.left if self.left is not None else next(self.rows, None)
            self.left = None
            if table is None:
                return
            if most is not None:
                if table.num_rows > most:
                    self.left = table.slice(most)
                    table = table.slice(0, most)
                most -= table.num_rows
            yield table


def _written(
    address: StoreAddress,
    plan: WritePlan,
    context: WriteContext,
    task: GroupTask,
    rows: Iterable[pa.Table],
) -> Outcome:
    def run() -> object:
        ordered = iter([in_order(pa.concat_tables(rows), plan)]) if plan.order_by else iter(rows)
        first = next(ordered, None)
        if first is None:
            return task.slot, ()

        def whole() -> Iterator[pa.Table]:
            yield first
            yield from ordered

        return task.slot, run_stream(address.open(), context, task, whole())

    return outcome_of(run)


def _slot_of(parcel: Parcel) -> tuple[int, bool]:
    return parcel.part, parcel.rows is None


def _told(outcome: Outcome) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([sent(outcome)], pa.binary())], schema=RESULT)


@dataclass(frozen=True, slots=True)
class _KnownKeys(LocalWriter):
    """The local engine's tagging, for rows whose keys can only be among those that are given."""

    keys: pa.Table | None = field(default=None)

    def hits(self, rows: pa.Table, rule: TagRule) -> tuple[pa.Array, pa.Array]:
        """Return the rows, by place, whose key is among those given, and the group that has it."""
        if self.keys is None:
            return pa.array([], pa.int64()), pa.array([], pa.string())
        keys = self.keys.sort_by(PLACE)
        places = keys.column(PLACE).combine_chunks()
        pieces = rule.slices
        paths = pa.array([piece.partition for piece in pieces], pa.string()).take(places)
        names = pa.array([piece.file_id for piece in pieces], pa.string())
        known = _identity(paths, keys.column(KEY).combine_chunks())
        mine = _identity(
            rows.column(PARTITION_PATH).combine_chunks(), rows.column(RECORD_KEY).combine_chunks()
        )
        at = pc.index_in(known, value_set=mine)
        return at.drop_null().cast(pa.int64()), names.take(places.filter(at.is_valid()))


def _identity(paths: pa.Array, keys: pa.Array) -> pa.Array:
    # No partition path has a NUL in it, so path and key cannot run into each other.
    return pc.binary_join_element_wise(paths, keys, "\x00")


def _keys_of(address: StoreAddress, rule: TagRule, place: int, source: int, parts: int) -> Batches:
    store, piece = address.open(), rule.slices[place]
    whole = rule.logged(piece) if rule.drop_found else None
    if rule.live is None or whole is None:
        found = slice_keys(store, piece)
    else:
        found = live_keys(store, whole, rule.live)
    for number, keys in enumerate(found):
        plain = keys.cast(pa.string())
        table = pa.table({KEY: plain, PLACE: pa.repeat(pa.scalar(place, pa.int32()), len(plain))})
        for part, mine in split(table, _part_of(table.column(KEY), parts)):
            yield from Parcel(part, -1 - source, number, mine).sent()


def _part_of(keys: pa.ChunkedArray, parts: int) -> pa.Array:
    numbers = share_numbers(keys.combine_chunks() if keys.num_chunks != 1 else keys.chunk(0))
    whole = pc.divide(numbers, pa.scalar(parts, pa.uint64()))
    return pc.subtract(numbers, pc.multiply(whole, pa.scalar(parts, pa.uint64()))).cast(pa.int32())


def _counted(rows: pa.Table) -> Counts:
    counts = rows.column(PARTITION_PATH).combine_chunks().value_counts()
    names, sizes = (part.to_pylist() for part in counts.flatten())
    return Counts(dict(zip(names, sizes, strict=True)))


def _joined(arrived: list[Parcel]) -> pa.Table:
    """Return the rows of the parcels in the order that they had before they were sent."""
    ordered = sorted(arrived, key=lambda parcel: (parcel.source, parcel.number))
    return pa.concat_tables([parcel.rows for parcel in ordered if parcel.rows is not None])


def _failure(error: TidelockError) -> Batches:
    """Yield an error as a parcel that tells the driver; raise it if another try may help."""
    if error.retry is not Retry.NEVER:
        raise error
    yield from Parcel(0, 0, 0, None, Failed(error)).sent()


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())
