"""Results that take the place of older ones, and those that stay beside them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import kept
from benchmarks.kept import joined, loaded
from benchmarks.lakes.contest import LakeFigure, LakeRun
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.suite import Results

RUN = LakeRun(0.1, 600_000, 1, load_before=1.0, load_after=2.0)


def figure(system: str, seconds: float) -> LakeFigure:
    return LakeFigure(SYSTEMS[system], "load", seconds, seconds, 1.0, 100.0, 1)


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
