"""Snapshots: the slices of the latest and earlier versions, and of changes."""

from __future__ import annotations

import pytest

from tests.unit.doubles import ScriptedStore
from tests.unit.hudi.table_builder import Built, base, log, time
from tidelock.core.errors import DataCorrupt, InvalidInput, NotFound, Unsupported
from tidelock.core.javaproperties import render_properties
from tidelock.hudi import properties as keys
from tidelock.hudi.file_groups import FileSlice, WriteToken
from tidelock.hudi.properties import KEY, TableType
from tidelock.hudi.snapshot import TableSnapshot, open_table
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.history import ArchivedInstant
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.storage.memory import MemoryStore


def files(slices: tuple[FileSlice, ...]) -> list[list[str]]:
    """Return the objects of each slice, base file first."""
    return [
        [*([each.base.key] if each.base else []), *(log.key for log in each.logs)]
        for each in slices
    ]


def archive(table: Built, *instants: Instant) -> None:
    """Move completed instants from the timeline to the history."""
    moved = []
    for instant in instants:
        stored = table.store.get(f"{TIMELINE_FOLDER}/{instant.file_name}")
        assert stored is not None
        moved.append(
            ArchivedInstant(instant.requested, instant.completion, instant.action, stored.body)
        )
    table.open().archive.append(moved)
    for instant in instants:
        table.forget(instant)


def test_empty_table_has_no_slices() -> None:
    snapshot = Built().open()
    assert snapshot.slices() == ()
    assert snapshot.latest is None
    assert snapshot.latest_completion is None
    assert snapshot.slices_between().slices == ()
    assert snapshot.schema_json() is None


def test_folder_that_is_not_a_table_is_not_opened() -> None:
    with pytest.raises(NotFound, match="not a Hudi table"):
        open_table(MemoryStore())


@pytest.mark.parametrize(
    ("key", "value"), [(keys.BASE_FORMAT, "ORC"), (keys.DROP_PARTITION_COLUMNS, "true")]
)
def test_unreadable_table_is_not_opened(key: str, value: str) -> None:
    table = Built()
    table.put(KEY, render_properties({**table.properties.values, key: value}).encode())
    with pytest.raises(Unsupported):
        table.open()


def test_slices_are_sorted_by_partition_and_file_id() -> None:
    table = Built()
    table.commit(10, 11, [base("g", 10, "q"), base("f", 10, "q"), base("z", 10, "p")])
    table.commit(12, 13, [log("f", 12, "q")])
    snapshot = table.open()
    assert files(snapshot.slices()) == [
        [base("z", 10, "p")],
        [base("f", 10, "q"), log("f", 12, "q")],
        [base("g", 10, "q")],
    ]
    assert files(snapshot.slices(partitions=["p"])) == [[base("z", 10, "p")]]
    assert files(snapshot.slices(read_optimized=True)) == [
        [base("z", 10, "p")],
        [base("f", 10, "q")],
        [base("g", 10, "q")],
    ]


def test_flat_table_is_read_from_its_base_path() -> None:
    table = Built(TableType.COPY_ON_WRITE, partitioned=False)
    table.commit(10, 11, [base("f", 10, "")], action=Action.COMMIT)
    assert files(table.open().slices()) == [[base("f", 10, "")]]


def test_commits_completed_after_opening_are_invisible() -> None:
    table = Built()
    table.commit(10, 11, [base("f", 10)])
    snapshot = table.open()
    table.commit(12, 13, [log("f", 12), base("g", 12)])
    table.commit(20, 21, [base("h", 20)], replaced={"p": ("f",)})
    assert files(snapshot.slices()) == [[base("f", 10)]]
    assert files(table.open().slices()) == [[base("g", 12)], [base("h", 20)]]


