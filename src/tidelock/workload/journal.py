"""Journals of the programs of a fleet: each program writes one, the parent process reads them all.

A journal has one JSON line per event, written immediately, so a killed program leaves every event
up to its end. Times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tidelock.core.clock import Clock
from tidelock.workload.steps import State, Step, replay


@dataclass(frozen=True, slots=True)
class ProgramEvent:
    """One line of a journal."""

    name: str
    kind: str
    at_ms: int
    facts: Mapping[str, Any] = field(default_factory=dict)


class ProgramJournal:
    """Writes the journal of one program."""

    def __init__(self, folder: Path, name: str, clock: Clock) -> None:
        self._clock = clock
        path = folder / f"{name}.jsonl"
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        if (size := os.fstat(self._file).st_size) and os.pread(self._file, 1, size - 1) != b"\n":
            # The previous process was killed in the middle of a line.
            os.write(self._file, b"\n")

    def append(self, kind: str, *, at_ms: int | None = None, **facts: object) -> None:
        """Append one event; `at_ms` defaults to the current time."""
        event_ms = self._clock.now().monotonic_ms if at_ms is None else at_ms
        line = {"did": kind, "at": event_ms, **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class JournalReader:
    """Follows the journal of one program."""

    def __init__(self, folder: Path, name: str) -> None:
        """Start at the beginning, whether or not the journal exists yet."""
        self._path = folder / f"{name}.jsonl"
        self._name = name
        self._read_bytes = 0

    def read_new(self) -> list[ProgramEvent]:
        """Return the events since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                body = file.read()
        except FileNotFoundError:
            return []
        complete, newline, _ = body.rpartition(b"\n")
        self._read_bytes += len(complete) + len(newline)
        events = map(self._parse, complete.splitlines())
        return [event for event in events if event is not None]

    def _parse(self, line: bytes) -> ProgramEvent | None:
        try:
            facts = json.loads(line)
        except json.JSONDecodeError:
            # An incomplete line: its program was killed while it wrote.
            return None
        return ProgramEvent(self._name, facts.pop("did"), facts.pop("at"), facts)


_READ_VIOLATIONS: Final = ("twice", "back", "lost", "missed")


@dataclass(slots=True)
class FleetRecord:
    """Summary of all journal events read so far."""

    committed: dict[tuple[str, int], str] = field(default_factory=dict)
    """Completion time of each step of each program."""
    begun: dict[str, int] = field(default_factory=dict)
    """The last step that each program began."""
    resumed: dict[str, list[int]] = field(default_factory=dict)
    """The steps after which each program resumed when it was restarted."""
    failures: list[ProgramEvent] = field(default_factory=list)
    write_times: list[tuple[int, int]] = field(default_factory=list)
    """When each step was acknowledged, and how long it took, in ms."""
    rebases: int = 0
    served: Counter[str] = field(default_factory=Counter)
    preempted: Counter[str] = field(default_factory=Counter)
    reads: int = 0
    compared_reads: int = 0
    """Reads that were compared with the changes since the previous read."""
    expired_reads: int = 0
    """Reads whose files a clean had already removed, which is allowed."""
    inconsistent_reads: list[ProgramEvent] = field(default_factory=list)

    def add(self, event: ProgramEvent) -> None:
        """Add one event."""
        facts = event.facts
        match event.kind:
            case "begins":
                self.begun[event.name] = facts["step"]
            case "wrote":
                self.committed[event.name, facts["step"]] = facts["completion"]
                self.write_times.append((event.at_ms, facts["took_ms"]))
                self.rebases += facts["rebases"]
            case "resumes":
                self.committed[event.name, facts["step"]] = facts["completion"]
                self.resumed.setdefault(event.name, []).append(facts["step"])
            case "failed":
                self.failures.append(event)
            case "served":
                self.served[facts["service"]] += facts["done"]
                self.preempted[facts["service"]] += facts["gave_way"]
            case "read":
                self.reads += 1
                self.compared_reads += facts["summed"]
                if any(facts[violation] for violation in _READ_VIOLATIONS):
                    self.inconsistent_reads.append(event)
            case "late":
                self.expired_reads += 1

    def steps_of(self, name: str) -> list[int]:
        """Return the committed steps of a program in ascending order."""
        return sorted(step for writer, step in self.committed if writer == name)

    def expected(self, step_of: Callable[[str, int], Step]) -> State:
        """Return the rows that result if the steps ran one after the other in ledger order."""
        order = sorted(self.committed, key=self.committed.__getitem__)
        return replay(step_of(name, step) for name, step in order)

    def gaps(self) -> list[str]:
        """Describe missing steps, and steps with the same completion time."""
        problems = []
        for name in sorted({writer for writer, _ in self.committed}):
            steps = self.steps_of(name)
            # Streamers count from 0, as the versions of their application transactions do.
            first = min(steps[0], 1)
            if steps != list(range(first, first + len(steps))):
                problems.append(f"{name} skipped a step: {steps[-1]} is its last of {len(steps)}")
        times = Counter(self.committed.values())
        problems.extend(f"{n} steps completed at {time}" for time, n in times.items() if n > 1)
        return problems
