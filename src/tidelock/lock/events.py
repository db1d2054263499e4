"""Events, requests and results of the lock machine. Pure values.

Each event carries the time of both clocks, read just before the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelock.core.clock import Now
from tidelock.lock.record import LockRecord, TokenCounter
from tidelock.storage.contract import PutMode, PutReply

# --- replies to reads -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """The lock object was read."""

    version: str
    record: LockRecord


@dataclass(frozen=True, slots=True)
class FoundCounter:
    """The token counter was read."""

    version: str
    counter: TokenCounter


@dataclass(frozen=True, slots=True)
class Absent:
    """The object does not exist."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The object exists but cannot be decoded (P19)."""

    problem: str


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The store did not answer."""

    cause: str
    retry_after_ms: int | None = None


ReadReply = Found | FoundCounter | Absent | Unreadable | ReadFailed


# --- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimedEvent:
    """An event at `now`."""

    now: Now


@dataclass(frozen=True, slots=True)
class Acquire(TimedEvent):
    """The owner tries once to acquire the lock."""


@dataclass(frozen=True, slots=True)
class Renew(TimedEvent):
    """A renewal is due."""


@dataclass(frozen=True, slots=True)
class Release(TimedEvent):
    """The owner releases the lock."""


@dataclass(frozen=True, slots=True)
class Close(TimedEvent):
    """The client will not be used again."""


@dataclass(frozen=True, slots=True)
class Tick(TimedEvent):
    """Time passed. Allowed while a request is in flight."""


@dataclass(frozen=True, slots=True)
class OwnerGone(TimedEvent):
    """The thread that acquired the lock has ended, or the process was forked."""

    cause: str


@dataclass(frozen=True, slots=True)
class Abandon(TimedEvent):
    """The operation was abandoned: its request may land, its reply will not be received."""


@dataclass(frozen=True, slots=True)
class ReadDone(TimedEvent):
    """The requested read ended."""

    reply: ReadReply


@dataclass(frozen=True, slots=True)
class WriteDone(TimedEvent):
    """The requested write ended."""

    reply: PutReply


Event = Acquire | Renew | Release | Close | Tick | OwnerGone | Abandon | ReadDone | WriteDone


# --- requests: at most one per step --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Read the lock object, after a pause."""

    after_ms: int = 0


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write the lock object."""

    mode: PutMode
    record: LockRecord


@dataclass(frozen=True, slots=True)
class ReadCounter:
    """Read the token counter."""


@dataclass(frozen=True, slots=True)
class WriteCounter:
    """Write the token counter."""

    mode: PutMode
    counter: TokenCounter


Request = ReadRecord | WriteRecord | ReadCounter | WriteCounter


# --- results of the operations of the owner and the heartbeat -------------------------------------


class NotAcquiredReason(Enum):
    """Why an attempt did not acquire the lock."""

    HELD = "held by another owner"
    RACED = "another owner was faster"
    GHOST = "the grant of an earlier attempt was found and released"
    LATE = "the reply came after the end of the lease"
    THROTTLED = "the store throttled the request"
    UNAVAILABLE = "the store could not be read"
    UNKNOWN = "the outcome of the write is unknown"
    UNREADABLE = "the lock record cannot be read"


@dataclass(frozen=True, slots=True)
class Granted:
    """The lock is held under this token."""

    token: int


@dataclass(frozen=True, slots=True)
class NotAcquired:
    """The attempt ended without the lock."""

    reason: NotAcquiredReason
    holder: LockRecord | None = None
    cause: str = ""
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease was extended."""


@dataclass(frozen=True, slots=True)
class RenewalUnknown:
    """The outcome of the renewal is unknown; the deadline stays."""

    cause: str


@dataclass(frozen=True, slots=True)
class LockLost:
    """The lock is no longer held."""

    cause: str


@dataclass(frozen=True, slots=True)
class Released:
    """The release landed. `taken_since`: another owner has the lock already (P25 b)."""

    taken_since: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseUnknown:
    """It is unknown whether the release landed; if not, the record expires (P25 e)."""

    cause: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The client is closed."""


Result = (
    Granted | NotAcquired | Renewed | RenewalUnknown | LockLost | Released | ReleaseUnknown | Closed
)


# --- notifications: never waited for --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Count:
    """Increment a metric."""

    metric: str


class AuditState(Enum):
    """The states in Hudi's audit files."""

    START = "START"
    RENEW = "RENEW"
    END = "END"


@dataclass(frozen=True, slots=True)
class Audit:
    """Record a change of the holding in the audit log, if it is enabled."""

    state: AuditState
    at_epoch_ms: int


@dataclass(frozen=True, slots=True)
class NotifyLost:
    """Notify the owner, once, that the lock is lost (P29)."""

    cause: str


@dataclass(frozen=True, slots=True)
class OperationDone:
    """The operation ended with `result`."""

    result: Result


Effect = Request | Count | Audit | NotifyLost | OperationDone
