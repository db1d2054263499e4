"""What a program notes down as it goes, and how others read it.

One JSON line an event, written at once, so that a killed program leaves everything up to its end.
Times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidelock.base.clock import Clock


@dataclass(frozen=True, slots=True)
class Noted:
    """One line of a journal."""

    name: str
    did: str
    at_ms: int
    facts: Mapping[str, Any] = field(default_factory=dict)


class Journal:
    """The journal of one program, to write."""

    def __init__(self, folder: Path, name: str, clock: Clock) -> None:
        """Append to the journal of `name`."""
        self._clock = clock
        path = folder / f"{name}.jsonl"
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        if (size := os.fstat(self._file).st_size) and os.pread(self._file, 1, size - 1) != b"\n":
            # Whoever wrote this before was killed within a line.
            os.write(self._file, b"\n")

    def note(self, did: str, *, at_ms: int | None = None, **facts: object) -> None:
        """Append one event; `at_ms` is now unless given."""
        moment_ms = self._clock.now().monotonic_ms if at_ms is None else at_ms
        line = {"did": did, "at": moment_ms, **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)


class JournalReader:
    """The journal of one program, to follow."""

    def __init__(self, folder: Path, name: str) -> None:
        """Start at its beginning, whether or not it exists yet."""
        self._path = folder / f"{name}.jsonl"
        self._name = name
        self._read_bytes = 0

    def fresh(self) -> list[Noted]:
        """Return the events since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                body = file.read()
        except FileNotFoundError:
            return []
        whole, newline, _ = body.rpartition(b"\n")
        self._read_bytes += len(whole) + len(newline)
        return [event for line in whole.splitlines() if (event := self._event(line)) is not None]

    def _event(self, line: bytes) -> Noted | None:
        try:
            facts = json.loads(line)
        except json.JSONDecodeError:
            # Half a line: its writer was killed, and what it would have said is not known.
            return None
        return Noted(self._name, facts.pop("did"), facts.pop("at"), facts)
