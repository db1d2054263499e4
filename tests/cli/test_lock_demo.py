"""The lock demo: its checks find planted violations; it passes and cleans up."""

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
from tidelock.cli.demo import lock_demo_next_commands
from tidelock.core.system import SystemClock
from tidelock.lock.lease import Lease
from tidelock.storage.memory import MemoryStore
from tidelock.workload.journal import JournalReader, ProgramEvent, ProgramJournal
from tidelock.workload.lock_demo import LockDemo, LockDemoPlan
from tidelock.workload.lock_program import (
    FencedCounter,
    LockEvent,
    LockFleetSpec,
    PlainCounter,
    StaleToken,
    lock_pool,
)
from tidelock.workload.oracle import check_lock
from tidelock.workload.screen import Screen

SHORT = LockDemoPlan(
    names=("ada", "ben", "cleo"),
    lease=Lease(validity_ms=3_000, renew_ms=300),
    seconds=8,
    warm_up_s=0.5,
    phase_s=0.5,
)


def _event(name: str, kind: LockEvent, at_ms: int, token: int = 0, says: str = "") -> ProgramEvent:
    return ProgramEvent(name, kind, at_ms, {"token": token, "says": says})


def _holding(name: str, token: int, began_ms: int, *, until_ms: int) -> list[ProgramEvent]:
    return [
        _event(name, LockEvent.GRANTED, began_ms, token),
        _event(name, LockEvent.BELIEVES, until_ms, token),
        _event(name, LockEvent.WRITING, until_ms + 1, token),
        _event(name, LockEvent.WROTE, until_ms + 2, token),
        _event(name, LockEvent.RELEASED, until_ms + 3, token),
    ]


GOOD = [*_holding("ada", 1, 0, until_ms=90), *_holding("ben", 2, 100, until_ms=190)]


def _problems(events: list[ProgramEvent], *, fenced: int) -> list[str]:
    return [check.message for check in check_lock(events, fenced=fenced) if not check.passed]


def test_clean_run_passes() -> None:
    assert _problems(GOOD, fenced=2) == []


def test_lost_increment_is_detected() -> None:
    assert _problems(GOOD, fenced=1)


def test_unexplained_increment_is_detected() -> None:
    assert _problems(GOOD, fenced=3)


def test_killed_writer_may_have_one_unrecorded_write() -> None:
    events = [
        *GOOD,
        _event("eve", LockEvent.GRANTED, 200, 3),
        _event("eve", LockEvent.WRITING, 250, 3),
    ]
    assert _problems(events, fenced=2) == []
    assert _problems(events, fenced=3) == []
    assert _problems(events, fenced=4)


def test_non_increasing_token_is_detected() -> None:
    assert _problems([*GOOD, *_holding("eve", 2, 200, until_ms=290)], fenced=3)


def test_two_concurrent_holders_are_detected() -> None:
    events = [*_holding("ada", 1, 0, until_ms=150), *_holding("ben", 2, 100, until_ms=190)]
    (message,) = _problems(events, fenced=2)
    assert "both held the lock for 50 ms" in message


def test_writer_error_is_detected() -> None:
    assert _problems([*GOOD, _event("ada", LockEvent.FAILED, 300, says="boom")], fenced=2)


def test_fenced_counter_refuses_a_write_the_unfenced_counter_accepts() -> None:
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


def test_new_holder_fences_out_the_old_one_before_its_first_write() -> None:
    fenced = FencedCounter(MemoryStore())
    old = fenced.read(1)
    fenced.read(2)
    with pytest.raises(StaleToken):
        fenced.write(1, old + 1)


def test_journal_reader_ignores_a_partial_line(tmp_path: Path) -> None:
    journal, reader = (
        ProgramJournal(tmp_path, "ada", SystemClock()),
        JournalReader(tmp_path, "ada"),
    )
    assert reader.read_new() == []
    journal.append(LockEvent.GRANTED, token=7)
    with (tmp_path / "ada.jsonl").open("ab") as file:
        file.write(b'{"did":"bel')
    assert [(event.kind, event.facts["token"]) for event in reader.read_new()] == [
        (LockEvent.GRANTED, 7)
    ]
    with (tmp_path / "ada.jsonl").open("ab") as file:
        file.write(b'ieves","at":1,"token":7,"says":""}\n')
    assert [event.kind for event in reader.read_new()] == [LockEvent.BELIEVES]
    journal.close()


@pytest.mark.timeout(900)
def test_demo_passes_with_a_short_lease(tmp_path: Path) -> None:
    shown = StringIO()
    screen = Screen(Console(file=shown, force_terminal=True, width=100, height=30))
    with screen, lock_pool(tmp_path, LockFleetSpec(SHORT.lease)) as pool:
        report = LockDemo(SHORT, pool, screen, SystemClock()).run()
    assert report.passed, report.checks
    assert len(report.faults) == 2
    plain, acknowledged = report.figures["unfenced"], report.figures["unfenced_acknowledged"]
    assert plain < acknowledged, "the counter without fencing must lose an increment"
    phrases = ("SIGKILL to", "SIGSTOP to", "takes over", "REFUSED", "handovers", "takeover in")
    for each in phrases:
        assert each in shown.getvalue()


def test_ctrl_c_stops_the_demo_and_cleans_up(tmp_path: Path) -> None:
    process = start("lock", "demo", env={**os.environ, "TMPDIR": str(tmp_path)})
    eventually(lambda: len(list(tmp_path.glob("*/journals/*.jsonl"))) == 5)
    children = _children(process.pid)
    assert len(children) == 5
    process.send_signal(signal.SIGINT)
    assert end(process).code == 130
    assert list(tmp_path.iterdir()) == []
    eventually(lambda: not any(is_running(pid) for pid in children))


def test_writers_exit_when_the_demo_is_killed(tmp_path: Path) -> None:
    process = start("lock", "demo", env={**os.environ, "TMPDIR": str(tmp_path)})
    eventually(lambda: len(list(tmp_path.glob("*/journals/*.jsonl"))) == 5)
    children = _children(process.pid)
    assert len(children) == 5
    process.kill()
    end(process)
    eventually(lambda: not any(is_running(pid) for pid in children))


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(child) for child in listed.split()]


def test_printed_next_commands_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Path(sys.executable).with_name("tidelock")
    monkeypatch.setattr(sys, "argv", [str(program)])
    commands = lock_demo_next_commands(tmp_path)
    assert len(commands) == 3
    for command in commands:
        ended = subprocess.run(shlex.split(command), capture_output=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr


def test_demo_explains_its_steps(tidelock: Program) -> None:
    ended = tidelock("lock", "demo", "--help")
    assert ended.code == 0
    assert "--seconds" in ended.out
