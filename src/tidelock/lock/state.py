"""What one client knows about one lock. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tidelock.base.clock import Now
from tidelock.lock.events import Effect, NotAcquired
from tidelock.lock.lease import Lease
from tidelock.lock.record import Record


class Phase(Enum):
    """Where a client stands with its lock."""

    IDLE = "idle"
    READING = "reading the record"
    COUNTING = "reading the token counter"
    RESERVING = "reserving a token range"
    TAKING = "writing the grant"
    CONFIRMING = "reading the token counter again"
    JUDGING = "reading back an unclear grant"
    RETURNING = "releasing a record that must not be used"
    HOLDING = "holding"
    RENEWING = "writing a renewal"
    RECHECKING = "reading back a refused renewal"
    RELEASING = "writing the release"
    AFTERMATH = "reading back an unclear release"
    LOST = "lost"
    LOST_WAITING = "lost, a request still under way"
    CLOSING = "looking for an unseen grant before closing"
    CLOSED = "closed"


class Standing(Enum):
    """What a user may conclude about the lock (P11)."""

    HELD = "held"
    UNSURE = "unsure"
    LOST = "lost"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Seen:
    """A record and the version it was seen under."""

    version: str
    record: Record


@dataclass(frozen=True, slots=True)
class Sent:
    """The write under way. `on_cached`: on the version of our own release, unread (P12)."""

    record: Record
    at: Now
    on_cached: bool = False
    new_range: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """The holding: the last write of ours known to have landed, and how long it lasts."""

    version: str
    record: Record
    deadline_monotonic_ms: int
    unsure: bool = False


class State(NamedTuple):
    """Everything one client knows about one lock.

    `known` is our own release, until we use or doubt it; `cautious` says that the last such use met
    somebody else's record, so the next attempt looks first; `target` is what the attempt under way
    will replace; `doubtful` says that a write of ours may have landed, or may still land, unseen.
    """

    owner: str
    lease: Lease
    phase: Phase = Phase.IDLE
    writes: int = 0
    known: Seen | None = None
    cautious: bool = False
    target: Seen | None = None
    sent: Sent | None = None
    grant: Grant | None = None
    ceiling: int = 0
    tries: int = 0
    unclear: str = ""
    verdict: NotAcquired | None = None
    doubtful: bool = False
    lost_cause: str = ""

    def next_nonce(self) -> str:
        """P3: unique, because the owner is and the count only grows."""
        return f"{self.owner}:{self.writes + 1}"


Step = tuple[State, tuple[Effect, ...]]


def standing(state: State, now: Now) -> Standing:
    """Return what the owner may conclude at `now`. L3: HELD and UNSURE end at the deadline."""
    match state.phase:
        case Phase.LOST | Phase.LOST_WAITING:
            return Standing.LOST
        case Phase.RETURNING if state.lost_cause:
            return Standing.LOST
        case Phase.HOLDING | Phase.RENEWING | Phase.RECHECKING if state.grant:
            if now.monotonic_ms >= state.grant.deadline_monotonic_ms:
                return Standing.LOST
            unsure = state.grant.unsure or state.phase is Phase.RECHECKING
            return Standing.UNSURE if unsure else Standing.HELD
        case _:
            return Standing.FREE
