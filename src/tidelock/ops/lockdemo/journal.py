"""What each writer notes down as it goes, and how the others read it.

One JSON line an event, written at once, so that a killed writer leaves everything up to its end.
Times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tidelock.base.clock import Clock


class Did(Enum):
    """What a writer may note."""

    WAITING = "waiting"
    GRANTED = "granted"
    BELIEVES = "believes"
    LOST = "lost"
    WRITING = "writing"
    WROTE = "wrote"
    REFUSED = "refused"
    WROTE_PLAIN = "wrote plain"
    RELEASING = "releasing"
    RELEASED = "released"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a journal."""

    name: str
    did: Did
    at_ms: int
    token: int = 0
    says: str = ""


class Journal:
    """The journal of one writer, to write."""

    def __init__(self, folder: Path, name: str, clock: Clock) -> None:
        """Append to the journal of `name`."""
        self._name = name
        self._clock = clock
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(folder / f"{name}.jsonl", flags, 0o644)

    def note(self, did: Did, *, token: int = 0, says: str = "", at_ms: int | None = None) -> None:
        """Append one event; `at_ms` is now unless given."""
        moment_ms = self._clock.now().monotonic_ms if at_ms is None else at_ms
        line = {"did": did.value, "at": moment_ms, "token": token, "says": says}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)


class JournalReader:
    """The journal of one writer, to follow."""

    def __init__(self, folder: Path, name: str) -> None:
        """Start at its beginning, whether or not it exists yet."""
        self._path = folder / f"{name}.jsonl"
        self._name = name
        self._read_bytes = 0

    def fresh(self) -> list[Event]:
        """Return the events since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                body = file.read()
        except FileNotFoundError:
            return []
        whole, newline, _ = body.rpartition(b"\n")
        self._read_bytes += len(whole) + len(newline)
        return [self._event(line) for line in whole.splitlines()]

    def _event(self, line: bytes) -> Event:
        fields = json.loads(line)
        return Event(self._name, Did(fields["did"]), fields["at"], fields["token"], fields["says"])
