"""The demo passes without Spark, ends when it is asked to, and what it prints works."""

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

from tests.ops.program import Program, end, eventually, is_running, start
from tidelock.base.clock import SystemClock
from tidelock.ops.cli.demo import next_commands
from tidelock.ops.demo.board import Board
from tidelock.ops.demo.director import Director
from tidelock.ops.demo.plan import WITHOUT_SPARK, Plan
from tidelock.ops.fleet.articles import Articles
from tidelock.ops.fleet.crew import Crew
from tidelock.ops.fleet.member import Role

SHORT = Plan(dict(WITHOUT_SPARK), calm_s=1.0)


def test_the_whole_demo_passes_and_its_commands_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = StringIO()
    board = Board(Console(file=screen, force_terminal=True, width=110, height=50))
    articles = Articles(str(tmp_path / "orders"), pause_ms=20)
    with Crew[Articles, Role](tmp_path, articles) as crew, board:
        outcome = Director(SHORT, crew, board, SystemClock()).play()
    assert outcome.passed, outcome.checks
    assert len(outcome.faults) == 1
    assert outcome.landed > 0
    shown = screen.getvalue()
    for words in ("SIGKILL to", "is undone", "is back", "ledger", "conflicts", "no plan waits"):
        assert words in shown
    monkeypatch.setattr(sys, "argv", [str(Path(sys.executable).with_name("tidelock"))])
    for command in next_commands(tmp_path)[:2]:
        ended = subprocess.run(shlex.split(command), capture_output=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr


def test_ctrl_c_ends_the_demo_and_leaves_nothing(tmp_path: Path) -> None:
    process = start("demo", "--no-spark", "--no-keep", env={**os.environ, "TMPDIR": str(tmp_path)})
    eventually(lambda: len(list(tmp_path.glob("*/journals/*.jsonl"))) == 5, within_s=120)
    children = _children(process.pid)
    assert len(children) == 5
    process.send_signal(signal.SIGINT)
    assert end(process, within_s=60).code == 130
    assert list(tmp_path.iterdir()) == []
    eventually(lambda: not any(is_running(pid) for pid in children))


def test_programs_end_when_the_demo_is_killed(tmp_path: Path) -> None:
    process = start("demo", "--no-spark", env={**os.environ, "TMPDIR": str(tmp_path)})
    eventually(lambda: len(list(tmp_path.glob("*/journals/*.jsonl"))) == 5, within_s=120)
    children = _children(process.pid)
    process.kill()
    end(process)
    eventually(lambda: not any(is_running(pid) for pid in children), within_s=120)


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(child) for child in listed.split()]


def test_a_length_that_cannot_be_is_refused(tidelock: Program) -> None:
    ended = tidelock("demo", "--seconds", "-1")
    assert ended.code == 2
    assert "--seconds" in ended.err
