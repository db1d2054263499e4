"""The demo of the lock: its verdict finds planted violations; it passes and cleans up."""

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
from tidelock.lock.lease import Lease
from tidelock.ops.cli.lock_demo import next_commands
from tidelock.ops.lockdemo.board import Board
from tidelock.ops.lockdemo.counters import FencedCounter, PlainCounter, StaleToken
from tidelock.ops.lockdemo.director import Director
from tidelock.ops.lockdemo.journal import Did, Event, Journal, JournalReader
from tidelock.ops.lockdemo.plan import Plan
from tidelock.ops.lockdemo.verdict import judge
from tidelock.store.memory import MemoryStore

SHORT = Plan(
    names=("ada", "ben", "cleo"),
    lease=Lease(validity_ms=3_000, renew_ms=300),
    seconds=8,
    warm_up_s=0.5,
    calm_s=0.5,
)


def _holding(name: str, token: int, began_ms: int, *, until_ms: int) -> list[Event]:
    return [
        Event(name, Did.GRANTED, began_ms, token),
        Event(name, Did.BELIEVES, until_ms, token),
        Event(name, Did.WRITING, until_ms + 1, token),
        Event(name, Did.WROTE, until_ms + 2, token),
        Event(name, Did.RELEASED, until_ms + 3, token),
    ]


GOOD = [*_holding("ada", 1, 0, until_ms=90), *_holding("ben", 2, 100, until_ms=190)]


def _wrong(events: list[Event], *, fenced: int) -> list[str]:
    return [check.says for check in judge(events, fenced=fenced) if not check.passed]


def test_a_clean_run_passes() -> None:
    assert _wrong(GOOD, fenced=2) == []


def test_a_lost_increment_is_found() -> None:
    assert _wrong(GOOD, fenced=1)


def test_an_increment_from_nowhere_is_found() -> None:
    assert _wrong(GOOD, fenced=3)


def test_a_killed_writer_may_have_written_once_unseen() -> None:
    events = [*GOOD, Event("eve", Did.GRANTED, 200, 3), Event("eve", Did.WRITING, 250, 3)]
    assert _wrong(events, fenced=2) == []
    assert _wrong(events, fenced=3) == []
    assert _wrong(events, fenced=4)


def test_a_token_that_does_not_grow_is_found() -> None:
    assert _wrong([*GOOD, *_holding("eve", 2, 200, until_ms=290)], fenced=3)


def test_two_believers_are_found() -> None:
    events = [*_holding("ada", 1, 0, until_ms=150), *_holding("ben", 2, 100, until_ms=190)]
    (says,) = _wrong(events, fenced=2)
    assert "both believed for 50 ms" in says


def test_an_error_of_a_writer_is_found() -> None:
    assert _wrong([*GOOD, Event("ada", Did.FAILED, 300, says="boom")], fenced=2)


def test_the_fenced_counter_refuses_what_the_plain_one_takes() -> None:
    store = MemoryStore()
    fenced, plain = FencedCounter(store), PlainCounter(store)
    old, plain_old = fenced.read(1), plain.read()
    fenced.write(2, fenced.read(2) + 1)
    plain.write(plain.read() + 1)
    plain.write(plain_old + 1)
    assert plain.read() == 1
    with pytest.raises(StaleToken):
        fenced.write(1, old + 1)
    with pytest.raises(StaleToken):
        fenced.read(1)
    assert fenced.value() == 1


def test_a_new_holder_shuts_out_the_old_one_before_its_first_write() -> None:
    fenced = FencedCounter(MemoryStore())
    old = fenced.read(1)
    fenced.read(2)
    with pytest.raises(StaleToken):
        fenced.write(1, old + 1)


def test_a_journal_is_read_line_by_whole_line(tmp_path: Path) -> None:
    journal, reader = Journal(tmp_path, "ada", SystemClock()), JournalReader(tmp_path, "ada")
    assert reader.fresh() == []
    journal.note(Did.GRANTED, token=7)
    with (tmp_path / "ada.jsonl").open("ab") as file:
        file.write(b'{"did":"bel')
    assert [(event.did, event.token) for event in reader.fresh()] == [(Did.GRANTED, 7)]
    with (tmp_path / "ada.jsonl").open("ab") as file:
        file.write(b'ieves","at":1,"token":7,"says":""}\n')
    assert [event.did for event in reader.fresh()] == [Did.BELIEVES]
    journal.close()


def test_the_whole_demo_passes_with_a_short_lease(tmp_path: Path) -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=30)
    board = Board(console, SHORT.lease)
    with board, Director(SHORT, tmp_path, board, SystemClock()) as director:
        outcome = director.play()
    assert outcome.passed, outcome.checks
    assert len(outcome.faults) == 2
    assert outcome.plain < outcome.plain_acknowledged, "the unguarded counter must lose something"
    shown = screen.getvalue()
    for words in ("SIGKILL to", "SIGSTOP to", "takes over", "REFUSED", "hand-overs", "takeover in"):
        assert words in shown


def test_ctrl_c_ends_the_demo_and_leaves_nothing(tmp_path: Path) -> None:
    process = start("lock", "demo", env={**os.environ, "TMPDIR": str(tmp_path)})
    eventually(lambda: len(list(tmp_path.glob("*/journals/*.jsonl"))) == 5)
    children = _children(process.pid)
    assert len(children) == 5
    process.send_signal(signal.SIGINT)
    assert end(process).code == 130
    assert list(tmp_path.iterdir()) == []
    eventually(lambda: not any(is_running(pid) for pid in children))


def test_writers_end_when_the_demo_is_killed(tmp_path: Path) -> None:
    process = start("lock", "demo", env={**os.environ, "TMPDIR": str(tmp_path)})
    eventually(lambda: len(list(tmp_path.glob("*/journals/*.jsonl"))) == 5)
    children = _children(process.pid)
    process.kill()
    end(process)
    eventually(lambda: not any(is_running(pid) for pid in children))


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(child) for child in listed.split()]


def test_the_next_commands_work_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Path(sys.executable).with_name("tidelock")
    monkeypatch.setattr(sys, "argv", [str(program)])
    commands = next_commands(tmp_path)
    assert len(commands) == 3
    for command in commands:
        ended = subprocess.run(shlex.split(command), capture_output=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr


def test_the_demo_explains_itself(tidelock: Program) -> None:
    ended = tidelock("lock", "demo", "--help")
    assert ended.code == 0
    assert "--seconds" in ended.out
