"""`tidelock lock run`: run a command while the lock is held."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Annotated

import typer
from rich.text import Text

from tidelock.cli import options
from tidelock.cli.lock_client import AnyLock
from tidelock.cli.options import argument, option
from tidelock.cli.output import Output
from tidelock.cli.signals import Stopping
from tidelock.core.clock import Clock
from tidelock.core.errors import ErrorKind, HoldingLost, OutcomeUnknown
from tidelock.core.formatting import error_facts


class Terminal:
    """The controlling terminal on standard input, if this process is in its foreground."""

    def __init__(self) -> None:
        try:
            self._ours = os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
        except OSError:
            self._ours = False

    def give_to(self, group: int) -> None:
        """Put a process group into the foreground."""
        if self._ours and _set_foreground(group):
            # It may have been stopped for using the terminal before it was in the foreground.
            os.killpg(group, signal.SIGCONT)

    def take_back(self) -> None:
        """Put the group of this process into the foreground again."""
        if self._ours:
            _set_foreground(os.getpgrp())

    def suspend_with(self, status: int) -> bool:
        """Suspend this process too, if the command was stopped from the terminal.

        Returns, once this process continues, whether the command must be continued as well.
        """
        if not self._ours or os.WSTOPSIG(status) not in (signal.SIGTSTP, signal.SIGTTIN):
            return False
        self.take_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        return True


def _set_foreground(group: int) -> bool:
    # A background process that sets the foreground group receives SIGTTOU, which would stop it.
    previous = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(0, group)
    except (OSError, ProcessLookupError):
        return False
    finally:
        signal.signal(signal.SIGTTOU, previous)
    return True


_POLL_MS = 50


class CannotStart(Exception):
    """The command could not be started; carries the exit status that a shell would return."""

    def __init__(self, message: str, exit_code: int, hint: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.hint = hint


class Child:
    """A running command."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: Terminal, clock: Clock) -> None:
        """Wrap a process that leads its own process group."""
        self._process = process
        self._terminal = terminal
        self._clock = clock
        self._ending = threading.Lock()

    @staticmethod
    def start(argv: Sequence[str], env: Mapping[str, str], clock: Clock) -> Child:
        """Start `argv`, in the foreground if this command is. Raises: `CannotStart`."""
        terminal = Terminal()
        try:
            process = subprocess.Popen(argv, env=env, process_group=0)
        except FileNotFoundError as error:
            hint = "check its name and PATH"
            raise CannotStart(f"{argv[0]}: command not found", 127, hint) from error
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            hint = "check that it is a program that this user may execute"
            raise CannotStart(f"{argv[0]}: cannot be run: {reason}", 126, hint) from error
        terminal.give_to(process.pid)
        return Child(process, terminal, clock)

    def wait(self) -> int:
        """Wait for the command to end; return its exit status, 128 + n for a signal n.

        When the command is suspended from the terminal, this process suspends itself too.
        """
        try:
            while True:
                _, status = os.waitpid(self._process.pid, os.WUNTRACED)
                if not os.WIFSTOPPED(status):
                    break
                if self._terminal.suspend_with(status):
                    self._terminal.give_to(self._process.pid)
                    self.send(signal.SIGCONT)
        finally:
            self._terminal.take_back()
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code
        return code if code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Send a signal to the process group, if it still exists."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def end(self, kill_after_s: float) -> None:
        """End the process group: SIGTERM, then SIGKILL after `kill_after_s`.

        May be called from two threads; both return when the group has ended.
        """
        with self._ending:
            self.send(signal.SIGTERM)
            # A stopped process handles SIGTERM only after it continues.
            self.send(signal.SIGCONT)
            until_ms = self._clock.now().monotonic_ms + kill_after_s * 1000
            while self._exists():
                if self._clock.now().monotonic_ms >= until_ms:
                    self.send(signal.SIGKILL)
                    return
                self._clock.sleep_ms(_POLL_MS)

    def _exists(self) -> bool:
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def run(
    resource: options.Resource,
    command: Annotated[list[str], argument("-- COMMAND [ARG]...", "The command to run.")],
    *,
    kill_after: Annotated[
        float,
        option(
            "--kill-after SECONDS",
            "When the lock is lost: the time between SIGTERM and SIGKILL.",
            show_default=True,
        ),
    ] = 5.0,
    given: options.AcquireOptions,
) -> None:
    """Run a command under a lock.

    Acquires the lock, runs the command and releases the lock.

    The environment of the command has TIDELOCK_TOKEN, TIDELOCK_LOCK and TIDELOCK_OWNER. If the lock
    is lost, the command and its child processes are terminated. Standard output belongs to the
    command: --json writes to standard error.

    Exit status: that of the command; 4 if the lock was not acquired and the command did not run, 6
    if the lock was lost, 127 if the command was not found, 128 + n if signal n ended it.

        tidelock lock run s3://lake/orders --wait 300 -- spark-submit compact.py
    """
    target = given.target(resource, any_provider=True)
    output = Output(as_json=given.as_json, to_stderr=True)
    options.check_seconds("--kill-after", kill_after)
    with Stopping() as stopping, closing(target.lock()) as lock:
        lock.acquire(given.wait_s(target))
        stopping.record_only()
        code = run_under(lock, command, stopping, output, target.clock, kill_after_s=kill_after)
    raise typer.Exit(code)


def run_under(
    lock: AnyLock,
    command: list[str],
    stopping: Stopping,
    output: Output,
    clock: Clock,
    *,
    kill_after_s: float,
) -> int:
    """Run `command` under an acquired lock, and release it; return the exit status."""
    token = lock.token
    env = {
        **os.environ,
        "TIDELOCK_TOKEN": str(token),
        "TIDELOCK_LOCK": lock.uri,
        "TIDELOCK_OWNER": lock.owner,
    }
    try:
        child = Child.start(command, env, clock)
    except CannotStart as error:
        lock.release()
        output.result(
            error_facts("command", str(error), error.hint),
            Text(f"tidelock: {error}", style="red"),
            f"  {error.hint}",
        )
        return error.exit_code
    losses: list[str] = []

    def end_command(cause: str) -> None:
        losses.append(cause)
        output.remark(
            Text(f"tidelock: the lock was lost ({cause}); terminating the command", style="red")
        )
        child.end(kill_after_s)

    lock.on_lost(end_command)  # called in a separate thread
    stopping.forward_to(child.send)
    code = child.wait()
    lost = _release(lock, output)
    if lost or losses:
        # Child processes of the command must not continue without the lock.
        child.end(kill_after_s)
        lost = True
    if output.as_json:
        facts = {"lock": lock.uri, "token": token, "owner": lock.owner}
        ended = "lost" if lost else "released"
        output.result({"event": ended, **facts, "command_exit_code": code})
    return ErrorKind.HOLDING_LOST.exit_code if lost else code


def _release(lock: AnyLock, output: Output) -> bool:
    """Release the lock; return whether it had been lost."""
    try:
        lock.release()
    except HoldingLost as error:
        output.remark(Text(f"tidelock: {error}", style="red"))
        return True
    except OutcomeUnknown as error:
        # The command ran under the lock until it ended; only the next holder may have to wait.
        output.remark(Text(f"tidelock: {error}", style="yellow"))
    return False
