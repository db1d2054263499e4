"""A compacted log file has the same effect as the log files it replaces."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.execution.filegroup.writing import (
    COMMIT_TIME,
    EVENT_TIME,
    GROUP,
    context,
    file_of,
    incoming,
    keys,
    rows_in,
)
from tidelock.core.errors import Unsupported
from tidelock.execution.filegroup.context import LogFormat
from tidelock.execution.filegroup.log_files import (
    append_log,
    compact_blocks,
    compact_logs,
    count_merged_blocks,
)
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.filegroup.write import create_base
from tidelock.hudi.file_groups import BaseFile, FileSlice, LogFile, data_file
from tidelock.hudi.log_blocks import (
    Block,
    DeleteRecord,
    Header,
    Ordering,
    avro_block,
    delete_block,
    encode_block,
    log_bytes,
    parse_log,
    read_block_headers,
)
from tidelock.hudi.properties import MergeMode
from tidelock.hudi.schema import avro_schema
from tidelock.storage.contract import Create
from tidelock.storage.memory import MemoryStore

KEYS = "abc"
step = st.one_of(
    st.tuples(st.just("rows"), st.lists(st.sampled_from(KEYS), min_size=1, unique=True)),
    st.tuples(st.just("natural"), st.lists(st.sampled_from(KEYS), min_size=1, unique=True)),
    st.tuples(st.just("ordered"), st.lists(st.sampled_from(KEYS), min_size=1, unique=True)),
)
times = st.integers(1, 4)


def instant(number: int) -> str:
    return f"202601010000{number:05}"


def log_of(
    store: MemoryStore, rule: MergeRule, number: int, change: tuple[str, list[str]], ts: int
) -> LogFile:
    """Write one log file: rows, deletes in natural order, or deletes with an ordering value."""
    kind, chosen = change
    ctx = context(instant(number), rule=rule)
    group = FileSlice("p", GROUP, instant(0), None)
    if kind == "ordered":
        gone = [DeleteRecord(key, "p", Ordering("Long", ts)) for key in chosen]
        body = log_bytes([delete_block(gone, instant=ctx.instant, schema=ctx.log_schema)])
        name = ctx.log_name(GROUP, 0)
        store.put(f"p/{name}", body, Create())
        found = data_file("p", name, len(body))
    else:
        rows = incoming([(key, ts, f"{key}{number}") for key in chosen])
        natural = kind == "natural"
        found = file_of(
            append_log(
                store,
                ctx,
                group,
                slot=0,
                rows=None if natural else rows,
                deletes=keys(*chosen) if natural else None,
            )
        )
    assert isinstance(found, LogFile)
    return found


@pytest.mark.parametrize("rule", [COMMIT_TIME, EVENT_TIME], ids=["commit time", "event time"])
@settings(max_examples=20, deadline=None)
@given(
    base=st.lists(st.sampled_from(KEYS), unique=True),
    base_ts=times,
    steps=st.lists(st.tuples(step, times), min_size=1, max_size=6),
    cut=st.integers(1, 6),
)
def test_compacted_log_replaces_its_inputs(
    rule: MergeRule,
    base: list[str],
    base_ts: int,
    steps: list[tuple[tuple[str, list[str]], int]],
    cut: int,
) -> None:
    store = MemoryStore()
    rows = incoming([(key, base_ts, f"{key}0") for key in base])
    (below,) = create_base(
        store, context(instant(0), rule=rule), partition="p", file_id=GROUP, slot=0, rows=[rows]
    )
    bottom = file_of(below)
    assert isinstance(bottom, BaseFile)
    logs = [
        log_of(store, rule, 10 * number, change, ts)
        for number, (change, ts) in enumerate(steps, start=1)
    ]
    cut = min(cut, len(logs))
    complete = FileSlice("p", GROUP, instant(0), bottom, tuple(logs))
    expected = rows_in(store, complete, rule=rule)

    early = replace(complete, logs=tuple(logs[:cut]))
    at = context(instant(10 * cut + 5), rule=rule)
    merged = file_of(compact_logs(store, at, early, slot=0))
    assert isinstance(merged, LogFile)

    replaced = replace(complete, logs=(*logs[:cut], merged, *logs[cut:]))
    assert rows_in(store, replaced, rule=rule) == expected
    # A reader that ignores the replacement headers merges all log files.
    body = _unmarked(store, merged)
    store.put(f"p/{merged.name}x", body, Create())
    unmarked = replace(merged, name=f"{merged.name}x", size_bytes=len(body))
    repeated = replace(complete, logs=(*logs[:cut], unmarked, *logs[cut:]))
    assert rows_in(store, repeated, rule=rule) == expected


def _unmarked(store: MemoryStore, log: LogFile) -> bytes:
    """Return the bytes of a log file without its replacement headers."""
    found = store.get(log.key)
    assert found is not None
    bodies = []
    for block in parse_log(found.body, where=log.key):
        assert isinstance(block, Block)
        headers = {k: v for k, v in block.headers.items() if k != Header.COMPACTED_BLOCK_TIMES}
        assert len(headers) < len(block.headers)
        bodies.append(encode_block(replace(block, headers=headers)))
    return b"".join(bodies)


def test_deletes_marked_by_a_missing_column_are_rejected() -> None:
    store = MemoryStore()
    ctx = context(instant(1), rule=MergeRule(delete_field="gone", delete_marker="yes"))
    log = log_of(store, ctx.rule, 1, ("rows", ["a"]), 1)
    rows = incoming([("a", 1, "x")]).append_column("gone", pa.array(["yes"]))
    found = compact_blocks([], ctx, where="x")
    assert found.entries == 0
    block = avro_block(rows, instant=log.instant, schema=avro_schema(rows.schema, table="t"))
    with pytest.raises(Unsupported, match="does not have"):
        compact_blocks([block], ctx, where="x")


def test_custom_merge_is_rejected() -> None:
    with pytest.raises(Unsupported, match="custom merge class"):
        compact_blocks([], context(instant(1), rule=MergeRule(MergeMode.CUSTOM)), where="x")


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_blocks_are_counted_without_their_content(log_format: LogFormat) -> None:
    store = MemoryStore()
    many = incoming([(f"k{i}", i, "x" * 40) for i in range(4_000)])
    ctx = context(instant(1), log_format=log_format)
    group = FileSlice("p", GROUP, instant(0), None)
    log = file_of(append_log(store, ctx, group, slot=0, rows=many, deletes=keys("a", "b")))
    assert isinstance(log, LogFile)
    assert log.size_bytes > 64 * 1024
    requests: list[tuple[int, int | None]] = []
    inner = store.get

    def get(key: str, *, start: int = 0, end: int | None = None) -> object:
        requests.append((start, end))
        return inner(key, start=start, end=end)

    store.get = get  # type: ignore[method-assign, assignment]
    assert [head.instant for head in read_block_headers(store, log)] == [instant(1)] * 2
    assert all(end is not None and end - start <= 64 * 1024 for start, end in requests)
    assert count_merged_blocks(store, [log]) == 2


def test_corrupt_file_is_read_completely_to_count_blocks() -> None:
    store = MemoryStore()
    many = incoming([(f"k{i}", i, "x" * 40) for i in range(4_000)])
    group = FileSlice("p", GROUP, instant(0), None)
    log = file_of(append_log(store, context(instant(1)), group, slot=0, rows=many))
    assert isinstance(log, LogFile)
    found = store.get(log.key)
    assert found is not None
    torn = found.body + found.body[:1000]
    store.delete(log.key)
    store.put(log.key, torn, Create())
    assert count_merged_blocks(store, [replace(log, size_bytes=len(torn))]) == 1
