from __future__ import annotations

import pytest

from tests.unit.doubles import ManualClock
from tests.unit.services.file_slices import at, piece
from tidelock.core.errors import ConfigInvalid
from tidelock.hudi.timeline.metadata import CompactionPlan
from tidelock.services.compaction import (
    CompactionPlanStrategy,
    CompactionRule,
    CompactionTrigger,
    SinceCompaction,
    TriggerRule,
    is_due,
    plan_compaction,
)
from tidelock.services.config import compaction_rule

FEW, MANY = SinceCompaction(2, 1, 10), SinceCompaction(6, 5, 4000)


def ids(plan: CompactionPlan | None) -> list[str | None]:
    assert plan is not None
    return [operation.file_id for operation in plan.operations or ()]


@pytest.mark.parametrize(
    ("trigger", "since", "expected"),
    [
        (CompactionTrigger.NUM_COMMITS, FEW, False),
        (CompactionTrigger.NUM_COMMITS, MANY, True),
        (CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST, SinceCompaction(9, 4, 0), False),
        (CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST, SinceCompaction(9, 5, 0), True),
        (CompactionTrigger.TIME_ELAPSED, SinceCompaction(0, 0, 3600), True),
        (CompactionTrigger.TIME_ELAPSED, SinceCompaction(99, 99, 3599), False),
        (CompactionTrigger.NUM_AND_TIME, SinceCompaction(5, 5, 10), False),
        (CompactionTrigger.NUM_AND_TIME, MANY, True),
        (CompactionTrigger.NUM_OR_TIME, SinceCompaction(5, 5, 10), True),
        (CompactionTrigger.NUM_OR_TIME, SinceCompaction(1, 1, 9999), True),
        (CompactionTrigger.NUM_OR_TIME, FEW, False),
    ],
)
def test_triggers_are_those_of_hudi(
    trigger: CompactionTrigger, since: SinceCompaction, expected: bool
) -> None:
    assert is_due(TriggerRule(trigger), since) is expected


def test_file_groups_without_logs_are_skipped() -> None:
    assert plan_compaction([piece("a"), piece("b")], CompactionRule()) is None


def test_groups_of_another_plan_are_skipped() -> None:
    slices = [piece("a", logs_mb=(1,)), piece("b", logs_mb=(1,))]
    plan = plan_compaction(slices, CompactionRule(), busy={("p", "a")})
    assert ids(plan) == ["b"]


def test_largest_logs_come_first() -> None:
    slices = [piece("a", logs_mb=(1,)), piece("b", logs_mb=(5,)), piece("c", logs_mb=(2, 2))]
    assert ids(plan_compaction(slices, CompactionRule())) == ["b", "c", "a"]


def test_groups_with_the_most_logs_come_first_when_ordered_by_number() -> None:
    slices = [piece("a", logs_mb=(9,)), piece("c", logs_mb=(1, 1))]
    assert ids(plan_compaction(slices, CompactionRule(CompactionPlanStrategy.LOG_FILE_NUM))) == [
        "c",
        "a",
    ]


def test_small_logs_wait_below_the_threshold() -> None:
    slices = [piece("a", logs_mb=(1,)), piece("b", logs_mb=(5,))]
    choice = CompactionRule(log_bytes_min=2 * 1024 * 1024)
    assert ids(plan_compaction(slices, choice)) == ["b"]


def test_plan_is_bounded_by_its_io() -> None:
    slices = [piece(name, logs_mb=(1,)) for name in "abcd"]
    # Each reads 11 MB and writes 10.
    bounded = CompactionRule(CompactionPlanStrategy.BOUNDED_IO, io_mb_max=40)
    assert ids(plan_compaction(slices, bounded)) == ["a", "b"]
    assert ids(
        plan_compaction(slices, CompactionRule(CompactionPlanStrategy.UNBOUNDED, io_mb_max=1))
    ) == list("abcd")


def test_operation_names_its_files_as_in_java() -> None:
    plan = plan_compaction([piece("a", 1, logs_mb=(1, 2))], CompactionRule())
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


def test_group_with_only_logs_is_compacted_too() -> None:
    plan = plan_compaction([piece("a", 1, size_mb=None, logs_mb=(1,))], CompactionRule())
    assert plan is not None
    assert plan.operations is not None
    assert plan.operations[0].data_file_path is None


def test_slice_order_does_not_change_the_plan() -> None:
    slices = [piece(name, logs_mb=(1,)) for name in "abcd"]
    assert plan_compaction(slices, CompactionRule()) == plan_compaction(
        slices[::-1], CompactionRule()
    )


DAYS = [f"2024/01/{day:02}" for day in range(10, 21)]


def by_day(choice: CompactionRule) -> list[str | None]:
    slices = [piece(day[-2:], logs_mb=(1,), partition=day) for day in DAYS]
    return ids(plan_compaction(slices, choice))


def test_day_partitions_are_compacted_from_the_latest_on() -> None:
    assert by_day(CompactionRule(CompactionPlanStrategy.DAY_BASED, days=3)) == ["20", "19", "18"]
    assert by_day(
        CompactionRule(CompactionPlanStrategy.RECENT_DAYS, earliest_day="2024-01-19")
    ) == ["20", "19"]
    assert by_day(
        CompactionRule(CompactionPlanStrategy.EARLIER_DAYS, earliest_day="2024-01-12")
    ) == ["11", "10"]
    hive = [piece(f"{day}", logs_mb=(1,), partition=f"day=2024-01-0{day}") for day in range(1, 5)]
    chosen = CompactionRule(CompactionPlanStrategy.RECENT_DAYS, earliest_day="2024-01-03")
    assert ids(plan_compaction(hive, chosen)) == ["4", "3"]


def test_partitions_matching_an_expression_are_compacted() -> None:
    assert by_day(CompactionRule(CompactionPlanStrategy.PARTITION_REGEX, pattern="/1[89]$")) == [
        "18",
        "19",
    ]


def test_strategies_are_applied_in_turn() -> None:
    chosen = CompactionRule(
        CompactionPlanStrategy.DAY_BASED,
        days=4,
        io_mb_max=40,
        then=(CompactionPlanStrategy.BOUNDED_IO,),
    )
    assert by_day(chosen) == ["20", "19"]


def test_strategies_have_the_names_of_hudi() -> None:
    package = "org.apache.hudi.table.action.compact.strategy"
    settings = {
        "hoodie.compaction.strategy": f"{package}.DayBasedCompactionStrategy,"
        f" {package}.LogFileNumBasedCompactionStrategy",
        "hoodie.compaction.daybased.target.partitions": "2",
    }
    choice = compaction_rule(settings, ManualClock())
    assert (choice.strategy, choice.then) == (
        CompactionPlanStrategy.DAY_BASED,
        (CompactionPlanStrategy.LOG_FILE_NUM,),
    )
    assert (choice.days, choice.earliest_day) == (2, "2023-11-12")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hoodie.compaction.strategy": "x.Mine"}, "got 'x.Mine'"),
        ({"hoodie.compaction.partition.path.regex": "["}, "regex: expected a regular expression"),
    ],
)
def test_invalid_settings_are_reported(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        compaction_rule(settings, ManualClock())
