"""The lock service's errors, and the one table that maps errors to Dapr's codes and statuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelock.base.errors import (
    AcquireTimeout,
    Conflict,
    HoldingLost,
    InvalidInput,
    Kind,
    LockHeld,
    NotFound,
    PermissionDenied,
    Throttled,
    TidelockError,
    Unavailable,
)


class ResourceLocked(LockHeld):
    """The resource is already locked."""


class LockNotFound(NotFound):
    """The resource is locked with a different lock ID or the lock does not exist."""


class Overloaded(Throttled):
    """A bound of the lock service is reached; nothing was granted."""


class Unauthenticated(PermissionDenied):
    """The lock service does not know this token."""


class Deposed(Conflict):
    """Another instance of the lock service has taken over this journal."""


class RequestSpent(Conflict):
    """An idempotency key was used for a grant that is over."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One error on the wire: Dapr's code, the HTTP status, the name of the gRPC status."""

    code: str
    status: int
    grpc: str


_BY_TYPE: tuple[tuple[type[TidelockError], Answer], ...] = (
    (Overloaded, Answer("ERR_TOO_MANY_REQUESTS", 429, "RESOURCE_EXHAUSTED")),
    (ResourceLocked, Answer("ERR_RESOURCE_LOCKED", 409, "ABORTED")),
    (AcquireTimeout, Answer("ERR_RESOURCE_LOCKED", 409, "ABORTED")),
    (RequestSpent, Answer("ERR_REQUEST_SPENT", 409, "FAILED_PRECONDITION")),
    (Deposed, Answer("ERR_SERVICE_DEPOSED", 503, "UNAVAILABLE")),
    (LockNotFound, Answer("ERR_LOCK_NOT_FOUND", 404, "NOT_FOUND")),
    (Unauthenticated, Answer("ERR_UNAUTHENTICATED", 401, "UNAUTHENTICATED")),
    (HoldingLost, Answer("ERR_LOCK_LOST", 410, "ABORTED")),
    (InvalidInput, Answer("ERR_MALFORMED_REQUEST", 400, "INVALID_ARGUMENT")),
)
_BY_KIND = {
    Kind.INVALID_INPUT: Answer("ERR_MALFORMED_REQUEST", 400, "INVALID_ARGUMENT"),
    Kind.UNAVAILABLE: Answer("ERR_UNAVAILABLE", 503, "UNAVAILABLE"),
    Kind.CONFLICT: Answer("ERR_CONFLICT", 409, "ABORTED"),
    Kind.OUTCOME_UNKNOWN: Answer("ERR_OUTCOME_UNKNOWN", 500, "UNKNOWN"),
    Kind.HOLDING_LOST: Answer("ERR_LOCK_LOST", 410, "ABORTED"),
    Kind.DATA_CORRUPT: Answer("ERR_INTERNAL", 500, "DATA_LOSS"),
    Kind.NOT_FOUND: Answer("ERR_NOT_FOUND", 404, "NOT_FOUND"),
    Kind.PERMISSION_DENIED: Answer("ERR_PERMISSION_DENIED", 403, "PERMISSION_DENIED"),
    Kind.UNSUPPORTED: Answer("ERR_NOT_SUPPORTED", 501, "UNIMPLEMENTED"),
}
INTERNAL = Answer("ERR_INTERNAL", 500, "INTERNAL")


def answer_of(error: BaseException) -> Answer:
    """Return how an error looks on the wire. What is not ours is an internal error."""
    if isinstance(error, DaprError):
        return error.answer
    for kind, answer in _BY_TYPE:
        if isinstance(error, kind):
            return answer
    return _BY_KIND[error.kind] if isinstance(error, TidelockError) else INTERNAL


class DaprError(Exception):
    """An error of the alpha1 API, in Dapr's own words."""

    def __init__(self, answer: Answer, message: str) -> None:
        """Carry the answer and Dapr's message."""
        super().__init__(message)
        self.answer = answer
        self.message = message

    def because_of_the_backend(self) -> DaprError:
        """Return the same error with the status of a store out of reach."""
        return DaprError(Answer(self.answer.code, 503, "UNAVAILABLE"), self.message)

    def because_of_the_caller(self) -> DaprError:
        """Return the same error with the status of a wrong request."""
        return DaprError(Answer(self.answer.code, 400, "INVALID_ARGUMENT"), self.message)


Failure = Callable[[object], DaprError]


def _malformed(message: str) -> DaprError:
    return DaprError(Answer("ERR_MALFORMED_REQUEST", 400, "INVALID_ARGUMENT"), message)


def expiry_not_positive(store: str) -> DaprError:
    """TryLock needs a positive expiry."""
    return _malformed(f"ExpiryInSeconds is not positive in lock store {store}")


def not_configured() -> DaprError:
    """There is no lock store at all."""
    answer = Answer("ERR_LOCK_STORE_NOT_CONFIGURED", 500, "FAILED_PRECONDITION")
    return DaprError(answer, "lock store is not configured")


def id_empty(store: str) -> DaprError:
    """The resource id is empty."""
    return _malformed(f"ResourceId is empty in lock store {store}")


def owner_empty(store: str) -> DaprError:
    """The owner is empty."""
    return _malformed(f"LockOwner is empty in lock store {store}")


def store_not_found(store: str) -> DaprError:
    """No component has this name."""
    answer = Answer("ERR_LOCK_STORE_NOT_FOUND", 400, "INVALID_ARGUMENT")
    return DaprError(answer, f"lock store {store} not found")


def try_lock_failed(cause: object) -> DaprError:
    """The store failed while a lock was tried; one out of reach is unavailable, not broken."""
    answer = Answer("ERR_TRY_LOCK", 500, "INTERNAL")
    error = DaprError(answer, f"failed to try acquiring lock: {cause}")
    return error.because_of_the_backend() if isinstance(cause, Unavailable) else error


def unlock_failed(cause: object) -> DaprError:
    """The store failed while a lock was released."""
    answer = Answer("ERR_UNLOCK", 500, "INTERNAL")
    error = DaprError(answer, f"failed to release lock: {cause}")
    return error.because_of_the_backend() if isinstance(cause, Unavailable) else error


def not_ready(causes: Mapping[str, str], *, outbound: bool) -> DaprError:
    """The service, or a lock store by name, cannot serve; the codes are Dapr's."""
    code = "ERR_OUTBOUND_HEALTH_NOT_READY" if outbound else "ERR_HEALTH_NOT_READY"
    says = "; ".join(f"{name}: {cause}" if name else cause for name, cause in causes.items())
    return DaprError(Answer(code, 500, "UNAVAILABLE"), f"not ready: {says}")
