"""The checks of the pipeline fleet. `make pipeline-fleet` runs the fleet itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from testkit.pipelinefleet import STREAMERS, FleetRun, Inbox, checks_of, follow
from tidelock.txn.app_transactions import AppTransaction
from tidelock.workload.journal import ProgramEvent
from tidelock.workload.oracle import check_table
from tidelock.workload.steps import FleetRow, StepGenerator
from tidelock.workload.table_program import TableFleetSpec, table_pool
from tidelock.workload.table_writers import arrow_rows

TERMS = StepGenerator(seed=3, keys=40, rows=6)

_STREAMER = """
import json, pathlib, signal, sys, time
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
folder, version, idle = pathlib.Path(sys.argv[1]), 0, False
def say(**facts):
    print(json.dumps(facts), flush=True)
while not ended:
    if (folder / f"{version:06}.json").exists():
        report = {"completion": str(version), "rebases": 0}
        say(event="batch", version=version, duration_ms=1, report=report)
        version, idle = version + 1, False
        continue
    if not idle:
        say(event="idle")
    idle = True
    time.sleep(0.005)
say(event="end")
"""


@contextmanager
def _like_a_streamer(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_streamer_gets_one_file_per_batch_and_stops_after_the_last(
    tmp_path: Path,
) -> None:
    inbox = Inbox(tmp_path, TERMS, "east")
    with _like_a_streamer(_STREAMER, tmp_path) as streamer:
        noted = list(follow(streamer, inbox, lambda: inbox.written >= 5))
        assert streamer.wait(120) == 0
    assert [each.facts["step"] for each in noted] == list(range(inbox.written))
    assert {each.name for each in noted} == {"streamer:east"}
    assert inbox.written == 5


def test_failed_batch_does_not_count(tmp_path: Path) -> None:
    program = 'print(\'{"event": "failed", "error": {"message": "no"}}\', flush=True)'
    with (
        _like_a_streamer(program, tmp_path) as streamer,
        pytest.raises(AssertionError, match="a streamer failed"),
    ):
        list(follow(streamer, Inbox(tmp_path, TERMS, "east"), lambda: False))


def _run(tmp_path: Path, *, left_out: int | None) -> FleetRun:
    """Return a run in which every file but one was ingested."""
    spec = TableFleetSpec(str(tmp_path / "orders"), TERMS, options={})
    with (
        table_pool(tmp_path, spec) as pool,
        closing(spec.open()) as table,
    ):
        run = FleetRun(pool)
        for name in STREAMERS:
            inbox = Inbox(tmp_path, TERMS, name)
            for step in range(4):
                inbox.add_file()
                lines = (tmp_path / f"{step:06}.json").read_text().splitlines()
                rows = tuple(FleetRow(**json.loads(line)) for line in lines)
                some = rows[:0] if step == left_out else rows
                done = table.upsert(
                    arrow_rows(some), app_transaction=AppTransaction(inbox.program, step)
                )
                facts = {"step": step, "completion": done.completion, "took_ms": 1, "rebases": 0}
                run.record.add(ProgramEvent(inbox.program, "wrote", 0, facts))
    return run


def test_rows_written_by_streamers_match_their_files(tmp_path: Path) -> None:
    run = _run(tmp_path, left_out=None)
    checks = list(check_table(run.pool, run.record))
    assert all(check.passed is not False for check in checks), checks
    assert "8 steps committed" in checks[0].message


def test_missing_acknowledged_batch_is_detected(tmp_path: Path) -> None:
    run = _run(tmp_path, left_out=3)
    wrong = [check.message for check in check_table(run.pool, run.record) if check.passed is False]
    assert any("wrong rows" in says for says in wrong)


def test_step_skipped_at_the_start_is_detected(tmp_path: Path) -> None:
    run = FleetRun(table_pool(tmp_path, TableFleetSpec(str(tmp_path / "orders"))))
    for step in (2, 3):
        run.record.committed["streamer:east", step] = str(step)
    (gap,) = run.record.gaps()
    assert "streamer:east skipped a step" in gap


def test_failures_and_idle_streamers_are_reported(tmp_path: Path) -> None:
    run = FleetRun(table_pool(tmp_path, TableFleetSpec(str(tmp_path / "orders"))))
    run.record.add(ProgramEvent("sql", "failed", 0, {"step": 1, "says": "the table is gone"}))
    failed, idle = checks_of(run)
    assert not failed.passed
    assert "sql: the table is gone" in failed.message
    assert not idle.passed
    for name in STREAMERS:
        run.record.committed[f"streamer:{name}", 0] = name
    run.record.committed |= {("sql", step): str(step) for step in (1, 2, 3)}
    run.record.failures.clear()
    run.compactions["executed"] = 1
    assert all(check.passed for check in checks_of(run))
