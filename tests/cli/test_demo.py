"""The demo passes without Spark and stops on request, and the commands it prints work."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.cli.program import Program, end, eventually, is_running, start
from tidelock.cli.demo import next_commands
from tidelock.core.system import SystemClock
from tidelock.workload.demo import WITHOUT_SPARK, TableDemo, TableDemoPlan
from tidelock.workload.screen import Screen
from tidelock.workload.table_program import TableFleetSpec, table_pool

SHORT = TableDemoPlan(dict(WITHOUT_SPARK), phase_s=1.0)


@pytest.mark.timeout(900)
def test_demo_passes_and_its_printed_commands_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = StringIO()
    screen = Screen(Console(file=shown, force_terminal=True, width=110, height=50))
    spec = TableFleetSpec(str(tmp_path / "orders"), pause_ms=20)
    with table_pool(tmp_path, spec) as pool, screen:
        report = TableDemo(SHORT, pool, screen, SystemClock()).run()
    assert report.passed, report.checks
    assert len(report.faults) == 1
    assert report.figures["writes"] > 0
    phrases = (
        "SIGKILL to",
        "is rolled back",
        "restarted",
        "ledger",
        "conflicts",
        "no pending plan",
    )
    for each in phrases:
        assert each in shown.getvalue()
    monkeypatch.setattr(sys, "argv", [str(Path(sys.executable).with_name("tidelock"))])
    for command in next_commands(tmp_path)[:2]:
        ended = subprocess.run(shlex.split(command), capture_output=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr


def test_ctrl_c_stops_the_demo_and_cleans_up(tmp_path: Path) -> None:
    process = start("demo", "--no-spark", "--no-keep", env={**os.environ, "TMPDIR": str(tmp_path)})
    eventually(lambda: len(list(tmp_path.glob("*/journals/*.jsonl"))) == 5)
    children = _children(process.pid)
    assert len(children) == 5
    process.send_signal(signal.SIGINT)
    assert end(process).code == 130
    assert list(tmp_path.iterdir()) == []
    eventually(lambda: not any(is_running(pid) for pid in children))


def test_child_processes_exit_when_the_demo_is_killed(tmp_path: Path) -> None:
    process = start("demo", "--no-spark", env={**os.environ, "TMPDIR": str(tmp_path)})
    eventually(lambda: len(list(tmp_path.glob("*/journals/*.jsonl"))) == 5)
    children = _children(process.pid)
    assert len(children) == 5
    process.kill()
    end(process)
    eventually(lambda: not any(is_running(pid) for pid in children))


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(child) for child in listed.split()]


def test_invalid_duration_is_refused(tidelock: Program) -> None:
    ended = tidelock("demo", "--seconds", "-1")
    assert ended.code == 2
    assert "--seconds" in ended.err
