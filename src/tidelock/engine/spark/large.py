"""Batches that do not fit the driver: prepared, tagged, routed and written in the workers.

    rows ──▶ parcels by key ──▶ tagged ──▶ parcels by slot ──▶ files
         pack           shuffle        route          shuffle

Parcels by key are kept (in memory, or on the executors' disks) until the write is over, because an
overtaken write is tagged again. Rows that only have to be added, and can be read again, are not
kept and not moved: each worker writes what it reads.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from tidelock.engine.contract import (
    MISSING_KEYS_MAX,
    PartitionProfile,
    Prepared,
    Profile,
    Tagged,
    TagRule,
    TaskKind,
    WritePlan,
)
from tidelock.engine.spark import stages
from tidelock.engine.spark.counting import counted
from tidelock.engine.spark.job import Doomed, Failed, run_job, value_of
from tidelock.engine.spark.parcel import PARCEL, unpacked
from tidelock.engine.spark.ranges import Ranges, ranges_of
from tidelock.engine.spark.read import packed as packed_slices
from tidelock.engine.spark.read import quoted
from tidelock.engine.spark.session import large_batches
from tidelock.engine.spark.source import can_be_read_again, estimated_bytes
from tidelock.engine.task import by_slot, run_task, runs_without_rows
from tidelock.kernel.context import WriteContext
from tidelock.kernel.lookup import IndexKind
from tidelock.kernel.prepare import PrepareRule, deduplicated, keyed
from tidelock.kernel.results import FileResult
from tidelock.store.address import StoreAddress
from tidelock.table.schema.meta import PARTITION_PATH, RECORD_KEY

T = TypeVar("T")

PART_BYTES: Final = 64 * 1024 * 1024
"""Rows that are tagged together, in one worker's memory."""

PARTS_MAX: Final = 2_000

_KEPT: Final = StorageLevel.DISK_ONLY
"""What is kept is read once or twice, in order. In the heap it would crowd out the work."""

_OUTCOME: Final = "outcome binary"


@dataclass(eq=False, slots=True)
class LargeRows:
    """Rows in the workers: parcels, or (`raw`) the user's own frame, to be read again.

    `tag` is the rule by which they are tagged on their way to the files, if they are not tagged
    already. `kept` are the frames that Spark holds for them.
    """

    frame: DataFrame
    rule: PrepareRule
    parts: int
    counts: Mapping[str | None, int]
    size_bytes: int = 0
    raw: bool = False
    tag: TagRule | None = None
    kept: list[DataFrame] = field(default_factory=list)

    def fits(self, size_bytes: int) -> bool:
        """Tell whether the rows are so few that the driver can have them."""
        return not self.raw and self.size_bytes <= size_bytes


