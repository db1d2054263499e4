"""A comparison of systems: what is recorded for each, and what remains after an interruption."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.lakes import comparison
from benchmarks.lakes.comparison import ComparisonOptions
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.figure import Comparison, missing_name, suite_of, system_of
from benchmarks.lakes.meter import files_below, written
from benchmarks.lakes.process import ProgramOutput
from benchmarks.lakes.program import cause
from benchmarks.lakes.suites import GOALS

JAVA = """An error occurred while calling o51.sql.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Scheduler.run(Scheduler.scala:1)
Caused by: java.io.IOException: the disk is full
\tat java.base/java.io.Writer.write(Writer.java:2)
"""


def line(measure: str, **values: object) -> str:
    usual = {"cpu_s": 1.0, "others_s": 0.1, "peak_mb": 9.0, "files": 2, "written_mb": 0.5}
    return json.dumps({"measure": measure, "requests": {"put": 3}, **usual, **values})


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> dict[str, ProgramOutput]:
    """Simulated output of each system's process."""
    answers: dict[str, ProgramOutput] = {}

    def run(system: str, _module: str, _words: Sequence[object], _s_max: float) -> ProgramOutput:
        return answers[system]

    monkeypatch.setattr(comparison, "run", run)
    monkeypatch.setattr(comparison, "write_inputs", lambda *_: 600)
    monkeypatch.setattr(comparison, "generator", Path)
    return answers


def compared(*systems: str) -> list[Comparison]:
    values: list[Comparison] = []
    comparison.measure(ComparisonOptions(rounds=1, systems=systems, suite=GOALS), values.append)
    return values


def test_results_of_a_system_are_reported_as_soon_as_it_ends(
    output: dict[str, ProgramOutput],
) -> None:
    output["delta"] = ProgramOutput(line("load", wall_s=1.0), None)
    output["hudi"] = ProgramOutput(line("load", wall_s=2.0), None)
    first, second = compared("delta", "hudi")
    assert [one.system for one in first.figures] == [SYSTEMS["delta"]]
    assert [one.best_s for one in second.figures] == [1.0, 2.0]
    assert second.figures[0].requests == {"put": 3}
    assert second.run.others == pytest.approx(0.2 / 3)


def test_stopped_system_keeps_its_finished_steps(
    output: dict[str, ProgramOutput],
) -> None:
    output["delta"] = ProgramOutput(
        line("load", wall_s=1.0), "stopped after 9 s; the rest was not reached"
    )
    (found,) = compared("delta")
    assert [one.measure for one in found.figures] == ["load"]
    assert found.missing == {
        missing_name(SYSTEMS["delta"], GOALS): "stopped after 9 s; the rest was not reached"
    }


def test_system_with_rows_unlike_the_majority_has_no_figures(
    output: dict[str, ProgramOutput],
) -> None:
    for system, total in (("delta", 7.0), ("hudi", 7.0), ("iceberg", 8.0)):
        values = json.dumps({"measure": "sum", "sum": total})
        output[system] = ProgramOutput("\n".join([line("load", wall_s=1.0), values]), None)
    found = compared("delta", "hudi", "iceberg")[-1]
    assert {one.system for one in found.figures} == {SYSTEMS["delta"], SYSTEMS["hudi"]}


def test_jvm_error_is_reported_by_its_root_cause() -> None:
    assert cause(RuntimeError(JAVA)) == "java.io.IOException: the disk is full"
    assert cause(RuntimeError(JAVA.partition("Caused")[0])).startswith(
        "org.apache.spark.SparkException"
    )
    assert "did not answer" in cause(RuntimeError("An error occurred while calling o51.sql"))
    assert cause(KeyError()) == "KeyError"


@pytest.mark.parametrize("system", SYSTEMS.values())
def test_name_of_a_missing_result_has_system_and_suite(system: str) -> None:
    for suite in ("whole", GOALS):
        for what in (system, f"{system}: upsert 1 %"):
            name = missing_name(what, suite)
            assert (system_of(name), suite_of(name)) == (system, suite)


def test_created_and_rewritten_files_are_counted(tmp_path: Path) -> None:
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
