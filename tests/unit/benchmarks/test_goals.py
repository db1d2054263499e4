"""Goals compared with measurements: met, missed, or unknown."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.goals import Goal, goals
from benchmarks.growth import Growth
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.figure import LakeFigure, LakeRun
from benchmarks.lakes.suites import GOALS
from benchmarks.page import page
from benchmarks.reasons import WHY
from benchmarks.suite import Results
from benchmarks.writers import WritersResult

UPSERT = "copy-on-write upsert of 10 % on Spark"


def figure(system: str, measure: str, seconds: float) -> LakeFigure:
    return LakeFigure(SYSTEMS[system], measure, seconds, seconds, 1.0, 100.0, 1)


def of(results: Results, what: str, aim: str = "") -> Goal:
    (found,) = [one for one in goals(results) if one.what == what and aim in one.aim]
    return found


def test_goals_without_measurements_are_neither_met_nor_missed() -> None:
    assert {one.met for one in goals(Results())} == {None}


def test_speed_goal_is_met_by_its_ratio_and_missed_below() -> None:
    ours = figure("tidelock-spark", "upsert 10 %", 1.0)
    fast = Results(lakes=[ours, figure("delta", "upsert 10 %", 3.0)])
    slow = Results(lakes=[ours, figure("delta", "upsert 10 %", 2.9)])
    assert of(fast, UPSERT, "Delta").met is True
    assert of(slow, UPSERT, "Delta").met is False
    assert of(slow, UPSERT, "Hudi").met is None


def test_duration_goal_is_missed_above_its_ratio() -> None:
    limit = figure("polars-limit", "upsert 10 %", 1.0)
    near = Results(lakes=[limit, figure("tidelock-spark", "upsert 10 %", 1.7)])
    far = Results(lakes=[limit, figure("tidelock-spark", "upsert 10 %", 1.8)])
    assert of(near, UPSERT, "polars").met is True
    assert of(far, UPSERT, "polars").met is False


def test_small_upsert_is_judged_by_its_cost_above_an_empty_job() -> None:
    least = figure("tidelock-spark-mor", "least Spark job", 0.2)
    passing = Results(lakes=[least, figure("tidelock-spark-mor", "upsert 1 %", 0.5)])
    missed = Results(lakes=[least, figure("tidelock-spark-mor", "upsert 1 %", 0.6)])
    what = "merge-on-read upsert of 1 % on Spark"
    assert of(passing, what, "least Spark job").met is True
    assert of(missed, what, "least Spark job").met is False


def test_cpu_seconds_count_on_a_busy_machine() -> None:
    ours = replace(figure("tidelock-spark", "load", 9.0), cpu_s=1.0)
    hudi = replace(figure("hudi", "load", 1.0), cpu_s=2.5)
    run = LakeRun(0.1, 600_000, 1, load_before=20.0, load_after=1.0)
    busy = Results(lakes=[ours, hudi], lake_runs=[run])
    quiet = Results(lakes=[ours, hudi], lake_runs=[replace(run, load_before=0.5)])
    assert of(busy, "bulk load on Spark", "Hudi").met is True
    assert of(quiet, "bulk load on Spark", "Hudi").met is False


def test_goal_is_judged_by_the_largest_run_that_has_it() -> None:
    small = LakeRun(0.1, 600_000, 1, 1.0, 1.0)
    large = LakeRun(1, 6_000_000, 1, 1.0, 1.0, GOALS)
    pair = [figure("tidelock-spark", "load", 1.0), figure("hudi", "load", 2.5)]
    slower = [
        replace(figure("tidelock-spark", "load", 10.0), suite=GOALS),
        replace(figure("hudi", "load", 15.0), suite=GOALS),
    ]
    only_small = Results(lakes=[*pair, slower[0]], lake_runs=[small, large])
    both = Results(lakes=[*pair, *slower], lake_runs=[small, large])
    assert of(only_small, "bulk load on Spark", "Hudi").found == (
        "2.50 (1.00 and 2.50 s, 0.6 million rows)"
    )
    assert of(both, "bulk load on Spark", "Hudi").found == (
        "1.50 (10.00 and 15.00 s, 6.0 million rows)"
    )


def test_machine_is_busy_by_the_usage_of_other_processes() -> None:
    run = LakeRun(0.1, 600_000, 1, load_before=9.0, load_after=9.0)
    assert run.is_busy
    assert not replace(run, others=0.1).is_busy
    assert replace(run, load_before=0.0, load_after=0.0, others=1.0).is_busy


def test_stability_is_the_growth_of_query_time() -> None:
    results = Results(
        lakes=[
            figure("tidelock-local", "queries, before", 1.0),
            figure("tidelock-local", "queries, after", 1.2),
        ]
    )
    found = of(results, f"queries after 5 rounds of changes, {SYSTEMS['tidelock-local']}")
    assert found.met is False
    assert found.found.startswith("1.20")


def writers(system: str, landed_per_s: float, *, failed: int = 0) -> WritersResult:
    return WritersResult(
        kind="append",
        writers=16,
        system=system,
        attempted=320,
        failed=failed,
        lost=0,
        twice=0,
        commits_per_s=landed_per_s,
        p50_ms=1.0,
        p99_ms=1.0,
        cpu_ms=1.0,
    )


def test_goal_fails_if_the_leading_writer_failed() -> None:
    what = "16 appenders on a local disk"
    first = Results(writers=[writers("tidelock", 20.0), writers("lance", 10.0)])
    second = Results(writers=[writers("tidelock", 10.0), writers("lance", 20.0)])
    failing = Results(writers=[writers("tidelock", 20.0, failed=1), writers("lance", 10.0)])
    assert [of(each, what).met for each in (first, second, failing)] == [True, False, False]


def test_commit_to_an_old_table_may_take_twenty_percent_longer() -> None:
    young = Growth(10, 1.0, 1.0, 10.0, 1)
    old, older = Growth(10_000, 1.0, 1.0, 12.0, 1), Growth(10_000, 1.0, 1.0, 12.1, 1)
    what = "commit to a table of 10,000 commits"
    assert of(Results(growth=[young, old]), what).met is True
    assert of(Results(growth=[young, older]), what).met is False


def test_page_marks_missed_goals() -> None:
    ours = figure("tidelock-spark", "upsert 10 %", 1.0)
    text = page(Results(lakes=[ours, figure("delta", "upsert 10 %", 2.0)]))
    assert "| 2.00 (1.00 and 2.00 s) | **missed** |" in text
    assert "![" not in text


def test_every_reason_belongs_to_an_existing_goal() -> None:
    assert set(WHY) <= {one.what for one in goals(Results())}