@dataclass(frozen=True, slots=True)
class LargeWriter:
    """The stages of a large write, each a job of Spark's."""

    spark: SparkSession
    address: StoreAddress

    def prepare(self, frame: DataFrame, rule: PrepareRule) -> Prepared:
        """Return the rows, keyed; duplicates are dropped where they meet, when they are tagged.

        Raises: `InvalidInput`.
        """
        if not rule.dedupe and not rule.only_keys and can_be_read_again(frame):
            counts = self._run("counting rows", lambda: counted(frame, rule))
            rows = LargeRows(frame, rule, self._parts(frame), counts, raw=True)
        else:
            rows = self._packed(frame, rule)
        paths = tuple(sorted(path for path in rows.counts if path is not None))
        return Prepared(rows, sum(rows.counts.values()), paths)

    def collected(self, rows: LargeRows) -> Prepared:
        """Return packed rows in the driver, deduplicated."""
        columns = rows.frame.select("source", "number", "payload")
        found: pa.Table = self._run("collecting rows", columns.toArrow)
        ordered = found.sort_by([("source", "ascending"), ("number", "ascending")])
        tables = [unpacked(value.as_buffer()) for value in ordered.column("payload")]
        nothing = keyed(rows.rule.schema.empty_table(), rows.rule)
        table = pa.concat_tables([nothing, *tables])
        if rows.rule.dedupe:
            table = deduplicated(table, rows.rule)
        paths = table.column(PARTITION_PATH).unique().drop_null().to_pylist()
        return Prepared(table, table.num_rows, tuple(sorted(paths)))

    def tag(self, prepared: Prepared, rule: TagRule) -> Tagged:
        """Return the rows with their file groups."""
        rows = _large(prepared.rows)
        by_key = rule.kind in (IndexKind.SIMPLE, IndexKind.BLOOM)
        nothing_to_find = rule.kind is IndexKind.NONE or (by_key and not rule.slices)
        drops = rule.drop_found or rule.drop_missing or rule.deletes_by in rows.rule.schema.names
        if rows.rule.dedupe or rule.drop_found or rule.anywhere:
            return self._tag_by_key(rows, rule, by_key=by_key)
        if nothing_to_find and not drops:
            known = {path: size for path, size in rows.counts.items() if path is not None}
            return Tagged(rows, {path: PartitionProfile(known[path]) for path in sorted(known)})
        if nothing_to_find or not by_key:
            return self._tag_on_the_way(rows, rule)
        return self._tag_by_key(rows, rule, by_key=by_key)

    def _tag_on_the_way(self, rows: LargeRows, rule: TagRule) -> Tagged:
        """Count the rows of each group by a rule that looks nothing up; they are tagged later.

        Of rows that can be read again, only the columns that keys are made of are read here.
        """
        frame, prepare = rows.frame, rows.rule if rows.raw else None
        if prepare is not None:
            names = [*prepare.keys.keys, *prepare.keys.partitions, rule.deletes_by or ""]
            heads = {name if name in frame.columns else name.partition(".")[0] for name in names}
            chosen = [name for name in frame.columns if name in heads]
            fields = [field for field in prepare.schema if field.name == rule.deletes_by]
            frame = frame.select(*quoted(chosen))
            prepare = replace(prepare, schema=pa.schema(fields))
        stage = stages.profiling(stages.Feed(self.address, prepare, rule))
        with large_batches(self.spark):
            notes = self._notes(frame.mapInArrow(stage, PARCEL), "counting rows of file groups")
        said = [note for note, _ in notes if note is not None]
        found = replace(rows, tag=rule, kept=[])
        return Tagged(found, _merged(each[0] for each in said), _missing(each[1] for each in said))

    def _tag_by_key(self, rows: LargeRows, rule: TagRule, *, by_key: bool) -> Tagged:
        """Bring equal keys together, keep one row of each, and look where it lives."""
        if rows.raw:
            packed = self._packed(rows.frame, rows.rule)
            rows.frame, rows.parts, rows.raw = packed.frame, packed.parts, False
            rows.kept += packed.kept
        arriving = rows.frame
        if (by_key and rule.slices) or rule.drop_found:
            arriving = arriving.union(self._keys(rule, rows.parts))
        stage = stages.tagging(self.address, rule, rows.rule)
        with large_batches(self.spark):
            met = arriving.repartitionById(rows.parts, arriving["part"])
            tagged = met.mapInArrow(stage, PARCEL)
            tagged.persist(_KEPT)
            rows.kept.append(tagged)
            notes = self._notes(tagged, "finding the file groups of rows")
        found = LargeRows(tagged, rows.rule, rows.parts, {})
        said = [note for note, _ in notes if note is not None]
        return Tagged(found, _merged(each[0] for each in said), _missing(each[1] for each in said))

    def write(
        self,
        tagged: Tagged,
        plan: WritePlan,
        context: WriteContext,
        *,
        doomed: Doomed | None = None,
    ) -> tuple[FileResult, ...]:
        """Write every file group of the plan that has rows, and those that need none."""
        rows = _large(tagged.rows)
        feed = stages.Feed(self.address, rows.rule if rows.raw else None, rows.tag)
        with large_batches(self.spark):
            if _moves_nothing(plan):
                fed = rows.frame.coalesce(len(plan.tasks))
                stage = stages.filling(plan, context, feed, fed.rdd.getNumPartitions())
            else:
                ranges = self._ranges(rows, plan, feed) if plan.ranged else None
                routed = rows.frame.mapInArrow(stages.routing(plan, feed, ranges), PARCEL)
                slots = max(1, len(plan.tasks))
                fed = routed.repartitionById(slots, routed["part"])
                fed = fed.sortWithinPartitions("part", "source", "number")
                stage = stages.writing(self.address, plan, context)
            job = fed.mapInArrow(stage, _OUTCOME)
            what = f"{len(plan.tasks)} file groups of {self.address.uri} ({context.instant})"
            found = self._run(what, job.collect, doomed)
        done = [value_of(bytes(row[0])) for row in found]
        return by_slot([*done, *self._empty(plan, context)])

    def _ranges(self, rows: LargeRows, plan: WritePlan, feed: stages.Feed) -> Ranges:
        sample = rows.frame.mapInArrow(stages.sampling(plan, feed), PARCEL)
        found = self._run("sampling rows", sample.select("note", "payload").collect)
        for note, _ in found:
            said = pickle.loads(bytes(note))  # noqa: S301 - our own worker wrote it
            if isinstance(said, Failed):
                raise said.error
        return ranges_of(pa.concat_tables([unpacked(bytes(data)) for _, data in found]), plan)

    def release(self, prepared: Prepared) -> None:
        """Let Spark forget what it keeps of the rows."""
        rows = _large(prepared.rows)
        for frame in rows.kept:
            frame.unpersist()
        rows.kept.clear()

    def _packed(self, frame: DataFrame, rule: PrepareRule) -> LargeRows:
        parts = self._parts(frame)
        with large_batches(self.spark):
            kept = frame.mapInArrow(stages.packing(rule, parts), PARCEL)
            kept.persist(_KEPT)
            try:
                notes = self._notes(kept, "preparing rows")
            except BaseException:
                kept.unpersist()
                raise
        counts: dict[str | None, int] = {}
        for note, _ in notes:
            for path, size in () if note is None else note.by_path.items():
                counts[path] = counts.get(path, 0) + size
        return LargeRows(kept, rule, parts, counts, sum(size for _, size in notes), kept=[kept])

    def _notes(self, frame: DataFrame, what: str) -> list[tuple[Any, int]]:
        """Run the job that fills a frame, and return the notes and sizes of its parcels."""
        rows = self._run(what, frame.select("note", "size").collect)
        notes = [(pickle.loads(bytes(row[0])), row[1]) for row in rows]  # noqa: S301 - our worker
        for note, _ in notes:
            if isinstance(note, Failed):
                raise note.error
        return notes

    def _keys(self, rule: TagRule, parts: int) -> DataFrame:
        """Return the keys of the slices as parcels by the same hash as the rows."""
        places = {id(piece): place for place, piece in enumerate(rule.slices)}
        least = self.spark.sparkContext.defaultParallelism
        tasks = packed_slices(rule.slices, tasks_min=least)
        numbers = tuple(tuple(places[id(piece)] for piece in task) for task in tasks)
        stage = stages.reading_keys(self.address, numbers, rule, parts)
        return self.spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(stage, PARCEL)

    def _empty(
        self, plan: WritePlan, context: WriteContext
    ) -> list[tuple[int, tuple[FileResult, ...]]]:
        """Run the tasks that no row went to and that are run all the same."""
        bare = [task for task in plan.tasks if task.rows == 0 and runs_without_rows(task)]
        if not bare:
            return []
        lead = [pa.field(name, pa.string()) for name in (RECORD_KEY, PARTITION_PATH)]
        nothing = pa.schema([*lead, *context.user_schema]).empty_table()
        store = self.address.open()
        return [(task.slot, run_task(store, context, task, nothing)) for task in bare]

    def _parts(self, frame: DataFrame) -> int:
        least = self.spark.sparkContext.defaultParallelism
        size = estimated_bytes(frame)
        if size is None:
            return max(least, int(self.spark.conf.get("spark.sql.shuffle.partitions") or 200))
        return max(least, min(PARTS_MAX, size // PART_BYTES))

    def _run(self, what: str, action: Callable[[], T], doomed: Doomed | None = None) -> T:
        group = f"tidelock {self.address.uri}"
        return run_job(self.spark, what, action, group=group, doomed=doomed)


def _moves_nothing(plan: WritePlan) -> bool:
    """Tell whether rows may stay where they are: all are new, in one folder and in no order."""
    return (
        not plan.routes.groups
        and len(plan.routes.inserts) == 1
        and not plan.order_by
        and not plan.ranged
        and all(task.kind is TaskKind.CREATE and task.rolls_over for task in plan.tasks)
    )


def _merged(profiles: Iterable[Profile]) -> Profile:
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


def _missing(
    found: Iterable[Mapping[str, frozenset[str] | None]],
) -> dict[str, frozenset[str] | None]:
    """Return the keys that were not found, of all parts; None where they are too many to name."""
    merged: dict[str, frozenset[str] | None] = {}
    for each in found:
        for path, keys in each.items():
            before = merged.get(path, frozenset())
            both = None if before is None or keys is None else before | keys
            merged[path] = None if both is None or len(both) > MISSING_KEYS_MAX else both
    return merged


def _large(rows: object) -> LargeRows:
    assert isinstance(rows, LargeRows)
    return rows
