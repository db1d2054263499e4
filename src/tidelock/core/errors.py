"""The public error tree.

    TidelockError              .kind  .hint  .retry
      InvalidInput (ValueError)  the call is wrong; change it
        ConfigInvalid              a setting is missing or breaks a rule
        ResourceInvalid            a resource name or URI cannot be used
      Unavailable                nothing was done; a later attempt may succeed
        Throttled                  the store is throttling requests
          Overloaded                 a limit of the lock service is reached
        StoreUnreachable           no usable answer
      Conflict                   not done because of another client
        LockHeld                   another owner holds the lock
          ResourceLocked             as reported by the lock service to a client that does not wait
        AcquireTimeout             the wait for a lock timed out
        WriteConflict              a concurrent write conflicts and cannot be merged safely
        InstanceFenced             another lock service instance has taken over the journal
        RequestIdReused            an idempotency key was used for a grant that has ended
      OutcomeUnknown             it may have taken effect; read back before anything else
      HoldingLost                stop now: the lock is lost
        Fenced                     a later holder has committed under a larger token
      DataCorrupt                data does not match its format
        RecordFromFuture           written by a newer version
      NotFound                   the object does not exist
        LockNotFound               locked with a different id, or not at all
      PermissionDenied           the store rejected these credentials
        Unauthenticated            the lock service does not know this token
      Unsupported                this store, scheme or provider cannot do that
        StoreUnsafe                the store ignores conditions; locks on it are not safe
        MissingExtra               an optional dependency is not installed

Each kind has an exit code of the command line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import ClassVar


class ErrorKind(Enum):
    """The kind of an error. Values are the exit codes of the command line."""

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
        """The exit code of a command that fails with this kind."""
        return self.value


class Retry(Enum):
    """Whether the same call may succeed later."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


class TidelockError(Exception):
    """The base class of every error that this package raises.

    `hint` is the next step for the user, in one sentence.
    """

    kind: ClassVar[ErrorKind] = ErrorKind.UNAVAILABLE
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidInput(TidelockError, ValueError):
    """The call is wrong; nothing was tried."""

    kind = ErrorKind.INVALID_INPUT


class ConfigInvalid(InvalidInput):
    """A setting is missing or breaks a rule."""


class ResourceInvalid(InvalidInput):
    """A resource name or URI cannot be used."""


class Unavailable(TidelockError):
    """Nothing was done; a later attempt may succeed."""

    kind = ErrorKind.UNAVAILABLE
    retry = Retry.LATER


class Throttled(Unavailable):
    """The store is throttling requests."""

    def __init__(self, message: str, *, hint: str = "", retry_after_ms: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_ms = retry_after_ms


class StoreUnreachable(Unavailable):
    """The store gave no usable answer."""


class Conflict(TidelockError):
    """Not done because of another client."""

    kind = ErrorKind.CONFLICT
    retry = Retry.LATER


class LockHeld(Conflict):
    """Another owner holds the lock."""


class AcquireTimeout(Conflict):
    """The wait for a lock timed out."""


class WriteConflict(Conflict):
    """A concurrent write conflicts and cannot be merged safely; `report` has the details."""

    def __init__(self, message: str, *, hint: str = "", report: object = None) -> None:
        super().__init__(message, hint=hint)
        self.report = report


class OutcomeUnknown(TidelockError):
    """The operation may have taken effect: read back first, and do not clean up."""

    kind = ErrorKind.OUTCOME_UNKNOWN


class HoldingLost(TidelockError):
    """The lock is lost: stop now."""

    kind = ErrorKind.HOLDING_LOST


class Fenced(HoldingLost):
    """A later holder of the lock has committed under a larger token."""


class DataCorrupt(TidelockError):
    """Data does not match its format."""

    kind = ErrorKind.DATA_CORRUPT


class RecordFromFuture(DataCorrupt):
    """Written by a newer version; reading it with this version would lose information."""


class NotFound(TidelockError):
    """The object does not exist."""

    kind = ErrorKind.NOT_FOUND


class PermissionDenied(TidelockError):
    """The store rejected these credentials."""

    kind = ErrorKind.PERMISSION_DENIED


class Unsupported(TidelockError):
    """This store, scheme or provider cannot do that."""

    kind = ErrorKind.UNSUPPORTED


class StoreUnsafe(Unsupported):
    """The store ignores conditions, so locks on it are not safe."""


class MissingExtra(Unsupported):
    """An optional dependency is not installed."""


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Turn the failure of an import in the block into `MissingExtra`."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(what, hint=f"pip install 'tidelock[{extra}]'") from error


class InvariantBroken(AssertionError):
    """An invariant is broken. Never retried, never swallowed: the process must stop."""
