"""A fleet: the processes of one run, started, killed, suspended and always ended with it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from tidelock.core.clock import Clock
from tidelock.workload.journal import JournalReader, ProgramEvent
from tidelock.workload.report import Check

SPEC_FILE = "fleet.json"
"""The file in the folder of a fleet from which its programs read their spec."""


class FleetSpec(Protocol):
    """Settings that all programs of a fleet share."""

    def save(self, folder: Path) -> None:
        """Write the spec to the folder, for the programs to load."""
        ...

    def create(self) -> None:
        """Create the table unless it exists."""
        ...


S = TypeVar("S", bound=FleetSpec)
R = TypeVar("R", bound=Enum)


@dataclass(slots=True)
class Program(Generic[R]):
    """One program and its current process."""

    name: str
    role: R
    process: subprocess.Popen[bytes]
    starts: int = 1
    killed: bool = False
    suspended: bool = False

    @property
    def is_running(self) -> bool:
        """Return whether its process exists."""
        return self.process.poll() is None


@dataclass(slots=True)
class ProcessPool(Generic[S, R]):
    """The processes of one fleet in one folder; a context manager that kills what is left.

    `module` is run by each program, with its role, its name and the folder as arguments.
    """

    folder: Path
    spec: S
    module: str
    programs: dict[str, Program[R]] = field(default_factory=dict)
    _readers: dict[str, JournalReader] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Create the table and save the spec; start no program."""
        (self.folder / "journals").mkdir(parents=True, exist_ok=True)
        self.spec.save(self.folder)
        self.spec.create()
        return self

    def __exit__(self, *error: object) -> None:
        """Kill every program that is left, including suspended ones."""
        for program in self.programs.values():
            if program.is_running:
                _signal(program, signal.SIGKILL)
            program.process.wait()
            _close_input(program)

    def start(self, name: str, role: R) -> Program[R]:
        """Start a program, or restart one that was killed."""
        run = [sys.executable, "-W", "ignore", "-m", self.module]
        argv = [*run, role.value, name, str(self.folder)]
        with (self.folder / f"{name}.log").open("ab") as log:
            # A process group of its own, which includes its JVM: only the parent gets Ctrl-C.
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0
            )
        if (previous := self.programs.get(name)) is not None:
            _close_input(previous)
        starts = 1 if previous is None else previous.starts + 1
        program = Program(name, role, process, starts)
        self.programs[name] = program
        self._readers.setdefault(name, JournalReader(self.folder / "journals", name))
        return program

    def kill(self, name: str) -> None:
        """Send SIGKILL to a program and its child processes."""
        program = self.programs[name]
        _signal(program, signal.SIGKILL)
        program.process.wait()
        program.killed = True

    def suspend(self, name: str) -> None:
        """Send SIGSTOP to a program, and wait until it has stopped or ended."""
        program = self.programs[name]
        program.suspended = True
        _signal(program, signal.SIGSTOP)
        if program.process.returncode is None:
            pid = program.process.pid
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self, name: str) -> None:
        """Send SIGCONT to a suspended program."""
        self.programs[name].suspended = False
        _signal(self.programs[name], signal.SIGCONT)

    def stop(self) -> None:
        """Ask all programs to end after their current step."""
        for program in self.programs.values():
            _close_input(program)

    def read_journals(self) -> list[ProgramEvent]:
        """Return the events since the last call, ordered by time."""
        events = [event for reader in self._readers.values() for event in reader.read_new()]
        return sorted(events, key=lambda event: event.at_ms)

    def last_output(self, name: str) -> str:
        """Return the last line that a program printed."""
        log = self.folder / f"{name}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "")


def parent_is_running() -> bool:
    """Return whether the parent still holds our standard input open; it never writes to it."""
    readable, _, _ = select.select([0], [], [], 0)
    return not readable or os.read(0, 1) != b""


def _close_input(program: Program[R]) -> None:
    if program.process.stdin is not None:
        with suppress(BrokenPipeError):  # the program has ended
            program.process.stdin.close()


def _signal(program: Program[R], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(program.process.pid, number)


@dataclass(frozen=True, slots=True)
class Poller:
    """Calls `poll` every `interval_ms` while something is waited for."""

    clock: Clock
    poll: Callable[[], None]
    interval_ms: float

    def until(self, condition: Callable[[], bool], timeout_ms: float) -> bool:
        """Wait until `condition` holds; return whether it did within `timeout_ms`."""
        until_ms = self.clock.now().monotonic_ms + timeout_ms
        while True:
            self.poll()
            if condition():
                return True
            if self.clock.now().monotonic_ms >= until_ms:
                return False
            self.clock.sleep_ms(self.interval_ms)

    def for_seconds(self, duration_s: float) -> None:
        """Wait for `duration_s`."""
        self.until(lambda: False, duration_s * 1000)


class FleetRun(ABC, Generic[S, R]):
    """One run of a fleet: every wait is bounded, and every expectation becomes a check."""

    def __init__(self, pool: ProcessPool[S, R], clock: Clock, *, interval_ms: float) -> None:
        self.pool = pool
        self.clock = clock
        self.checks: list[Check] = []
        self._poller = Poller(clock, self._poll, interval_ms)

    @abstractmethod
    def _poll(self) -> None:
        """Read the journals, and observe whatever the run observes."""

    def _check(self, passed: bool, message: str) -> None:  # noqa: FBT001 - `passed, message`
        self.checks.append(Check(passed, message))

    def _stop_programs(self, names: Sequence[str], timeout_ms: float) -> list[str]:
        """Ask all programs to end; return those of `names` that still run after the timeout."""
        self.pool.stop()

        def running() -> list[str]:
            return [name for name in names if self.pool.programs[name].is_running]

        self._poller.until(lambda: not running(), timeout_ms)
        return running()

    def _now_ms(self) -> int:
        return self.clock.now().monotonic_ms
