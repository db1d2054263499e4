"""A child process that answers each command on standard input with one line of JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

# The processes are short-lived: a fast start matters more than peak speed.
JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_STOP_DEADLINE_S = 30
_LOG_TAIL_CHARS = 4_000


class CommandProcess:
    """A running process. A command that fails there raises `AssertionError` here."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        """Use a process that was just started, and the folder with its log and its files."""
        self._process = process
        self.folder = folder

    @classmethod
    @contextmanager
    def run(
        cls,
        command: Sequence[str | Path],
        folder: Path,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Iterator[Self]:
        """Run the process for the duration of the block; wait until it is ready."""
        with (folder / "process.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        running = cls(process, folder)
        try:
            running.receive()
            yield running
        finally:
            running.close()

    def call(self, command: str) -> object:
        """Send a command and return its result."""
        self.send(command)
        return self.receive()

    def send(self, command: str) -> None:
        """Send a command; `receive` returns its result."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def receive(self) -> object:
        """Wait for the result of the last command."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            log = (self.folder / "process.log").read_text(errors="replace")
            raise AssertionError(f"the process exited:\n{log[-_LOG_TAIL_CHARS:]}")
        answer = json.loads(line)
        if "error" in answer:
            error, trace = answer["error"], answer.get("trace", "")
            raise AssertionError(f"the command failed: {error}\n{trace[:_LOG_TAIL_CHARS]}")
        return answer.get("value")

    def kill(self) -> None:
        """Kill the process; it runs no shutdown hook and releases nothing."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close standard input and wait for the process to exit; kill it after a timeout."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(_STOP_DEADLINE_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.kill()
        self._process.stdout.close()
