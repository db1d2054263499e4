"""The processes of a fleet: started, killed, put to sleep, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, Protocol, Self, TypeVar

from tidelock.ops.fleet.journal import JournalReader, Noted

_MEMBER: Final = "tidelock.ops.fleet.member"


class Agreed(Protocol):
    """What the programs of a fleet agreed on."""

    def save(self, folder: Path) -> None:
        """Write it down for the programs."""
        ...

    def create(self) -> None:
        """Make the table, unless it is there."""
        ...


A = TypeVar("A", bound=Agreed)
R = TypeVar("R", bound=Enum)


@dataclass(slots=True)
class Program(Generic[R]):
    """One program, through all its lives."""

    name: str
    role: R
    process: subprocess.Popen[bytes]
    lives: int = 1
    killed: bool = False
    asleep: bool = False

    @property
    def is_running(self) -> bool:
        """Tell whether its process is there."""
        return self.process.poll() is None


@dataclass(slots=True)
class Crew(Generic[A, R]):
    """The programs of one fleet in one folder; a context, because it holds processes.

    `member` is the module that each of them runs, with its role, its name and the folder.
    """

    folder: Path
    articles: A
    member: str = _MEMBER
    programs: dict[str, Program[R]] = field(default_factory=dict)
    _readers: dict[str, JournalReader] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Make the table and write down what the programs must know; start nobody."""
        (self.folder / "journals").mkdir(parents=True, exist_ok=True)
        self.articles.save(self.folder)
        self.articles.create()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every program that is left, sleepers too."""
        del kind, error, trace
        for program in self.programs.values():
            if program.is_running:
                _signal(program, signal.SIGKILL)
            program.process.wait()
            _hang_up(program)

    def start(self, name: str, role: R) -> Program[R]:
        """Start a program, or one that was killed again."""
        run = [sys.executable, "-W", "ignore", "-m", self.member]
        argv = [*run, role.value, name, str(self.folder)]
        with (self.folder / f"{name}.log").open("ab") as log:
            # In a group of its own, with the JVM it may start: Ctrl-C is for who started it alone.
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0
            )
        if (before := self.programs.get(name)) is not None:
            _hang_up(before)
        program = Program(name, role, process, lives=1 if before is None else before.lives + 1)
        self.programs[name] = program
        self._readers.setdefault(name, JournalReader(self.folder / "journals", name))
        return program

    def kill(self, name: str) -> None:
        """Kill a program and whatever it started, at once."""
        program = self.programs[name]
        _signal(program, signal.SIGKILL)
        program.process.wait()
        program.killed = True

    def put_to_sleep(self, name: str) -> None:
        """Stop a program where it is."""
        self.programs[name].asleep = True
        _signal(self.programs[name], signal.SIGSTOP)

    def wake(self, name: str) -> None:
        """Let a sleeper go on."""
        self.programs[name].asleep = False
        _signal(self.programs[name], signal.SIGCONT)

    def dismiss(self, names: Sequence[str] | None = None) -> None:
        """Tell programs to end after what they are at."""
        for name in self.programs if names is None else names:
            _hang_up(self.programs[name])

    def fresh(self) -> list[Noted]:
        """Return what the programs have noted since the last call, in order of time."""
        noted = [event for reader in self._readers.values() for event in reader.fresh()]
        return sorted(noted, key=lambda event: event.at_ms)

    def last_words(self, name: str) -> str:
        """Return the end of what a program printed."""
        try:
            text = (self.folder / f"{name}.log").read_text(errors="replace")
        except FileNotFoundError:
            return ""
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else ""


def _hang_up(program: Program[R]) -> None:
    if program.process.stdin is not None:
        # A dead program cannot be told anything.
        with suppress(BrokenPipeError):
            program.process.stdin.close()


def _signal(program: Program[R], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(program.process.pid, number)