def test_pending_compaction_is_ignored_by_reads() -> None:
    table = Built()
    table.commit(10, 11, [base("f", 10), base("g", 10)])
    table.commit(12, 13, [log("f", 12)])
    table.plan_compaction(20, [("p", "f")])
    table.put(base("f", 20))
    table.commit(22, 23, [log("f", 22)])
    snapshot = table.open()
    assert files(snapshot.slices()) == [
        [base("f", 10), log("f", 12), log("f", 22)],
        [base("g", 10)],
    ]
    assert [len(group.slices) for group in snapshot.groups()] == [2, 1]
    table.commit(20, 25, [base("f", 20)], action=Action.COMMIT)
    assert files(table.open().slices())[0] == [base("f", 20), log("f", 22)]


def test_replaced_groups_are_hidden_now_and_visible_before() -> None:
    table = Built()
    table.commit(10, 11, [base("f", 10), base("g", 10)])
    table.commit(20, 21, [base("h", 20)], replaced={"p": ("f", "g")})
    snapshot = table.open()
    assert files(snapshot.slices()) == [[base("h", 20)]]
    assert files(snapshot.slices(as_of=time(19))) == [[base("f", 10)], [base("g", 10)]]
    assert [group.file_id for group in snapshot.groups()] == ["h"]


def test_invalid_as_of_time_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="yesterday"):
        Built().open().slices(as_of="yesterday")


def test_damaged_replacecommit_is_refused_by_name() -> None:
    table = Built()
    table.commit(10, 11, [base("f", 10)])
    instant = Instant(time(20), Action.REPLACE_COMMIT, InstantState.COMPLETED, time(21))
    table.instant(instant, b"Obj\x01 and nothing more")
    with pytest.raises(DataCorrupt, match=instant.file_name):
        table.open().slices()


def test_stray_file_of_a_retried_task_is_ignored() -> None:
    table = Built()
    stray = base("f", 10, token=WriteToken(0, 1, 0))
    table.commit(10, 11, [base("f", 10)], stray=[stray])
    assert files(table.open().slices()) == [[base("f", 10)]]


def test_archive_decides_between_duplicate_base_files() -> None:
    table = Built()
    stray = base("f", 10, token=WriteToken(0, 1, 0))
    old = table.commit(10, 11, [base("f", 10)], stray=[stray])
    table.commit(20, 21)
    archive(table, old)
    assert files(table.open().slices()) == [[base("f", 10)]]


def test_duplicate_base_files_that_no_commit_resolves_are_rejected() -> None:
    table = Built()
    stray = base("f", 10, token=WriteToken(0, 1, 0))
    old = table.commit(10, 11, [base("f", 10)], stray=[stray])
    table.commit(20, 21)
    table.forget(old)
    with pytest.raises(DataCorrupt, match="both the base file of the same"):
        table.open().slices()


def test_files_of_archived_writes_stay_visible() -> None:
    table = Built()
    old = table.commit(10, 11, [base("f", 10)])
    late = table.commit(12, 30, [log("f", 12)])
    compacted = table.commit(20, 25, [base("f", 20)], action=Action.COMMIT)
    table.commit(40, 41, [log("f", 40)])
    before = table.open().slices()
    assert files(before) == [[base("f", 20), log("f", 12), log("f", 40)]]
    archive(table, old, late, compacted)
    # The position of the log depends on its completion time, which only the history has now.
    assert table.open().slices() == before


def test_history_is_not_read_without_old_log_files() -> None:
    table = Built()
    old = table.commit(10, 11, [base("f", 10)])
    table.commit(20, 21, [base("g", 20)])
    archive(table, old)
    store = ScriptedStore(table.store)
    assert len(open_table(store).slices()) == 2
    assert not [key for _, key in store.requests if "history" in key]


def test_schema_is_that_of_the_newest_write_that_has_one() -> None:
    table = Built()
    table.commit(10, 11, schema='"old"')
    table.commit(20, 21, schema='"newer"')
    table.commit(30, 31)
    table.pending(40)
    snapshot = table.open()
    assert snapshot.schema_json() == '"newer"'
    assert snapshot.schema_json(as_of=time(19)) == '"old"'
    assert snapshot.schema_json(as_of=time(9)) is None


def test_table_with_schema_on_read_evolution_is_refused() -> None:
    table = Built()
    table.commit(10, 11, schema='"old"')
    table.commit(20, 21, schema='"renamed"', evolved_schema='{"schemas": []}')
    with pytest.raises(Unsupported, match="schema evolution on read"):
        table.open().schema_json()


