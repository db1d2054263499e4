"""The local write engine: tagging, routing and tasks."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelock.core.errors import InvalidInput
from tidelock.core.system import SeededIds
from tidelock.execution.engine import PrepareRule, TagRule
from tidelock.execution.filegroup.context import FileKind, FileResult, WriteContext
from tidelock.execution.filegroup.key_lookup import BucketRule, IndexKind
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.local.write import LocalWriter
from tidelock.execution.write_plan import PartitionProfile, TaskKind
from tidelock.hudi.bucket_index import fixed_file_id
from tidelock.hudi.file_groups import BaseFile, FileSlice
from tidelock.hudi.keys import KeyRule
from tidelock.hudi.partitions import list_files
from tidelock.hudi.properties import KeyGenerator
from tidelock.hudi.schema import IS_DELETED, avro_schema, render_schema, with_meta
from tidelock.operations.planner import Capacity, TableShape, plan_buckets, plan_bulk, plan_write
from tidelock.storage.memory import MemoryStore

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), (IS_DELETED, pa.bool_())])
KEYS = KeyRule(KeyGenerator.SIMPLE, ("id",), ("part",))
RULE = PrepareRule(SCHEMA, KEYS, MergeRule())
AVRO = render_schema(avro_schema(SCHEMA, table="t"))
CAPACITY = Capacity(
    file_bytes=10_000, small_bytes=0, record_bytes=10, file_rows=4, small_candidates=None
)


def context(number: int = 1) -> WriteContext:
    return WriteContext(f"2026010100000000{number}", 1, with_meta(SCHEMA), AVRO)


def rows(*items: tuple[str, str]) -> pa.Table:
    made = [{"id": key, "part": part, IS_DELETED: key.startswith("-")} for key, part in items]
    return pa.Table.from_pylist(
        [item | {"id": str(item["id"]).removeprefix("-")} for item in made], schema=SCHEMA
    )


def slices(store: MemoryStore) -> dict[tuple[str, str], FileSlice]:
    found = {}
    for file in list_files(store, partitioned=True):
        assert isinstance(file, BaseFile)
        piece = FileSlice(file.partition, file.file_id, file.instant, file)
        found[file.partition, file.file_id] = piece
    return found


def first_write(store: MemoryStore, *items: tuple[str, str]) -> tuple[FileResult, ...]:
    engine = LocalWriter(store)
    tagged = engine.tag(engine.prepare(rows(*items), RULE), TagRule(IndexKind.SIMPLE, ()))
    plan = plan_write(tagged.profile, {}, TableShape(), CAPACITY, SeededIds(1).uuid)
    return engine.write(tagged, plan, context())


def test_rows_are_counted_by_partition_and_group() -> None:
    store = MemoryStore()
    made = first_write(store, ("a", "x"), ("b", "x"), ("c", "y"))
    assert [(each.partition, each.kind) for each in made] == [
        ("x", FileKind.CREATED),
        ("y", FileKind.CREATED),
    ]
    engine = LocalWriter(store)
    prepared = engine.prepare(rows(("a", "x"), ("a", "y"), ("z", "x"), ("q", "new")), RULE)
    assert prepared.partitions == ("new", "x", "y")
    tagged = engine.tag(prepared, TagRule(IndexKind.SIMPLE, tuple(slices(store).values())))
    assert tagged.profile == {
        "new": PartitionProfile(1),
        "x": PartitionProfile(1, {made[0].file_id: 1}),
        "y": PartitionProfile(1),
    }


def test_deletes_without_a_match_are_omitted_and_reported() -> None:
    store = MemoryStore()
    first_write(store, ("a", "x"))
    engine = LocalWriter(store)
    prepared = engine.prepare(rows(("-a", "x"), ("-b", "x"), ("c", "x")), RULE)
    pieces = tuple(slices(store).values())
    tagged = engine.tag(prepared, TagRule(IndexKind.SIMPLE, pieces, delete_column=IS_DELETED))
    (profile,) = tagged.profile.values()
    assert (profile.inserts, sum(profile.updates.values())) == (1, 1)
    assert tagged.missing == {"x": frozenset({"b"})}


def test_known_and_unknown_keys_are_omitted_as_configured() -> None:
    store = MemoryStore()
    first_write(store, ("a", "x"), ("b", "x"))
    engine, pieces = LocalWriter(store), tuple(slices(store).values())
    prepared = engine.prepare(rows(("a", "x"), ("n", "x")), RULE)
    fresh = engine.tag(prepared, TagRule(IndexKind.SIMPLE, pieces, drop_found=True))
    assert fresh.profile == {"x": PartitionProfile(1)}
    known = engine.tag(prepared, TagRule(IndexKind.SIMPLE, pieces, drop_missing=True))
    assert known.profile["x"].inserts == 0
    assert known.missing == {"x": frozenset({"n"})}


def test_missing_bucket_has_nothing_to_delete() -> None:
    engine = LocalWriter(MemoryStore())
    rule = TagRule(
        IndexKind.BUCKET, (), bucket=BucketRule(4, (), ("id",)), delete_column=IS_DELETED
    )
    tagged = engine.tag(engine.prepare(rows(("-a", "x"), ("b", "x")), RULE), rule)
    assert sum(tagged.profile["x"].updates.values()) == 1


def test_task_that_runs_twice_leaves_one_file() -> None:
    store = MemoryStore()
    engine = LocalWriter(store)
    tagged = engine.tag(engine.prepare(rows(("a", "x")), RULE), TagRule(IndexKind.NONE, ()))
    plan = plan_write(tagged.profile, {}, TableShape(), CAPACITY, SeededIds(1).uuid)
    first = engine.write(tagged, plan, context())
    second = engine.write(tagged, plan, context())
    assert first == second
    assert len(list_files(store, partitioned=True)) == 1


def test_same_seed_gives_the_same_files() -> None:
    items = [(f"k{n}", "xy"[n % 2]) for n in range(30)]
    one, other = MemoryStore(), MemoryStore()
    made = [each.stat.path for each in first_write(one, *items)]
    assert made == [each.stat.path for each in first_write(other, *reversed(items))]
    assert len(made) == 8


def test_runs_of_sorted_rows_have_the_planned_sizes() -> None:
    store = MemoryStore()
    engine = LocalWriter(store)
    items = [(f"k{n}", "x") for n in (5, 1, 4, 2, 3)]
    tagged = engine.tag(engine.prepare(rows(*items), RULE), TagRule(IndexKind.NONE, ()))
    plan = plan_bulk(tagged.profile, CAPACITY, SeededIds(1).uuid, order_by=("id",), ranged=True)
    made = engine.write(tagged, plan, context())
    assert [each.written_keys for each in made] == [("k1", "k2", "k3"), ("k4", "k5")]


def test_replaced_group_names_the_previous_base_file() -> None:
    store = MemoryStore()
    engine = LocalWriter(store)
    rule = TagRule(IndexKind.BUCKET, (), bucket=BucketRule(1, (), ("id",)))
    tagged = engine.tag(engine.prepare(rows(("a", "x")), RULE), rule)
    engine.write(tagged, plan_buckets(tagged.profile, {}), context(1))
    (before,) = slices(store).values()
    plan = plan_buckets({}, {}, [before])
    assert [task.kind for task in plan.tasks] == [TaskKind.REPLACE]
    nothing = engine.tag(engine.prepare(rows(("a", "x")).slice(0, 0), RULE), rule)
    (result,) = engine.write(nothing, plan, context(2))
    assert result.kind is FileKind.MERGED
    assert result.file_id == fixed_file_id(0)
    assert result.stat.prev_commit == before.instant
    assert result.stat.num_writes == 0


def test_local_engine_accepts_only_arrow_tables() -> None:
    with pytest.raises(InvalidInput, match="expected an Arrow table, got list"):
        LocalWriter(MemoryStore()).schema([1])
