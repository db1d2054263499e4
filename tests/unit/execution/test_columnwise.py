"""Columnwise writing gives the same files as row-wise writing."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelock.core.errors import Conflict
from tidelock.execution import engine
from tidelock.execution.engine import PrepareRule, TaggedRows, TagRule
from tidelock.execution.filegroup.context import BloomSettings, FileSettings, WriteContext
from tidelock.execution.filegroup.key_lookup import BucketRule, IndexKind
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.local import write
from tidelock.execution.local.write import LocalWriter
from tidelock.execution.write_plan import Routes, WritePlan
from tidelock.hudi.keys import KeyRule
from tidelock.hudi.properties import KeyGenerator
from tidelock.hudi.schema import (
    COMMIT_SEQNO,
    META_COLUMNS,
    RECORD_KEY,
    arrow_schema,
    avro_schema,
    render_schema,
    with_meta,
)
from tidelock.operations.planner import plan_buckets
from tidelock.storage.memory import MemoryStore

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("part", pa.string()),
        ("note", pa.string()),
        ("tags", pa.list_(pa.struct([("name", pa.string()), ("weight", pa.float64())]))),
    ]
)
AVRO = render_schema(avro_schema(SCHEMA, table="t"))
STORED = with_meta(arrow_schema(json.loads(AVRO), where="the test"))
RULE = PrepareRule(SCHEMA, KeyRule(KeyGenerator.SIMPLE, ("id",), ("part",)), MergeRule())
CONTEXT = WriteContext(
    "20260101000000001", 1, STORED, AVRO, settings=FileSettings(bloom=BloomSettings(entries=1_000))
)
ROWS = 900


def rows() -> pa.Table:
    made = [
        {
            "id": i,
            "part": "a" if i % 3 else "b",
            "note": None if i % 7 == 0 else f"note {i % 5}",
            "tags": None if i % 11 == 0 else [{"name": "n", "weight": i / 2}] * (i % 3),
        }
        for i in range(ROWS)
    ]
    table = pa.Table.from_pylist(made, schema=SCHEMA)
    return pa.concat_tables([table.slice(0, 250), table.slice(250)])


def placed(engine: LocalWriter) -> tuple[TaggedRows, WritePlan]:
    rule = TagRule(IndexKind.BUCKET, (), bucket=BucketRule(4, ("id",), ("id",)))
    tagged = engine.tag(engine.prepare(rows(), RULE), rule)
    return tagged, plan_buckets(tagged.profile, {})


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "COLUMNWISE_BYTES_MIN", 1)
    monkeypatch.setattr(write, "GROUP_ROWS_MAX", 40)
    monkeypatch.setattr(engine, "PORTION_ROWS_MAX", 64)
    monkeypatch.setattr(engine, "_CHUNK_ROWS_MIN", 1)


def files(store: MemoryStore) -> dict[str, pq.ParquetFile]:
    found = {}
    for meta in store.list(""):
        if meta.key.endswith(".parquet"):
            body = store.get(meta.key)
            assert body is not None
            found[meta.key] = pq.ParquetFile(pa.BufferReader(body.body))
    return found


@pytest.mark.parametrize(("bound", "value"), [("COLUMNWISE_BYTES_MIN", 2**40), ("FILES_MAX", 7)])
@pytest.mark.usefixtures("small")
def test_columnwise_files_have_the_same_rows_footers_and_results(
    monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    by_columns, by_rows = MemoryStore(), MemoryStore()
    tagged, plan = placed(LocalWriter(by_columns))
    results = LocalWriter(by_columns).write(tagged, plan, CONTEXT)
    monkeypatch.setattr(write, bound, value)
    others = LocalWriter(by_rows).write(tagged, plan, CONTEXT)
    mine, theirs = files(by_columns), files(by_rows)
    assert len(mine) == 8
    assert mine.keys() == theirs.keys()
    for key, file in mine.items():
        assert file.read().equals(theirs[key].read())
        assert file.schema_arrow.equals(theirs[key].schema_arrow)
        assert file.metadata.metadata == theirs[key].metadata.metadata
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        assert len(sizes) > theirs[key].num_row_groups == 1
        assert max(sizes) <= 40
        numbers = file.read([COMMIT_SEQNO]).column(0).to_pylist()
        assert len(set(numbers)) == len(numbers)
    assert [each.stat.num_writes for each in results] == [each.stat.num_writes for each in others]
    assert [each.written_keys for each in results] == [each.written_keys for each in others]
    assert [each.max_key for each in results] == [each.max_key for each in others]


def test_plan_without_tasks_has_no_parts() -> None:
    tagged, _ = placed(LocalWriter(MemoryStore()))
    assert isinstance(tagged.rows, pa.Table)
    assert not list(engine.rows_by_task(tagged.rows.slice(0, 0), WritePlan((), Routes())))


@pytest.mark.usefixtures("small")
def test_every_row_is_in_one_file() -> None:
    store = MemoryStore()
    tagged, plan = placed(LocalWriter(store))
    LocalWriter(store).write(tagged, plan, CONTEXT)
    found = pa.concat_tables(file.read() for file in files(store).values())
    assert found.column_names[: len(META_COLUMNS)] == list(META_COLUMNS)
    assert found.column(RECORD_KEY).to_pylist() == [str(i) for i in found.column("id").to_pylist()]
    kept = found.select(SCHEMA.names).sort_by("id")
    assert kept.to_pylist() == rows().to_pylist()


@pytest.mark.usefixtures("small")
def test_cancelled_load_leaves_no_file() -> None:
    store = MemoryStore()
    tagged, plan = placed(LocalWriter(store))
    checks: list[int] = []

    def is_cancelled() -> str | None:
        checks.append(1)
        return "it conflicted" if len(checks) > 5 else None

    with pytest.raises(Conflict, match="conflicted"):
        LocalWriter(store).write(tagged, plan, CONTEXT, is_cancelled=is_cancelled)
    assert not files(store)
