"""The state of one client of one lock. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tidelock.core.clock import Now
from tidelock.lock.events import Effect, NotAcquired
from tidelock.lock.lease import Lease
from tidelock.lock.record import LockRecord


class Phase(Enum):
    """The phase of a client. The value completes the sentence "the client is …"."""

    IDLE = "idle"
    READING = "reading the record"
    READING_COUNTER = "reading the token counter"
    RESERVING = "reserving a token range"
    TAKING = "writing the grant"
    CONFIRMING = "reading the token counter again"
    VERIFYING_GRANT = "reading back an unclear grant"
    DISCARDING = "releasing a grant that must not be used"
    HOLDING = "holding"
    RENEWING = "writing a renewal"
    RECHECKING = "reading back a refused renewal"
    RELEASING = "writing the release"
    VERIFYING_RELEASE = "reading back an unclear release"
    LOST = "lost"
    LOST_WAITING = "lost, with a request in flight"
    CLOSING = "looking for a ghost before closing"
    CLOSED = "closed"


class Standing(Enum):
    """What a user may conclude about the lock (P11)."""

    HELD = "held"
    UNSURE = "unsure"
    LOST = "lost"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record and the object version it was read at."""

    version: str
    record: LockRecord


@dataclass(frozen=True, slots=True)
class SentWrite:
    """The write in flight. `on_cached`: based on our own last release, without a read (P12)."""

    record: LockRecord
    at: Now
    on_cached: bool = False
    new_range: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """The holding: our last write known to have landed, and its deadline."""

    version: str
    record: LockRecord
    deadline_monotonic_ms: int
    unsure: bool = False


class LockClientState(NamedTuple):
    """The state of one client of one lock.

    `last_release` is our own release, as long as the next attempt may build on it. `read_first`:
    the last such attempt found another owner's record, so the next attempt reads first. `target` is
    the record that the current attempt replaces. `refusal` is the result of an attempt whose grant
    is being discarded. `ghost_possible`: a write of ours may have landed, or may still land,
    unseen.
    """

    owner: str
    lease: Lease
    phase: Phase = Phase.IDLE
    writes: int = 0
    last_release: SeenRecord | None = None
    read_first: bool = False
    target: SeenRecord | None = None
    sent: SentWrite | None = None
    grant: Grant | None = None
    ceiling: int = 0
    tries: int = 0
    unclear: str = ""
    refusal: NotAcquired | None = None
    ghost_possible: bool = False
    lost_cause: str = ""

    def next_nonce(self) -> str:
        """P3: return a unique nonce: the owner id is unique, and the counter only grows."""
        return f"{self.owner}:{self.writes + 1}"


Step = tuple[LockClientState, tuple[Effect, ...]]


def standing(state: LockClientState, now: Now) -> Standing:
    """Return what the owner may conclude at `now`. L3: HELD and UNSURE end at the deadline."""
    match state.phase:
        case Phase.LOST | Phase.LOST_WAITING:
            return Standing.LOST
        case Phase.DISCARDING if state.lost_cause:
            return Standing.LOST
        case Phase.HOLDING | Phase.RENEWING | Phase.RECHECKING if state.grant:
            if now.monotonic_ms >= state.grant.deadline_monotonic_ms:
                return Standing.LOST
            unsure = state.grant.unsure or state.phase is Phase.RECHECKING
            return Standing.UNSURE if unsure else Standing.HELD
        case _:
            return Standing.FREE
