"""What each writer of the lock's demo notes down, and how the others read it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tidelock.base.clock import Clock
from tidelock.ops.fleet import journal as lines


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
        self._lines = lines.Journal(folder, name, clock)

    def note(self, did: Did, *, token: int = 0, says: str = "", at_ms: int | None = None) -> None:
        """Append one event; `at_ms` is now unless given."""
        self._lines.note(did.value, at_ms=at_ms, token=token, says=says)

    def close(self) -> None:
        """Write no more."""
        self._lines.close()


class JournalReader:
    """The journal of one writer, to follow."""

    def __init__(self, folder: Path, name: str) -> None:
        """Start at its beginning, whether or not it exists yet."""
        self._lines = lines.JournalReader(folder, name)

    def fresh(self) -> list[Event]:
        """Return the events since the last call."""
        return [
            Event(noted.name, Did(noted.did), noted.at_ms, **noted.facts)
            for noted in self._lines.fresh()
        ]
