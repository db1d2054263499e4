"""`lock run`: the command runs only while the lock is held, and its exit status is passed on."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.program import (
    CODE,
    LOCK_FILE,
    Program,
    end,
    eventually,
    is_running,
    java_record,
    now_ms,
    plant,
    start,
)
from tidelock.cli.lock_run import run_under
from tidelock.cli.output import Output
from tidelock.cli.signals import Stopping
from tidelock.core.errors import Conflict
from tidelock.core.system import SystemClock, SystemIds
from tidelock.lock.admin import Operator, inspect_lock
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.local import LocalStore

# Renewals notice soon that the lock is lost. It stays valid while the machine is busy.
SHORT = Lease(validity_ms=60_000, renew_ms=100)


def _is_released(table: Path) -> bool:
    return json.loads((table / LOCK_FILE).read_bytes())["expired"] is True


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["no-such-command-anywhere"], 127),
        (["/"], 126),
    ],
)
def test_exit_status_is_the_commands_and_the_lock_is_released(
    tidelock: Program, table: Path, command: list[str], code: int
) -> None:
    ended = tidelock("lock", "run", str(table), "--", *command)
    assert ended.code == code
    assert _is_released(table)


def test_command_receives_token_lock_and_owner(table: Path) -> None:
    script = 'echo "$TIDELOCK_TOKEN $TIDELOCK_OWNER $TIDELOCK_LOCK"'
    ended = end(start("lock", "run", str(table), "--json", "--", "sh", "-c", script))
    facts = json.loads(ended.err)
    assert ended.out.split() == [str(facts["token"]), facts["owner"], facts["lock"]]
    assert facts["event"] == "released"
    assert facts["command_exit_code"] == 0


def test_options_after_the_double_dash_belong_to_the_command(table: Path) -> None:
    ended = end(start("lock", "run", str(table), "--wait", "5", "--", "echo", "--wait", "-n"))
    assert ended.out == "--wait -n\n"


def test_command_does_not_run_while_the_lock_is_held(tidelock: Program, table: Path) -> None:
    plant(table, java_record(expired=False, valid_until_epoch_ms=now_ms() + 60_000))
    trace = table / "ran"
    ended = tidelock("lock", "run", str(table), "--wait", "0.1", "--", "touch", str(trace))
    assert ended.code == 4
    assert not trace.exists()


def test_command_does_not_run_with_an_unreadable_record(tidelock: Program, table: Path) -> None:
    path = plant(table, b"[]")
    trace = table / "ran"
    ended = tidelock("lock", "run", str(table), "--", "touch", str(trace))
    assert ended.code == 7
    assert not trace.exists()
    assert path.read_bytes() == b"[]"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_forwarded_to_the_command(table: Path, number: int) -> None:
    name = signal.Signals(number).name.removeprefix("SIG")
    script = f'trap "echo got; exit 9" {name}; echo ready; while :; do sleep 0.05; done'
    process = start("lock", "run", str(table), "--", "sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    ended = end(process)
    assert (ended.code, ended.out) == (9, "got\n")
    assert _is_released(table)


def test_forced_release_ends_the_command_with_6(tidelock: Program, table: Path) -> None:
    args = ["lock", "run", str(table), "--validity", "10", "--renew", "1"]
    process = start(*args, "--", "sh", "-c", "echo $$; exec sleep 60")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    # It is refused with 4 if the holder renews between its two requests.
    eventually(lambda: tidelock("lock", "force-release", str(table), "--yes").code == 0)
    ended = end(process)
    assert ended.code == 6
    assert "the lock was lost" in ended.err
    assert not is_running(pid)


def _steal_soon(table: Path, ready: Path) -> threading.Thread:
    """Force-release the lock from another client, once `ready` exists."""

    clock, store = SystemClock(), LocalStore(table)

    def released() -> bool:
        seen = inspect_lock(store, SHORT, clock)
        try:
            Operator(store, ReadbackPolicy(clock=clock, ids=SystemIds())).force_release(seen)
        except Conflict:
            return False  # the holder renewed it in between
        return True

    def steal() -> None:
        eventually(ready.exists)
        eventually(released)

    thread = threading.Thread(target=steal)
    thread.start()
    return thread


def _run(table: Path, script: str, *, kill_after_s: float) -> int:
    lock = Lock(LocalStore(table), SHORT)
    new_holder = _steal_soon(table, table / "ready")
    with Stopping() as stopping:
        lock.acquire()
        stopping.record_only()
        command = ["sh", "-c", script, "sh", str(table)]
        output = Output(as_json=False, to_stderr=True)
        code = run_under(lock, command, stopping, output, SystemClock(), kill_after_s=kill_after_s)
    new_holder.join()
    lock.close()
    return code


def test_command_that_ignores_sigterm_is_killed(table: Path) -> None:
    script = 'trap "" TERM; echo $$ > $1/pid; touch $1/ready; while :; do sleep 0.05; done'
    # It ends only by SIGKILL.
    assert _run(table, script, kill_after_s=0.3) == 6
    assert not is_running(int((table / "pid").read_text(encoding="utf-8")))


def test_children_of_the_command_are_terminated(table: Path) -> None:
    script = "sleep 60 & echo $! > $1/pid; touch $1/ready; wait"
    assert _run(table, script, kill_after_s=5) == 6
    pid = int((table / "pid").read_text(encoding="utf-8"))
    eventually(lambda: not is_running(pid))


def test_command_that_finishes_after_the_lock_was_lost_exits_with_6(table: Path) -> None:
    # It handles SIGTERM and exits with 0; its work may have overlapped with another writer's.
    script = 'trap "exit 0" TERM; touch $1/ready; while :; do sleep 0.05; done'
    assert _run(table, script, kill_after_s=5) == 6


def test_loss_detected_at_release_exits_with_6(table: Path) -> None:
    lease = Lease(validity_ms=60_000, renew_ms=6_000)
    lock = Lock(LocalStore(table), lease)
    with Stopping() as stopping:
        lock.acquire()
        stopping.record_only()
        clock, store = SystemClock(), LocalStore(table)
        Operator(store, ReadbackPolicy(clock=clock, ids=SystemIds())).force_release(
            inspect_lock(store, lease, clock)
        )
        output = Output(as_json=False, to_stderr=True)
        assert run_under(lock, ["true"], stopping, output, clock, kill_after_s=1) == 6
    lock.close()


def test_stopped_command_is_terminated(table: Path) -> None:
    assert _run(table, "touch $1/ready; kill -STOP $$; sleep 60", kill_after_s=5) == 6


def test_command_can_read_the_terminal(table: Path) -> None:
    """Without the terminal, a process in its own group is stopped when it reads."""
    pid, terminal = pty.fork()
    if pid == 0:
        script = 'read line; echo "heard $line"'
        args = ["lock", "run", str(table), "--", "sh", "-c", script]
        os.execv(sys.executable, [sys.executable, "-c", CODE, *args])
    os.write(terminal, b"hello\n")
    terminal_output = b""
    try:
        while b"heard hello" not in terminal_output:
            terminal_output += os.read(terminal, 1024)
    finally:
        os.waitpid(pid, 0)
        os.close(terminal)
    assert b"heard hello" in terminal_output
