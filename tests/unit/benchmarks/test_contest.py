"""A contest between systems: what is noted of each, and what a stop in the middle leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.lakes import contest
from benchmarks.lakes.contest import Asked
from benchmarks.lakes.course import GOALS
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.figure import Contest, course_of, missing_name, system_of
from benchmarks.lakes.meter import files_below, written
from benchmarks.lakes.process import Ran
from benchmarks.lakes.program import cause

JAVA = """An error occurred while calling o51.sql.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Scheduler.run(Scheduler.scala:1)
Caused by: java.io.IOException: the disk is full
\tat java.base/java.io.Writer.write(Writer.java:2)
"""


def line(measure: str, **told: object) -> str:
    usual = {"cpu_s": 1.0, "others_s": 0.1, "peak_mb": 9.0, "files": 2, "written_mb": 0.5}
    return json.dumps({"measure": measure, "requests": {"put": 3}, **usual, **told})


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, Ran]:
    """What each system says, in the place of its process."""
    answers: dict[str, Ran] = {}

    def run(system: str, _module: str, _words: Sequence[object], _s_max: float) -> Ran:
        return answers[system]

    monkeypatch.setattr(contest, "run", run)
    monkeypatch.setattr(contest, "write_inputs", lambda *_: 600)
    monkeypatch.setattr(contest, "generator", Path)
    return answers


def contested(*systems: str) -> list[Contest]:
    told: list[Contest] = []
    contest.measure(Asked(rounds=1, systems=systems, course=GOALS), told.append)
    return told


def test_what_a_system_did_is_told_as_soon_as_it_ends(said: dict[str, Ran]) -> None:
    said["delta"] = Ran(line("load", wall_s=1.0), None)
    said["hudi"] = Ran(line("load", wall_s=2.0), None)
    first, second = contested("delta", "hudi")
    assert [one.system for one in first.figures] == [SYSTEMS["delta"]]
    assert [one.best_s for one in second.figures] == [1.0, 2.0]
    assert second.figures[0].requests == {"put": 3}
    assert second.run.others == pytest.approx(0.2 / 3)


def test_a_system_that_is_stopped_keeps_the_steps_that_it_finished(said: dict[str, Ran]) -> None:
    said["delta"] = Ran(line("load", wall_s=1.0), "stopped after 9 s; the rest was not reached")
    (found,) = contested("delta")
    assert [one.measure for one in found.figures] == ["load"]
    assert found.missing == {
        missing_name(SYSTEMS["delta"], GOALS): "stopped after 9 s; the rest was not reached"
    }


def test_a_system_with_other_rows_than_most_has_no_figures(said: dict[str, Ran]) -> None:
    for system, total in (("delta", 7.0), ("hudi", 7.0), ("iceberg", 8.0)):
        told = json.dumps({"measure": "sum", "sum": total})
        said[system] = Ran("\n".join([line("load", wall_s=1.0), told]), None)
    found = contested("delta", "hudi", "iceberg")[-1]
    assert {one.system for one in found.figures} == {SYSTEMS["delta"], SYSTEMS["hudi"]}


def test_the_reason_of_an_error_in_the_jvm_is_its_root() -> None:
    assert cause(RuntimeError(JAVA)) == "java.io.IOException: the disk is full"
    assert cause(RuntimeError(JAVA.partition("Caused")[0])).startswith(
        "org.apache.spark.SparkException"
    )
    assert "did not answer" in cause(RuntimeError("An error occurred while calling o51.sql"))
    assert cause(KeyError()) == "KeyError"


@pytest.mark.parametrize("system", SYSTEMS.values())
def test_a_name_of_what_is_missing_tells_its_system_and_its_course(system: str) -> None:
    for course in ("whole", GOALS):
        for what in (system, f"{system}: upsert 1 %"):
            name = missing_name(what, course)
            assert (system_of(name), course_of(name)) == (system, course)


def test_files_that_are_made_or_written_anew_are_counted(tmp_path: Path) -> None:
    (tmp_path / "main" / "spark").mkdir(parents=True)
    for name in ("kept", "changed"):
        (tmp_path / "main" / name).write_text("old")
    before = files_below(tmp_path)
    (tmp_path / "main" / "changed").write_text("changed")
    (tmp_path / "main" / "fresh").write_text("x" * 2**20)
    (tmp_path / "main" / "spark" / "shuffle").write_text("not a table's")
    found = written(before, files_below(tmp_path))
    assert found.files == 2
    assert found.mb == pytest.approx(1.0, abs=0.01)
