"""What the lock machine is told, what it asks for, and what it answers.

Pure values. Each event carries one reading of the clocks, taken just before the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelock.base.clock import Now
from tidelock.lock.record import Counter, Record
from tidelock.store.contract import PutMode, PutReply

# --- readings -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """The lock object was read."""

    version: str
    record: Record


@dataclass(frozen=True, slots=True)
class FoundCounter:
    """The token counter was read."""

    version: str
    counter: Counter


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such object."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """There is an object, but it is not what it should be (P19)."""

    problem: str


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The store gave no answer."""

    cause: str
    retry_after_ms: int | None = None


Reading = Found | FoundCounter | Absent | Unreadable | ReadFailed


# --- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Acquire:
    """The owner wants the lock: one attempt."""

    now: Now


@dataclass(frozen=True, slots=True)
class Renew:
    """The heartbeat is due."""

    now: Now


@dataclass(frozen=True, slots=True)
class Release:
    """The owner gives the lock back."""

    now: Now


@dataclass(frozen=True, slots=True)
class Close:
    """The client will not be used again."""

    now: Now


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; nothing else happened. Allowed while a request is under way."""

    now: Now


@dataclass(frozen=True, slots=True)
class OwnerGone:
    """The thread that acquired the lock has ended, or the process was forked."""

    now: Now
    cause: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """The operation under way was cut short: its request may land, and its answer will not come."""

    now: Now


@dataclass(frozen=True, slots=True)
class ReadDone:
    """The read asked for was answered."""

    now: Now
    reading: Reading


@dataclass(frozen=True, slots=True)
class WriteDone:
    """The write asked for was answered."""

    now: Now
    reply: PutReply


Event = Acquire | Renew | Release | Close | Tick | OwnerGone | Abandon | ReadDone | WriteDone


# --- requests: at most one in each step ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Read the lock object, after a pause."""

    after_ms: int = 0


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write the lock object."""

    mode: PutMode
    record: Record


@dataclass(frozen=True, slots=True)
class ReadCounter:
    """Read the token counter."""


@dataclass(frozen=True, slots=True)
class WriteCounter:
    """Write the token counter."""

    mode: PutMode
    counter: Counter


Request = ReadRecord | WriteRecord | ReadCounter | WriteCounter


# --- results: the end of what the owner or the heartbeat asked for -------------------------------


class Why(Enum):
    """Why an attempt did not acquire."""

    HELD = "held by another owner"
    RACED = "another owner was faster"
    GHOST = "an earlier attempt had landed unseen; it was released"
    LATE = "the answer came after the lease it granted"
    THROTTLED = "the store asked to wait"
    UNAVAILABLE = "the store could not be read"
    UNKNOWN = "the outcome of the write is not known"
    UNREADABLE = "the lock record cannot be read"


@dataclass(frozen=True, slots=True)
class Granted:
    """The lock is held under this token."""

    token: int


@dataclass(frozen=True, slots=True)
class NotAcquired:
    """The attempt ended without the lock."""

    why: Why
    holder: Record | None = None
    cause: str = ""
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease was extended."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """The renewal is not known to have landed; the deadline stands."""

    cause: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The lock is not held any more."""

    cause: str


@dataclass(frozen=True, slots=True)
class Released:
    """The release landed; `taken_since` if another owner already holds the lock (P25 b)."""

    taken_since: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseUnknown:
    """Nobody can tell whether the release landed; at worst the record expires (P25 e)."""

    cause: str


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing of this client is left to do."""


Result = Granted | NotAcquired | Renewed | Doubtful | Lost | Released | ReleaseUnknown | Closed


# --- notes: told to others, never waited for ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Count:
    """Add one to a metric, by Hudi's name where it has one."""

    metric: str


class AuditState(Enum):
    """The states Hudi's audit files know."""

    START = "START"
    RENEW = "RENEW"
    END = "END"


@dataclass(frozen=True, slots=True)
class Audit:
    """Record a change of the holding in the audit log, if it is switched on."""

    state: AuditState
    at_epoch_ms: int


@dataclass(frozen=True, slots=True)
class TellLost:
    """Tell the owner, once, that the lock is lost (P29)."""

    cause: str


@dataclass(frozen=True, slots=True)
class Done:
    """What was asked for has ended with `result`."""

    result: Result


Effect = Request | Count | Audit | TellLost | Done
