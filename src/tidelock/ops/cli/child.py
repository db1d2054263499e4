"""A command in a process group of its own, so that it and all its children can be ended."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

from tidelock.base.clock import Clock
from tidelock.ops.cli.terminal import Terminal

_LOOK_MS = 50


class CannotStart(Exception):
    """The command could not be started; carries the exit code that a shell would give."""

    def __init__(self, message: str, exit_code: int) -> None:
        """Say why, and how a shell would end."""
        super().__init__(message)
        self.exit_code = exit_code


class Child:
    """A running command."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: Terminal, clock: Clock) -> None:
        """Wrap a process that leads its own group."""
        self._process = process
        self._terminal = terminal
        self._clock = clock
        self._ending = threading.Lock()

    @staticmethod
    def start(argv: Sequence[str], env: Mapping[str, str], clock: Clock) -> Child:
        """Start `argv` and give it the terminal, if this command has it.

        Raises: `CannotStart`.
        """
        terminal = Terminal()
        try:
            process = subprocess.Popen(argv, env=env, process_group=0)
        except FileNotFoundError as error:
            raise CannotStart(f"{argv[0]}: command not found", 127) from error
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            raise CannotStart(f"{argv[0]}: cannot be run: {said}", 126) from error
        terminal.give_to(process.pid)
        return Child(process, terminal, clock)

    def wait(self) -> int:
        """Wait for the command to end; return its exit code, 128 + n for a signal n.

        When the person at the terminal suspends it, this command suspends itself along with it.
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
        """Send a signal to the whole group; to nobody if it is gone."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def end(self, kill_after_s: float) -> None:
        """End the whole group: TERM, and KILL for whatever is left after `kill_after_s`.

        May be called from two threads; both return when it is done.
        """
        with self._ending:
            self.send(signal.SIGTERM)
            # A stopped process acts on TERM only once it continues.
            self.send(signal.SIGCONT)
            until_ms = self._clock.now().monotonic_ms + kill_after_s * 1000
            while self._is_there():
                if self._clock.now().monotonic_ms >= until_ms:
                    self.send(signal.SIGKILL)
                    return
                self._clock.sleep_ms(_LOOK_MS)

    def _is_there(self) -> bool:
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True
