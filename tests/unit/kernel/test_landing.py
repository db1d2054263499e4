"""What a task makes of a file that is there already, or whose upload got no clear answer."""

from __future__ import annotations

import pytest

from tests.unit.doubles import ScriptedStore, answer, landing
from tests.unit.kernel.slices import Row
from tests.unit.kernel.writing import GROUP, context, incoming, rows_in, slice_of
from tidelock.base.errors import Conflict, StoreUnreachable, Throttled
from tidelock.kernel.context import LogFormat
from tidelock.kernel.results import FileResult
from tidelock.kernel.write import append_log, create_base
from tidelock.store.contract import Busy, ObjectStore, Refused, Unclear
from tidelock.store.memory import MemoryStore
from tidelock.table.filegroup.slice import FileSlice

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
    """Return a store with the partition made, so that the next put is that of a data file."""
    scripted = ScriptedStore(MemoryStore("lake"))
    create_base(
        scripted, context("1"), partition="p", file_id="other-0", slot=0, rows=[incoming(ABC)]
    )
    return scripted


def test_a_twins_file_stands(store: ScriptedStore) -> None:
    first = create(store, ABC)
    assert create(store, ABC) == first


def test_a_twins_file_of_the_same_rows_in_another_order_stands(store: ScriptedStore) -> None:
    first = create(store, [*ABC, ("d", 4, "a rather long name " * 3)])
    second = create(store, [("d", 4, "a rather long name " * 3), *ABC])
    assert second.stat.file_size_in_bytes == first.stat.file_size_in_bytes
    assert rows_in(store, slice_of(second))[3][0] == "d"


def test_a_file_of_other_rows_under_the_name_is_a_conflict(store: ScriptedStore) -> None:
    create(store, ABC)
    with pytest.raises(Conflict, match="is not the file of 1 rows"):
        create(store, ABC[:1])


def test_an_upload_that_landed_without_an_answer_is_found(store: ScriptedStore) -> None:
    store.puts.append(landing(Unclear("the connection broke")))
    result = create(store, ABC)
    assert rows_in(store, slice_of(result)) == sorted(ABC)


def test_an_upload_without_an_answer_that_is_not_there_is_unreachable(
    store: ScriptedStore,
) -> None:
    store.puts.append(answer(Unclear("the connection broke")))
    with pytest.raises(StoreUnreachable, match="the connection broke"):
        create(store, ABC)


def test_a_refusal_without_a_file_is_not_believed(store: ScriptedStore) -> None:
    store.puts.append(answer(Refused()))
    with pytest.raises(StoreUnreachable, match="does not have it"):
        create(store, ABC)


def test_a_busy_store_is_throttled(store: ScriptedStore) -> None:
    store.puts.append(answer(Busy(500, "429")))
    with pytest.raises(Throttled) as caught:
        create(store, ABC)
    assert caught.value.retry_after_ms == 500


def test_a_store_that_was_busy_with_the_twins_file_has_it(store: ScriptedStore) -> None:
    store.puts.append(landing(Busy(None, "409 ConditionalRequestConflict")))
    assert create(store, ABC).stat.num_writes == 3


def test_a_twins_log_file_stands(store: ScriptedStore) -> None:
    first = append_log(store, context(INSTANT), GROUP_SLICE, slot=0, rows=incoming(ABC))
    assert append_log(store, context(INSTANT), GROUP_SLICE, slot=0, rows=incoming(ABC)) == first


def test_a_twins_log_file_of_the_same_rows_in_another_order_stands(store: ScriptedStore) -> None:
    rows: list[Row] = [(f"k{i}", i, "x" * i) for i in range(12)]
    ctx = context(INSTANT, log_format=LogFormat.PARQUET)
    first = append_log(store, ctx, GROUP_SLICE, slot=0, rows=incoming(rows))
    second = append_log(store, ctx, GROUP_SLICE, slot=0, rows=incoming(rows[::-1]))
    assert second.stat == first.stat
    assert rows_in(store, slice_of(second)) == sorted(rows)


def test_a_log_file_of_other_rows_under_the_name_is_a_conflict(store: ScriptedStore) -> None:
    append_log(store, context(INSTANT), GROUP_SLICE, slot=0, rows=incoming(ABC))
    with pytest.raises(Conflict, match="is not the file of 2 rows"):
        append_log(store, context(INSTANT), GROUP_SLICE, slot=0, rows=incoming(ABC[:2]))


def test_an_attempt_has_names_of_its_own(store: ScriptedStore) -> None:
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


def test_a_partition_made_by_another_writer_at_the_same_moment_is_as_good() -> None:
    store = ScriptedStore(MemoryStore("lake"))
    store.puts.append(landing(Refused()))
    assert create(store, ABC).stat.num_writes == 3


def test_a_partition_whose_making_got_no_answer_is_looked_for() -> None:
    store = ScriptedStore(MemoryStore("lake"))
    store.puts.append(landing(Unclear("time-out")))
    create(store, ABC)
    store = ScriptedStore(MemoryStore("lake"))
    store.puts.append(answer(Unclear("time-out")))
    with pytest.raises(StoreUnreachable, match="time-out"):
        create(store, ABC)
