"""Results that take the place of older ones, and those that stay beside them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import kept
from benchmarks.kept import joined, loaded
from benchmarks.lakes.course import GOALS
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.figure import WHOLE, LakeFigure, LakeRun, missing_name
from benchmarks.merging import Merged
from benchmarks.suite import Results

RUN = LakeRun(0.1, 600_000, 1, load_before=1.0, load_after=2.0)
LARGE = replace(RUN, scale=1, rows=6_000_000, course=GOALS)


def figure(system: str, seconds: float, course: str = WHOLE) -> LakeFigure:
    return LakeFigure(SYSTEMS[system], "load", seconds, seconds, 1.0, 100.0, 1, course)


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    monkeypatch.setattr(kept, "_RESULTS", tmp_path)
    found = Results(
        taken_at="2026-01-01T00:00Z",
        lakes=[figure("delta", 1.0), figure("hudi", 2.0)],
        lake_runs=[RUN],
        missing={SYSTEMS["paimon"]: "no such package", "etcd": "not there"},
    )
    (tmp_path / "2026-01-01T0000Z.json").write_text(json.dumps(asdict(found)))
    return found


def test_results_come_back_as_they_were_kept(before: Results) -> None:
    assert loaded(Results, json.loads(json.dumps(asdict(before)))) == before


def test_lakes_measured_anew_replace_their_own_figures_and_leave_the_others(
    before: Results,
) -> None:
    fresh = Results(taken_at="now", lakes=[figure("delta", 9.0)], lake_runs=[RUN])
    found = joined(fresh)
    assert {(one.system, one.best_s) for one in found.lakes} == {
        (SYSTEMS["hudi"], 2.0),
        (SYSTEMS["delta"], 9.0),
    }
    assert found.missing == before.missing
    assert found.taken["lakes"] == "now"


def test_lakes_of_another_size_or_another_load_do_not_stand_beside_each_other(
    before: Results,
) -> None:
    for other in (replace(RUN, rows=7), replace(RUN, load_after=30.0)):
        fresh = Results(lakes=[figure("delta", 9.0)], lake_runs=[other])
        found = joined(fresh)
        assert [one.best_s for one in found.lakes] == [9.0]
        assert found.missing == {"etcd": before.missing["etcd"]}


def test_another_course_stands_beside_the_first(before: Results) -> None:
    fresh = Results(lakes=[figure("delta", 9.0, GOALS)], lake_runs=[LARGE])
    found = joined(fresh)
    assert found.lakes == [*before.lakes, *fresh.lakes]
    assert found.lake_runs == [RUN, LARGE]
    assert found.missing == before.missing


def test_a_run_that_is_kept_again_and_again_ends_as_if_it_were_kept_once(
    before: Results, tmp_path: Path
) -> None:
    fresh = Results(lakes=[figure("delta", 9.0, GOALS)], lake_runs=[LARGE])
    (tmp_path / "2026-01-02T0000Z.json").write_text(json.dumps(asdict(joined(fresh))))
    fresh.lakes = [*fresh.lakes, figure("hudi", 8.0, GOALS)]
    found = joined(fresh)
    assert found.lakes == [*before.lakes, *fresh.lakes]
    assert found.lake_runs == [RUN, LARGE]


def test_what_fails_now_does_not_keep_the_figures_that_it_had(before: Results) -> None:
    missing = {f"{SYSTEMS['delta']}: sum": "it is another"}
    fresh = Results(lakes=[figure("hudi", 9.0)], lake_runs=[RUN], missing=missing)
    found = joined(fresh)
    assert [one.best_s for one in found.lakes] == [9.0]
    assert found.missing == {**before.missing, **missing}


def test_a_system_is_not_taken_for_another_whose_name_begins_like_it(before: Results) -> None:
    logs = SYSTEMS["tidelock-spark-mor"]
    before.missing[logs] = "stopped"
    before.missing[missing_name(SYSTEMS["tidelock-spark"], GOALS)] = "stopped"
    newest = kept._RESULTS / "2026-01-03T0000Z.json"
    newest.write_text(json.dumps(asdict(before)))
    found = joined(Results(lakes=[figure("tidelock-spark", 1.0)], lake_runs=[RUN]))
    assert found.missing == before.missing


def test_merges_of_as_many_rows_stay_beside_those_measured_now(
    before: Results,
) -> None:
    before.merging = [
        Merged(SYSTEMS["delta"], "upsert", "1 %", 1.0, 600),
        Merged(SYSTEMS["hudi"], "upsert", "1 %", 2.0, 600),
    ]
    (kept._RESULTS / "2026-01-03T0000Z.json").write_text(json.dumps(asdict(before)))
    alike = [Merged(SYSTEMS["delta"], "upsert", "1 %", 9.0, 600)]
    larger = [Merged(SYSTEMS["delta"], "upsert", "1 %", 9.0, 6_000)]
    assert {one.best_s for one in joined(Results(merging=alike)).merging} == {2.0, 9.0}
    assert {one.best_s for one in joined(Results(merging=larger)).merging} == {9.0}
