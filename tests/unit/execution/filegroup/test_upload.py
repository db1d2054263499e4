"""Resolution of uploads: the file already exists, or the reply is unclear."""

from __future__ import annotations

import pytest

from tests.unit.doubles import ScriptedStore, answer, landing
from tests.unit.execution.filegroup.slices import Row
from tests.unit.execution.filegroup.writing import GROUP, context, incoming, rows_in, slice_of
from tidelock.core.errors import Conflict, StoreUnreachable, Throttled
from tidelock.execution.filegroup.context import FileResult, LogFormat
from tidelock.execution.filegroup.log_files import append_log
from tidelock.execution.filegroup.write import create_base
from tidelock.hudi.file_groups import FileSlice
from tidelock.storage.contract import Busy, ObjectStore, Refused, Unclear
from tidelock.storage.memory import MemoryStore

INSTANT = "20260101000000001"
ABC: list[Row] = [("a", 1, "one"), ("b", 2, "two"), ("c", 3, "three")]
GROUP_SLICE = FileSlice("p", GROUP, INSTANT, None)


def create(store: ObjectStore, rows: list[Row]) -> FileResult:
    """Write rows as the first file of the group."""
    (result,) = create_base(
        store, context(INSTANT), partition="p", file_id=GROUP, slot=0, rows=[incoming(rows)]
    )
    return result


@pytest.fixture
def store() -> ScriptedStore:
    """Return a store with the partition created, so that the next put is that of a data file."""
    scripted = ScriptedStore(MemoryStore("lake"))
    create_base(
        scripted, context("1"), partition="p", file_id="other-0", slot=0, rows=[incoming(ABC)]
    )
    return scripted


def test_file_of_another_run_is_used(store: ScriptedStore) -> None:
    first = create(store, ABC)
    assert create(store, ABC) == first


def test_file_of_another_run_with_rows_in_another_order_is_used(store: ScriptedStore) -> None:
    first = create(store, [*ABC, ("d", 4, "a rather long name " * 3)])
    second = create(store, [("d", 4, "a rather long name " * 3), *ABC])
    assert second.stat.file_size_in_bytes == first.stat.file_size_in_bytes
    assert rows_in(store, slice_of(second))[3][0] == "d"


def test_file_with_other_rows_under_the_name_is_a_conflict(store: ScriptedStore) -> None:
    create(store, ABC)
    with pytest.raises(Conflict, match="expected a file of 1 rows"):
        create(store, ABC[:1])


def test_upload_that_succeeded_without_a_reply_is_found(store: ScriptedStore) -> None:
    store.puts.append(landing(Unclear("the connection broke")))
    result = create(store, ABC)
    assert rows_in(store, slice_of(result)) == sorted(ABC)


def test_upload_without_a_reply_and_without_a_file_is_unreachable(
    store: ScriptedStore,
) -> None:
    store.puts.append(answer(Unclear("the connection broke")))
    with pytest.raises(StoreUnreachable, match="the connection broke"):
        create(store, ABC)


def test_refusal_without_a_file_is_an_error(store: ScriptedStore) -> None:
    store.puts.append(answer(Refused()))
    with pytest.raises(StoreUnreachable, match="but has none"):
        create(store, ABC)


def test_busy_store_is_throttled(store: ScriptedStore) -> None:
    store.puts.append(answer(Busy(500, "429")))
    with pytest.raises(Throttled) as caught:
        create(store, ABC)
    assert caught.value.retry_after_ms == 500


def test_busy_store_that_has_the_file_of_another_run_is_accepted(store: ScriptedStore) -> None:
    store.puts.append(landing(Busy(None, "409 ConditionalRequestConflict")))
    assert create(store, ABC).stat.num_writes == 3


def test_log_file_of_another_run_is_used(store: ScriptedStore) -> None:
    first = append_log(store, context(INSTANT), GROUP_SLICE, slot=0, rows=incoming(ABC))
    assert append_log(store, context(INSTANT), GROUP_SLICE, slot=0, rows=incoming(ABC)) == first


def test_log_file_of_another_run_with_rows_in_another_order_is_used(
    store: ScriptedStore,
) -> None:
    rows: list[Row] = [(f"k{i}", i, "x" * i) for i in range(12)]
    ctx = context(INSTANT, log_format=LogFormat.PARQUET)
    first = append_log(store, ctx, GROUP_SLICE, slot=0, rows=incoming(rows))
    second = append_log(store, ctx, GROUP_SLICE, slot=0, rows=incoming(rows[::-1]))
    assert second.stat == first.stat
    assert rows_in(store, slice_of(second)) == sorted(rows)


def test_log_file_with_other_rows_under_the_name_is_a_conflict(store: ScriptedStore) -> None:
    append_log(store, context(INSTANT), GROUP_SLICE, slot=0, rows=incoming(ABC))
    with pytest.raises(Conflict, match="expected a file of 2 rows"):
        append_log(store, context(INSTANT), GROUP_SLICE, slot=0, rows=incoming(ABC[:2]))


def test_each_attempt_has_its_own_file_names(store: ScriptedStore) -> None:
    first = create(store, ABC)
    (second,) = create_base(
        store,
        context(INSTANT, attempt=1),
        partition="p",
        file_id=GROUP,
        slot=0,
        rows=[incoming(ABC)],
    )
    assert first.stat.path != second.stat.path


def test_partition_created_concurrently_is_accepted() -> None:
    store = ScriptedStore(MemoryStore("lake"))
    store.puts.append(landing(Refused()))
    assert create(store, ABC).stat.num_writes == 3


def test_partition_created_without_a_reply_is_checked() -> None:
    store = ScriptedStore(MemoryStore("lake"))
    store.puts.append(landing(Unclear("time-out")))
    create(store, ABC)
    store = ScriptedStore(MemoryStore("lake"))
    store.puts.append(answer(Unclear("time-out")))
    with pytest.raises(StoreUnreachable, match="time-out"):
        create(store, ABC)