def test_table_without_writes_has_its_creation_schema() -> None:
    table = Built()
    values = {**table.properties.values, keys.CREATE_SCHEMA: '"created"'}
    table.put(KEY, render_properties(values).encode())
    assert table.open().schema_json() == '"created"'


@pytest.fixture
def history() -> Built:
    """A table with an insert, a late update, a compaction between them, and another insert."""
    table = Built()
    table.commit(10, 11, [base("f", 10), base("g", 10)])
    table.commit(12, 30, [log("f", 12)])
    table.commit(20, 25, [base("f", 20)], action=Action.COMMIT)
    table.commit(40, 41, [base("h", 40, "q")])
    return table


def between(snapshot: TableSnapshot, begin: int | None, end: int | None) -> list[list[str]]:
    changes = snapshot.slices_between(
        None if begin is None else time(begin), None if end is None else time(end)
    )
    return files(changes.slices)


def test_changes_are_selected_by_completion_time_after_begin_up_to_end(history: Built) -> None:
    snapshot = history.open()
    assert between(snapshot, None, 11) == [[base("f", 10)], [base("g", 10)]]
    assert between(snapshot, 11, 29) == [[base("f", 20)]]
    assert between(snapshot, 29, 30) == [[base("f", 20), log("f", 12)]]
    assert between(snapshot, 30, 40) == []
    assert between(snapshot, 30, None) == [[base("h", 40, "q")]]
    assert between(snapshot, 41, None) == []


def test_changes_name_the_request_times_of_their_rows(history: Built) -> None:
    changes = history.open().slices_between(time(11), time(30))
    assert changes.instants == {time(12), time(20)}
    assert (changes.begin, changes.end) == (time(11), time(30))


def test_all_changes_equal_the_snapshot(history: Built) -> None:
    snapshot = history.open()
    changes = snapshot.slices_between()
    assert changes.slices == snapshot.slices()
    assert changes.instants == {time(10), time(12), time(20), time(40)}
    assert changes.end == snapshot.latest_completion


def test_changes_can_be_limited_to_partitions(history: Built) -> None:
    changes = history.open().slices_between(partitions=["q"])
    assert files(changes.slices) == [[base("h", 40, "q")]]


def test_range_that_ends_before_it_begins_is_refused(history: Built) -> None:
    with pytest.raises(InvalidInput, match="is before begin"):
        history.open().slices_between(time(30), time(20))


def test_rows_moved_by_clustering_are_read_at_their_new_location() -> None:
    table = Built()
    table.commit(10, 11, [base("f", 10)])
    table.commit(20, 21, [base("h", 20)], replaced={"p": ("f",)})
    snapshot = table.open()
    assert between(snapshot, None, 21) == [[base("h", 20)]]
    assert between(snapshot, None, 15) == [[base("f", 10)]]


def test_changes_include_the_archived_history(history: Built) -> None:
    expected = history.open().slices_between(time(9), time(30))
    instants = history.open().timeline.completed()
    archive(history, *instants[:-1])
    assert history.open().slices_between(time(9), time(30)) == expected


def test_changes_whose_files_were_cleaned_are_refused(history: Built) -> None:
    history.store.delete(base("f", 10))
    snapshot = history.open()
    with pytest.raises(NotFound, match="has been deleted by a clean") as caught:
        between(snapshot, None, 11)
    assert base("f", 10) in str(caught.value)
    # Later the file group has another version, so that range is complete.
    assert between(snapshot, None, 30) == [[base("f", 20), log("f", 12)], [base("g", 10)]]


def test_cleaned_files_of_replaced_groups_are_not_required_even_when_archived() -> None:
    table = Built()
    first = table.commit(10, 11, [base("f", 10)])
    replacing = table.commit(20, 21, [base("h", 20)], replaced={"p": ("f",)})
    table.commit(30, 31, [base("i", 30)])
    table.store.delete(base("f", 10))
    archive(table, first, replacing)
    assert between(table.open(), None, None) == [[base("h", 20)], [base("i", 30)]]
