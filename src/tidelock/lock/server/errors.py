"""Errors of the lock service, and their mapping to Dapr codes, HTTP and gRPC statuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelock.core.errors import (
    AcquireTimeout,
    Conflict,
    ErrorKind,
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
    """A limit of the lock service is reached; nothing was granted."""


class Unauthenticated(PermissionDenied):
    """The API token is missing or wrong."""


class InstanceFenced(Conflict):
    """Another instance of the lock service has taken over this journal."""


class RequestIdReused(Conflict):
    """A request id was used for a grant that has ended."""


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """An error as sent to clients: Dapr's code, the HTTP status, the name of the gRPC status."""

    code: str
    status: int
    grpc: str


_BY_TYPE: tuple[tuple[type[TidelockError], ErrorStatus], ...] = (
    (Overloaded, ErrorStatus("ERR_TOO_MANY_REQUESTS", 429, "RESOURCE_EXHAUSTED")),
    (ResourceLocked, ErrorStatus("ERR_RESOURCE_LOCKED", 409, "ABORTED")),
    (AcquireTimeout, ErrorStatus("ERR_RESOURCE_LOCKED", 409, "ABORTED")),
    (RequestIdReused, ErrorStatus("ERR_REQUEST_SPENT", 409, "FAILED_PRECONDITION")),
    (InstanceFenced, ErrorStatus("ERR_SERVICE_DEPOSED", 503, "UNAVAILABLE")),
    (LockNotFound, ErrorStatus("ERR_LOCK_NOT_FOUND", 404, "NOT_FOUND")),
    (Unauthenticated, ErrorStatus("ERR_UNAUTHENTICATED", 401, "UNAUTHENTICATED")),
)
_BY_KIND = {
    ErrorKind.INVALID_INPUT: ErrorStatus("ERR_MALFORMED_REQUEST", 400, "INVALID_ARGUMENT"),
    ErrorKind.UNAVAILABLE: ErrorStatus("ERR_UNAVAILABLE", 503, "UNAVAILABLE"),
    ErrorKind.CONFLICT: ErrorStatus("ERR_CONFLICT", 409, "ABORTED"),
    ErrorKind.OUTCOME_UNKNOWN: ErrorStatus("ERR_OUTCOME_UNKNOWN", 500, "UNKNOWN"),
    ErrorKind.HOLDING_LOST: ErrorStatus("ERR_LOCK_LOST", 410, "ABORTED"),
    ErrorKind.DATA_CORRUPT: ErrorStatus("ERR_INTERNAL", 500, "DATA_LOSS"),
    ErrorKind.NOT_FOUND: ErrorStatus("ERR_NOT_FOUND", 404, "NOT_FOUND"),
    ErrorKind.PERMISSION_DENIED: ErrorStatus("ERR_PERMISSION_DENIED", 403, "PERMISSION_DENIED"),
    ErrorKind.UNSUPPORTED: ErrorStatus("ERR_NOT_SUPPORTED", 501, "UNIMPLEMENTED"),
}
INTERNAL = ErrorStatus("ERR_INTERNAL", 500, "INTERNAL")


def error_status(error: BaseException) -> ErrorStatus:
    """Return the codes of an error. Unexpected exceptions are internal errors."""
    if isinstance(error, DaprError):
        return error.status
    for kind, status in _BY_TYPE:
        if isinstance(error, kind):
            return status
    return _BY_KIND[error.kind] if isinstance(error, TidelockError) else INTERNAL


class DaprError(Exception):
    """An error with a code and a message that Dapr defines."""

    def __init__(self, status: ErrorStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    def as_invalid_argument(self) -> DaprError:
        """Return the same error with the status of an invalid request."""
        return DaprError(ErrorStatus(self.status.code, 400, "INVALID_ARGUMENT"), self.message)


Failure = Callable[[object], DaprError]


def malformed(problem: str, store: str) -> DaprError:
    """Return the error of an invalid field of an alpha1 request."""
    status = ErrorStatus("ERR_MALFORMED_REQUEST", 400, "INVALID_ARGUMENT")
    return DaprError(status, f"{problem} in lock store {store}")


def not_configured() -> DaprError:
    status = ErrorStatus("ERR_LOCK_STORE_NOT_CONFIGURED", 500, "FAILED_PRECONDITION")
    return DaprError(status, "lock store is not configured")


def store_not_found(store: str) -> DaprError:
    status = ErrorStatus("ERR_LOCK_STORE_NOT_FOUND", 400, "INVALID_ARGUMENT")
    return DaprError(status, f"lock store {store} not found")


def try_lock_failed(cause: object) -> DaprError:
    """Return the error of a failed acquisition; an unreachable store is unavailable."""
    return _failed("ERR_TRY_LOCK", f"failed to try acquiring lock: {cause}", cause)


def unlock_failed(cause: object) -> DaprError:
    """Return the error of a failed release; an unreachable store is unavailable."""
    return _failed("ERR_UNLOCK", f"failed to release lock: {cause}", cause)


def _failed(code: str, message: str, cause: object) -> DaprError:
    status, grpc = (503, "UNAVAILABLE") if isinstance(cause, Unavailable) else (500, "INTERNAL")
    return DaprError(ErrorStatus(code, status, grpc), message)


def not_ready(causes: Mapping[str, str], *, outbound: bool) -> DaprError:
    """Return Dapr's error of a failed health check, with the cause for each lock store."""
    code = "ERR_OUTBOUND_HEALTH_NOT_READY" if outbound else "ERR_HEALTH_NOT_READY"
    details = "; ".join(f"{name}: {cause}" if name else cause for name, cause in causes.items())
    return DaprError(ErrorStatus(code, 500, "UNAVAILABLE"), f"not ready: {details}")
