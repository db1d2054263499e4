"""File slices by completion time: Hudi's rules V1-V6, races, and invariants."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hudi.table_builder import base, log, time
from tidelock.core.errors import DataCorrupt
from tidelock.hudi.file_groups import (
    BaseFile,
    DataFile,
    FileGroup,
    LogFile,
    Visibility,
    WriteToken,
    data_file,
    file_groups,
    visible_slices,
)


def file(key: str) -> DataFile:
    partition, _, name = key.rpartition("/")
    found = data_file(partition, name, 1)
    assert found is not None
    return found


def seen(completed: dict[int, int], *, start: int = 0, pending: tuple[int, ...] = ()) -> Visibility:
    """Set completion times; the timeline starts before everything by default."""
    return Visibility(
        {time(at): time(done) for at, done in completed.items()},
        time(start),
        frozenset(time(at) for at in pending),
    )


def one_group(keys: list[str], visibility: Visibility) -> FileGroup:
    (group,) = file_groups([file(key) for key in keys], visibility)
    return group


def shape(group: FileGroup) -> list[tuple[int, bool, list[int]]]:
    """Return each slice as its start, whether it has a base file, and the times of its logs."""
    return [
        (_number(each.instant), each.base is not None, [_number(log.instant) for log in each.logs])
        for each in group.slices
    ]


def _number(instant: str) -> int:
    return int(instant) - int(time(0))


def test_v1_base_file_begins_a_slice() -> None:
    group = one_group([base("f", 10), base("f", 20)], seen({10: 11, 20: 21}))
    assert shape(group) == [(10, True, []), (20, True, [])]


def test_v3_log_belongs_to_the_latest_slice_begun_before_it_completed() -> None:
    keys = [base("f", 10), log("f", 12), base("f", 20), log("f", 22)]
    group = one_group(keys, seen({10: 11, 12: 13, 20: 21, 22: 23}))
    assert shape(group) == [(10, True, [12]), (20, True, [22])]


def test_v3_log_completed_after_a_compaction_request_is_on_top_of_it() -> None:
    keys = [base("f", 1000), log("f", 2500), base("f", 3000)]
    group = one_group(keys, seen({1000: 1100, 2500: 3500, 3000: 3400}))
    assert shape(group) == [(1000, True, []), (3000, True, [2500])]


@pytest.mark.parametrize(("completed", "slice_at"), [(2999, 1000), (3000, 3000)])
def test_v3_completion_at_the_request_time_counts_as_after(completed: int, slice_at: int) -> None:
    keys = [base("f", 1000), log("f", 2500), base("f", 3000)]
    group = one_group(keys, seen({1000: 1100, 2500: completed, 3000: 3400}))
    assert [each.instant for each in group.slices if each.logs] == [time(slice_at)]


def test_v3_log_without_a_base_file_begins_a_slice() -> None:
    group = one_group([log("f", 12), log("f", 14), base("f", 20)], seen({12: 13, 14: 15, 20: 21}))
    assert shape(group) == [(12, False, [12, 14]), (20, True, [])]


def test_v2_pending_compaction_begins_a_slice_without_a_base() -> None:
    visibility = Visibility(
        {time(10): time(11), time(12): time(13), time(22): time(23)},
        time(10),
        frozenset({time(20)}),
        compacting={("p", "f"): time(20)},
    )
    keys = [base("f", 10), log("f", 12), base("f", 20), log("f", 22)]
    group = one_group(keys, visibility)
    assert shape(group) == [(10, True, [12]), (20, False, [22])]
    # V5: read together with the slice it will compact, ignoring the unfinished base file.
    merged = group.at()
    assert merged is not None
    assert (merged.instant, merged.base) == (time(10), file(base("f", 10)))
    assert [found.instant for found in merged.logs] == [time(12), time(22)]
    optimized = group.base_at()
    assert optimized is not None
    assert (optimized.base, optimized.logs) == (file(base("f", 10)), ())


def test_v4_files_of_pending_writes_are_invisible() -> None:
    keys = [base("f", 10), log("f", 12), base("f", 20), base("g", 20)]
    (group,) = file_groups([file(key) for key in keys], seen({10: 11}, pending=(12, 20)))
    assert shape(group) == [(10, True, [])]


def test_v4_pending_base_file_does_not_attract_completed_logs() -> None:
    keys = [base("f", 10), base("f", 20), log("f", 22)]
    group = one_group(keys, seen({10: 11, 22: 23}, pending=(20,)))
    assert shape(group) == [(10, True, [22])]


def test_v4_files_older_than_the_timeline_count_as_archived() -> None:
    keys = [base("f", 10), log("f", 12), base("f", 40), log("f", 52)]
    group = one_group(keys, seen({52: 53}, start=50))
    assert shape(group) == [(10, True, [12]), (40, True, [52])]


def test_v4_orphan_between_writes_is_invisible() -> None:
    assert file_groups([file(base("f", 55))], seen({52: 53, 60: 61}, start=50)) == ()


def test_v4_pending_write_before_the_first_commit_is_invisible() -> None:
    # Java shows such rows as soon as a later commit completes.
    assert file_groups([file(base("f", 10))], seen({20: 21}, start=20, pending=(10,))) == ()


def test_v4_empty_timeline_shows_no_files() -> None:
    assert file_groups([file(base("f", 10)), file(log("f", 12))], Visibility()) == ()


def test_v6_replaced_groups_are_hidden_from_their_replacement_on() -> None:
    visibility = Visibility(
        {time(10): time(11), time(20): time(21)}, time(10), replaced={("p", "f"): time(20)}
    )
    groups = file_groups([file(base("f", 10)), file(base("g", 20))], visibility)
    latest = visible_slices(groups, visibility)
    assert [each.file_id for each in latest] == ["g"]
    before = visible_slices(groups, visibility, as_of=time(19))
    assert [each.file_id for each in before] == ["f"]


def test_v6_file_id_is_replaced_only_in_its_own_partition() -> None:
    visibility = Visibility(
        {time(10): time(11), time(20): time(21)}, time(10), replaced={("p", "f"): time(20)}
    )
    groups = file_groups([file(base("f", 10)), file(base("f", 10, "q"))], visibility)
    assert [each.partition for each in visible_slices(groups, visibility)] == ["q"]


def test_time_travel_is_by_request_time() -> None:
    keys = [base("f", 10), log("f", 12), log("f", 14), base("f", 20), log("f", 22)]
    group = one_group(keys, seen({10: 11, 12: 19, 14: 15, 20: 21, 22: 23}))

    def at(as_of: int) -> tuple[str, list[int]] | None:
        found = group.at(time(as_of))
        if found is None:
            return None
        return found.instant, [_number(each.instant) for each in found.logs]

    assert at(9) is None
    assert at(10) == (time(10), [])
    assert at(12) == (time(10), [12])  # requested by then, although completed later
    assert at(19) == (time(10), [12, 14])
    assert at(20) == (time(20), [])
    assert at(99) == (time(20), [22])


def test_read_optimised_view_has_base_files_only() -> None:
    keys = [base("f", 10), log("f", 12), log("g", 12)]
    visibility = seen({10: 11, 12: 13})
    groups = file_groups([file(key) for key in keys], visibility)
    (only,) = visible_slices(groups, visibility, read_optimized=True)
    assert (only.file_id, only.logs) == ("f", ())
    assert visible_slices(groups, visibility, as_of=time(9), read_optimized=True) == ()


def test_two_base_files_of_one_version_are_refused_by_name() -> None:
    twin = base("f", 10, token=WriteToken(0, 1, 2))
    with pytest.raises(DataCorrupt, match="both the base file of the same") as caught:
        file_groups([file(base("f", 10)), file(twin)], seen({10: 11}))
    assert base("f", 10) in str(caught.value)
    assert twin in str(caught.value)


def test_change_data_files_are_not_read_as_rows() -> None:
    feed = data_file("p", f".f_{time(12)}.log.1_0-1-1.cdc", 1)
    assert feed is not None
    group = one_group([base("f", 10)], seen({10: 11}))
    assert file_groups([file(base("f", 10)), feed], seen({10: 11, 12: 13})) == (group,)


def test_logs_are_in_hudis_merge_order() -> None:
    keys = [log("f", 12, version=10), log("f", 11), log("f", 12, version=2), base("f", 10)]
    found = one_group(keys, seen({10: 11, 11: 15, 12: 13})).at()
    assert found is not None
    assert [(_number(each.instant), each.version) for each in found.logs] == [
        (11, 1),
        (12, 2),
        (12, 10),
    ]


@dataclass(frozen=True)
class History:
    """The files of one file group and the outcome of their writes."""

    files: tuple[DataFile, ...]
    visibility: Visibility


@st.composite
def histories(draw: st.DrawFn, *, compaction: bool = False) -> History:
    times = draw(st.lists(st.integers(1, 500), min_size=1, max_size=12, unique=True))
    completed: dict[str, str] = {}
    pending: set[str] = set()
    files: list[DataFile] = []
    for at in times:
        kind = draw(st.sampled_from(["base", "log", "log", "two logs"]))
        files.append(file(base("f", at) if kind == "base" else log("f", at)))
        if kind == "two logs":
            files.append(file(log("f", at, version=2)))
        if draw(st.integers(0, 3)):
            completed[time(at)] = time(at + draw(st.integers(1, 200)))
        else:
            pending.add(time(at))
    start = time(draw(st.integers(0, 100)))
    compacting = {("p", "f"): time(draw(st.integers(501, 600)))} if compaction else {}
    return History(
        tuple(files), Visibility(completed, start, frozenset(pending), compacting=compacting)
    )


@given(histories())
def test_every_completed_file_is_in_exactly_one_slice(history: History) -> None:
    placed = Counter[DataFile]()
    for group in file_groups(history.files, history.visibility):
        for each in group.slices:
            placed.update(each.logs)
            placed.update([each.base] if each.base else [])
    assert placed == Counter(
        each for each in history.files if each.instant in history.visibility.completions
    )


@given(histories(), st.randoms(use_true_random=False))
def test_order_of_files_does_not_matter(history: History, random: Random) -> None:
    shuffled = list(history.files)
    random.shuffle(shuffled)
    expected = file_groups(history.files, history.visibility)
    assert file_groups(shuffled, history.visibility) == expected


@given(histories())
def test_log_lies_between_its_slice_and_the_next(history: History) -> None:
    for group in file_groups(history.files, history.visibility):
        begins = [each.instant for each in group.slices]
        assert begins == sorted(set(begins))
        for each, after in zip(group.slices, [*begins[1:], "~"], strict=True):
            assert list(each.logs) == sorted(each.logs, key=lambda found: found.order)
            for found in each.logs:
                completion = history.visibility.completions[found.instant]
                assert each.instant <= completion
                # A base file requested before the log completed would have the log in its slice.
                assert completion < after or each.base is None


@given(histories(compaction=True))
def test_pending_compaction_changes_nothing_for_readers(history: History) -> None:
    plain = Visibility(
        history.visibility.completions, history.visibility.start, history.visibility.pending
    )
    waiting = file_groups(history.files, history.visibility)
    for with_plan, without in zip(waiting, file_groups(history.files, plain), strict=True):
        one, other = with_plan.at(), without.at()
        assert (one and (one.base, one.logs)) == (other and (other.base, other.logs))
        assert with_plan.base_at() == without.base_at()


@given(histories(), st.integers(0, 800))
def test_time_travel_shows_nothing_requested_later(history: History, as_of: int) -> None:
    for group in file_groups(history.files, history.visibility):
        found = group.at(time(as_of))
        shown: list[BaseFile | LogFile] = []
        if found is not None:
            shown = [*([found.base] if found.base else []), *found.logs]
        assert all(each.instant <= time(as_of) for each in shown)


@given(histories(), st.integers(0, 800))
def test_later_writes_are_pending_at_an_earlier_time(history: History, as_of: int) -> None:
    earlier = history.visibility.until(time(as_of))
    for group in file_groups(history.files, earlier):
        for each in group.slices:
            files: list[DataFile] = [*each.logs, *([each.base] if each.base else [])]
            assert all(history.visibility.completions[f.instant] <= time(as_of) for f in files)
