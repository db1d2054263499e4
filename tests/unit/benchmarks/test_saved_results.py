"""Stored results: new ones replace older ones of the same kind and keep the others."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import saved_results
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.figure import WHOLE, LakeFigure, LakeRun, missing_name
from benchmarks.lakes.suites import GOALS
from benchmarks.merging import Merged
from benchmarks.saved_results import loaded, merge_with_newest
from benchmarks.suite import Results

RUN = LakeRun(0.1, 600_000, 1, load_before=1.0, load_after=2.0)
LARGE = replace(RUN, scale=1, rows=6_000_000, suite=GOALS)


def figure(system: str, seconds: float, suite: str = WHOLE) -> LakeFigure:
    return LakeFigure(SYSTEMS[system], "load", seconds, seconds, 1.0, 100.0, 1, suite)


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    monkeypatch.setattr(saved_results, "_RESULTS", tmp_path)
    found = Results(
        taken_at="2026-01-01T00:00Z",
        lakes=[figure("delta", 1.0), figure("hudi", 2.0)],
        lake_runs=[RUN],
        missing={SYSTEMS["paimon"]: "no such package", "etcd": "not there"},
    )
    (tmp_path / "2026-01-01T0000Z.json").write_text(json.dumps(asdict(found)))
    return found


def test_results_round_trip(before: Results) -> None:
    assert loaded(Results, json.loads(json.dumps(asdict(before)))) == before


def test_new_figures_replace_those_of_the_same_system_only(
    before: Results,
) -> None:
    fresh = Results(taken_at="now", lakes=[figure("delta", 9.0)], lake_runs=[RUN])
    found = merge_with_newest(fresh)
    assert {(one.system, one.best_s) for one in found.lakes} == {
        (SYSTEMS["hudi"], 2.0),
        (SYSTEMS["delta"], 9.0),
    }
    assert found.missing == before.missing
    assert found.taken["lakes"] == "now"


def test_results_of_another_size_or_load_are_not_combined(
    before: Results,
) -> None:
    for other in (replace(RUN, rows=7), replace(RUN, load_after=30.0)):
        fresh = Results(lakes=[figure("delta", 9.0)], lake_runs=[other])
        found = merge_with_newest(fresh)
        assert [one.best_s for one in found.lakes] == [9.0]
        assert found.missing == {"etcd": before.missing["etcd"]}


def test_suites_are_stored_side_by_side(before: Results) -> None:
    fresh = Results(lakes=[figure("delta", 9.0, GOALS)], lake_runs=[LARGE])
    found = merge_with_newest(fresh)
    assert found.lakes == [*before.lakes, *fresh.lakes]
    assert found.lake_runs == [RUN, LARGE]
    assert found.missing == before.missing


def test_storing_a_run_repeatedly_equals_storing_it_once(before: Results, tmp_path: Path) -> None:
    fresh = Results(lakes=[figure("delta", 9.0, GOALS)], lake_runs=[LARGE])
    (tmp_path / "2026-01-02T0000Z.json").write_text(json.dumps(asdict(merge_with_newest(fresh))))
    fresh.lakes = [*fresh.lakes, figure("hudi", 8.0, GOALS)]
    found = merge_with_newest(fresh)
    assert found.lakes == [*before.lakes, *fresh.lakes]
    assert found.lake_runs == [RUN, LARGE]


def test_failed_measurement_removes_earlier_figures(before: Results) -> None:
    missing = {f"{SYSTEMS['delta']}: sum": "it is another"}
    fresh = Results(lakes=[figure("hudi", 9.0)], lake_runs=[RUN], missing=missing)
    found = merge_with_newest(fresh)
    assert [one.best_s for one in found.lakes] == [9.0]
    assert found.missing == {**before.missing, **missing}


def test_systems_with_a_common_name_prefix_are_distinguished(before: Results) -> None:
    logs = SYSTEMS["tidelock-spark-mor"]
    before.missing[logs] = "stopped"
    before.missing[missing_name(SYSTEMS["tidelock-spark"], GOALS)] = "stopped"
    newest = saved_results._RESULTS / "2026-01-03T0000Z.json"
    newest.write_text(json.dumps(asdict(before)))
    found = merge_with_newest(Results(lakes=[figure("tidelock-spark", 1.0)], lake_runs=[RUN]))
    assert found.missing == before.missing


def test_merges_with_the_same_row_count_are_kept(
    before: Results,
) -> None:
    before.merging = [
        Merged(SYSTEMS["delta"], "upsert", "1 %", 1.0, 600),
        Merged(SYSTEMS["hudi"], "upsert", "1 %", 2.0, 600),
    ]
    (saved_results._RESULTS / "2026-01-03T0000Z.json").write_text(json.dumps(asdict(before)))
    alike = [Merged(SYSTEMS["delta"], "upsert", "1 %", 9.0, 600)]
    larger = [Merged(SYSTEMS["delta"], "upsert", "1 %", 9.0, 6_000)]
    assert {one.best_s for one in merge_with_newest(Results(merging=alike)).merging} == {2.0, 9.0}
    assert {one.best_s for one in merge_with_newest(Results(merging=larger)).merging} == {9.0}
