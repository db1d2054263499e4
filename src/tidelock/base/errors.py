"""The whole public error tree.

    TidelockError              .kind  .hint  .retry
      InvalidInput (ValueError)  the call is wrong; change it
        ConfigInvalid              a setting is missing or breaks a rule
        ResourceInvalid            a resource name or URI cannot be used
      Unavailable                nothing happened; later may work
        Throttled                  the store asks for fewer requests
          Overloaded                 a bound of the lock service is reached
        StoreUnreachable           no answer, or none that helps
      Conflict                   it did not happen, because of somebody else
        LockHeld                   another owner holds the lock
          ResourceLocked             the lock service answers so to one who does not wait
        AcquireTimeout             the wait for a lock ran out
        WriteConflict              another write came between, and no safe merge exists
        Deposed                    another lock service has taken over this one's journal
        RequestSpent               an idempotency key was used for a grant that is over
      OutcomeUnknown             it may have happened; read back before anything else
      HoldingLost                stop now: the lock is not yours any more
        Fenced                     a later holder has committed under a larger token
      DataCorrupt                bytes contradict their format
        RecordFromFuture           a newer version wrote them
      NotFound                   the object is not there
        LockNotFound               locked with a different id, or not at all
      PermissionDenied           the store refused these credentials
        Unauthenticated            the lock service does not know this token
      Unsupported                this store, scheme or provider cannot do that
        StoreUnsafe                the store ignores conditions; locks on it would lie
        MissingExtra               an optional dependency is not installed

Each kind maps once, here, to an exit code and an HTTP status.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class Kind(Enum):
    """What the caller should conclude. Values are the exit codes of the command line."""

    INVALID_INPUT = 2
    UNAVAILABLE = 3
    CONFLICT = 4
    OUTCOME_UNKNOWN = 5
    HOLDING_LOST = 6
    DATA_CORRUPT = 7
    NOT_FOUND = 8
    PERMISSION_DENIED = 9
    UNSUPPORTED = 10

    @property
    def exit_code(self) -> int:
        """Return the exit code of a command that ends with this kind."""
        return self.value

    @property
    def http_status(self) -> int:
        """Return the HTTP status that says the same."""
        return _HTTP_STATUS[self]


_HTTP_STATUS = {
    Kind.INVALID_INPUT: 400,
    Kind.UNAVAILABLE: 503,
    Kind.CONFLICT: 409,
    Kind.OUTCOME_UNKNOWN: 500,
    Kind.HOLDING_LOST: 410,
    Kind.DATA_CORRUPT: 500,
    Kind.NOT_FOUND: 404,
    Kind.PERMISSION_DENIED: 403,
    Kind.UNSUPPORTED: 501,
}


class Retry(Enum):
    """Whether the same call may succeed."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


class TidelockError(Exception):
    """The root of every error this package raises on purpose.

    `hint` is one sentence that says what to do next.
    """

    kind: ClassVar[Kind] = Kind.UNAVAILABLE
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Say what happened to which object, and what to do about it."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return the message, with the hint behind it."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidInput(TidelockError, ValueError):
    """The call is wrong; nothing was tried."""

    kind = Kind.INVALID_INPUT


class ConfigInvalid(InvalidInput):
    """A setting is missing or breaks a rule."""


class ResourceInvalid(InvalidInput):
    """A resource name or URI cannot be used."""


class Unavailable(TidelockError):
    """Nothing happened; later may work."""

    kind = Kind.UNAVAILABLE
    retry = Retry.LATER


class Throttled(Unavailable):
    """The store asks for fewer requests."""

    def __init__(self, message: str, *, hint: str = "", retry_after_ms: int | None = None) -> None:
        """Carry the pause the store asked for, if it named one."""
        super().__init__(message, hint=hint)
        self.retry_after_ms = retry_after_ms


class StoreUnreachable(Unavailable):
    """No answer came, or none that helps."""


class Conflict(TidelockError):
    """It did not happen, because of somebody else."""

    kind = Kind.CONFLICT
    retry = Retry.LATER


class LockHeld(Conflict):
    """Another owner holds the lock."""


class AcquireTimeout(Conflict):
    """The wait for a lock ran out."""


class WriteConflict(Conflict):
    """Another write came between, and no safe merge exists; `report` says who met whom, where."""

    def __init__(self, message: str, *, hint: str = "", report: object = None) -> None:
        """Carry the report beside the message that it makes."""
        super().__init__(message, hint=hint)
        self.report = report


class OutcomeUnknown(TidelockError):
    """It may have happened: read back before anything else, never clean up on it."""

    kind = Kind.OUTCOME_UNKNOWN


class HoldingLost(TidelockError):
    """Stop now: the lock is not yours any more."""

    kind = Kind.HOLDING_LOST


class Fenced(HoldingLost):
    """A later holder of the lock has committed under a larger token."""


class DataCorrupt(TidelockError):
    """Bytes contradict their format."""

    kind = Kind.DATA_CORRUPT


class RecordFromFuture(DataCorrupt):
    """A newer version wrote this; reading it with this one would lose something."""


class NotFound(TidelockError):
    """The object is not there."""

    kind = Kind.NOT_FOUND


class PermissionDenied(TidelockError):
    """The store refused these credentials."""

    kind = Kind.PERMISSION_DENIED


class Unsupported(TidelockError):
    """This store, scheme or provider cannot do that."""

    kind = Kind.UNSUPPORTED


class StoreUnsafe(Unsupported):
    """The store ignores conditions; a lock on it would lie to its holder."""


class MissingExtra(Unsupported):
    """An optional dependency is not installed."""


class InvariantBroken(AssertionError):
    """The program contradicts itself. Never retried, never swallowed: the process must stop."""
