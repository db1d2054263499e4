from __future__ import annotations

import pytest

from tests.unit.doubles import ManualClock
from tests.unit.tableservice.pieces import at, piece
from tidelock.base.errors import ConfigInvalid
from tidelock.table.timeline.metadata import CompactionPlan
from tidelock.tableservice.compaction.plan import (
    Choice,
    Due,
    Since,
    Strategy,
    Trigger,
    is_due,
    plan_compaction,
)
from tidelock.tableservice.config import compaction_choice

FEW, MANY = Since(2, 1, 10), Since(6, 5, 4000)


def ids(plan: CompactionPlan | None) -> list[str | None]:
    assert plan is not None
    return [operation.file_id for operation in plan.operations or ()]


@pytest.mark.parametrize(
    ("trigger", "since", "expected"),
    [
        (Trigger.NUM_COMMITS, FEW, False),
        (Trigger.NUM_COMMITS, MANY, True),
        (Trigger.NUM_COMMITS_AFTER_LAST_REQUEST, Since(9, 4, 0), False),
        (Trigger.NUM_COMMITS_AFTER_LAST_REQUEST, Since(9, 5, 0), True),
        (Trigger.TIME_ELAPSED, Since(0, 0, 3600), True),
        (Trigger.TIME_ELAPSED, Since(99, 99, 3599), False),
        (Trigger.NUM_AND_TIME, Since(5, 5, 10), False),
        (Trigger.NUM_AND_TIME, MANY, True),
        (Trigger.NUM_OR_TIME, Since(5, 5, 10), True),
        (Trigger.NUM_OR_TIME, Since(1, 1, 9999), True),
        (Trigger.NUM_OR_TIME, FEW, False),
    ],
)
def test_triggers_are_hudis(trigger: Trigger, since: Since, expected: bool) -> None:
    assert is_due(Due(trigger), since) is expected


def test_file_groups_without_logs_are_left_alone() -> None:
    assert plan_compaction([piece("a"), piece("b")], Choice()) is None


def test_groups_of_another_plan_are_left_to_it() -> None:
    slices = [piece("a", logs_mb=(1,)), piece("b", logs_mb=(1,))]
    plan = plan_compaction(slices, Choice(), busy={("p", "a")})
    assert ids(plan) == ["b"]


def test_the_largest_logs_come_first() -> None:
    slices = [piece("a", logs_mb=(1,)), piece("b", logs_mb=(5,)), piece("c", logs_mb=(2, 2))]
    assert ids(plan_compaction(slices, Choice())) == ["b", "c", "a"]


def test_the_most_logs_come_first_by_number() -> None:
    slices = [piece("a", logs_mb=(9,)), piece("c", logs_mb=(1, 1))]
    assert ids(plan_compaction(slices, Choice(Strategy.LOG_FILE_NUM))) == ["c", "a"]


def test_small_logs_wait_below_the_threshold() -> None:
    slices = [piece("a", logs_mb=(1,)), piece("b", logs_mb=(5,))]
    choice = Choice(log_bytes_min=2 * 1024 * 1024)
    assert ids(plan_compaction(slices, choice)) == ["b"]


def test_a_plan_is_bounded_by_what_it_reads_and_writes() -> None:
    slices = [piece(name, logs_mb=(1,)) for name in "abcd"]
    # Each reads 11 MB and writes 10.
    bounded = Choice(Strategy.BOUNDED_IO, io_mb_max=40)
    assert ids(plan_compaction(slices, bounded)) == ["a", "b"]
    assert ids(plan_compaction(slices, Choice(Strategy.UNBOUNDED, io_mb_max=1))) == list("abcd")


def test_an_operation_names_its_files_as_java_does() -> None:
    plan = plan_compaction([piece("a", 1, logs_mb=(1, 2))], Choice())
    assert plan is not None
    assert plan.operations is not None
    (operation,) = plan.operations
    assert plan.version == 2
    assert operation.base_instant_time == at(1)
    assert operation.data_file_path == f"a_0-1-1_{at(1)}.parquet"
    assert operation.delta_file_paths == (
        f".a_{at(2)}.log.1_0-1-1",
        f".a_{at(3)}.log.1_0-1-1",
    )
    assert operation.partition_path == "p"
    assert operation.metrics == {
        "TOTAL_LOG_FILES": 2.0,
        "TOTAL_IO_READ_MB": 13.0,
        "TOTAL_IO_WRITE_MB": 10.0,
        "TOTAL_IO_MB": 23.0,
        "TOTAL_LOG_FILES_SIZE": 3.0 * 1024 * 1024,
    }


def test_a_group_of_logs_alone_is_compacted_too() -> None:
    plan = plan_compaction([piece("a", 1, size_mb=None, logs_mb=(1,))], Choice())
    assert plan is not None
    assert plan.operations is not None
    assert plan.operations[0].data_file_path is None


def test_the_same_slices_in_any_order_make_the_same_plan() -> None:
    slices = [piece(name, logs_mb=(1,)) for name in "abcd"]
    assert plan_compaction(slices, Choice()) == plan_compaction(slices[::-1], Choice())


DAYS = [f"2024/01/{day:02}" for day in range(10, 21)]


def by_day(choice: Choice) -> list[str | None]:
    slices = [piece(day[-2:], logs_mb=(1,), partition=day) for day in DAYS]
    return ids(plan_compaction(slices, choice))


def test_partitions_of_days_are_compacted_from_the_last_on() -> None:
    assert by_day(Choice(Strategy.DAY_BASED, days=3)) == ["20", "19", "18"]
    assert by_day(Choice(Strategy.RECENT_DAYS, earliest_day="2024-01-19")) == ["20", "19"]
    assert by_day(Choice(Strategy.EARLIER_DAYS, earliest_day="2024-01-12")) == ["11", "10"]
    hive = [piece(f"{day}", logs_mb=(1,), partition=f"day=2024-01-0{day}") for day in range(1, 5)]
    chosen = Choice(Strategy.RECENT_DAYS, earliest_day="2024-01-03")
    assert ids(plan_compaction(hive, chosen)) == ["4", "3"]


def test_partitions_are_compacted_that_an_expression_is_found_in() -> None:
    assert by_day(Choice(Strategy.PARTITION_REGEX, pattern="/1[89]$")) == ["18", "19"]


def test_strategies_choose_one_after_the_other() -> None:
    chosen = Choice(Strategy.DAY_BASED, days=4, io_mb_max=40, then=(Strategy.BOUNDED_IO,))
    assert by_day(chosen) == ["20", "19"]


def test_strategies_go_by_hudis_names() -> None:
    package = "org.apache.hudi.table.action.compact.strategy"
    settings = {
        "hoodie.compaction.strategy": f"{package}.DayBasedCompactionStrategy,"
        f" {package}.LogFileNumBasedCompactionStrategy",
        "hoodie.compaction.daybased.target.partitions": "2",
    }
    choice = compaction_choice(settings, ManualClock())
    assert (choice.strategy, choice.then) == (Strategy.DAY_BASED, (Strategy.LOG_FILE_NUM,))
    assert (choice.days, choice.earliest_day) == (2, "2023-11-12")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hoodie.compaction.strategy": "x.Mine"}, "x.Mine is not known"),
        ({"hoodie.compaction.partition.path.regex": "["}, "regex = \\["),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        compaction_choice(settings, ManualClock())
