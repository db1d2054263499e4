"""Events and outputs of the lock state machine (`LockState`). Pure values."""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.lock.server.entries import JournalEntry, KeepAliveMode, LockGranted


@dataclass(frozen=True, slots=True)
class CallerRequest:
    """A request for a resource. `handle` identifies the caller until it is answered or leaves."""

    handle: int
    key: str
    principal: str


@dataclass(frozen=True, slots=True)
class AcquireRequest(CallerRequest):
    """A request for a lock."""

    ttl_ms: int
    mode: KeepAliveMode
    owner: str = ""
    immediate: bool = True
    linger_ms: int = 0
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class AttachStream(CallerRequest):
    """A client reattaches to the lock of a stream that broke."""

    lock_id: str


@dataclass(frozen=True, slots=True)
class RenewRequest(CallerRequest):
    """A client extends its lock by one TTL; `ttl_ms` 0 keeps the current TTL."""

    lock_id: str
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class UnlockRequest(CallerRequest):
    """A client releases a lock by its id, by its owner (alpha1) or by its request id.

    With `request_id`, a request that has not arrived yet is cancelled as well.
    """

    lock_id: str = ""
    owner: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class ForceUnlock(CallerRequest):
    """An operator ends the current grant of a resource."""


@dataclass(frozen=True, slots=True)
class CallerLeft:
    """The caller behind `handle` disconnected or stopped waiting."""

    handle: int


@dataclass(frozen=True, slots=True)
class BackendLockAcquired:
    """The backend granted its lock of `key`; `token` is 0 if it has no tokens."""

    key: str
    token: int


@dataclass(frozen=True, slots=True)
class BackendLockRefused:
    """The backend did not grant its lock; `cause` is empty if another owner holds it."""

    key: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class LoseLock:
    """The lock of `key` may be lost; an empty `lock_id` means the current grant."""

    key: str
    lock_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class GrantUndelivered:
    """The caller left before its grant could be delivered."""

    key: str
    lock_id: str


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """A caller asks for the holder and the waiters of a resource."""

    handle: int
    key: str


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """The health of the application changed; while unhealthy, auto-renewed locks expire."""

    healthy: bool


@dataclass(frozen=True, slots=True)
class ClockTick:
    """Time has passed."""


Event = (
    AcquireRequest
    | AttachStream
    | RenewRequest
    | UnlockRequest
    | ForceUnlock
    | CallerLeft
    | BackendLockAcquired
    | BackendLockRefused
    | LoseLock
    | GrantUndelivered
    | InspectRequest
    | HealthChanged
    | ClockTick
)


@dataclass(frozen=True, slots=True)
class GrantReply:
    """The caller holds the lock since `since_epoch_ms`."""

    granted: LockGranted
    since_epoch_ms: int


@dataclass(frozen=True, slots=True)
class AlreadyLocked:
    """Another caller holds the lock; `holder` is None if only the backend knows it."""

    holder: LockGranted | None


@dataclass(frozen=True, slots=True)
class RequestDone:
    """The request succeeded; `ended` is the grant that it ended, if any."""

    ended: LockGranted | None = None


@dataclass(frozen=True, slots=True)
class NotLocked:
    """The resource is not locked."""


@dataclass(frozen=True, slots=True)
class LockedByOther:
    """The resource is locked by another id, owner or principal."""


@dataclass(frozen=True, slots=True)
class RequestReused:
    """The request id was used for a grant that has ended."""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A limit is reached; `what` describes it."""

    what: str


@dataclass(frozen=True, slots=True)
class BackendFailed:
    """The backend failed to answer."""

    cause: str


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """A resource as of entry `number`; `expires_in_ms` is None while the grant is kept alive."""

    granted: LockGranted | None
    since_epoch_ms: int
    expires_in_ms: int | None
    waiters: int
    number: int


Reply = (
    GrantReply
    | AlreadyLocked
    | RequestDone
    | NotLocked
    | LockedByOther
    | RequestReused
    | LimitReached
    | BackendFailed
    | ResourceStatus
)


@dataclass(frozen=True, slots=True)
class SendReply:
    """Reply to the caller behind `handle` once all entries so far are durable."""

    handle: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class AppendEntry:
    """Append an entry to the journal."""

    entry: JournalEntry


@dataclass(frozen=True, slots=True)
class EndStream:
    """Tell the stream behind `handle` that its lock has ended, and why."""

    handle: int
    cause: str


@dataclass(frozen=True, slots=True)
class AcquireBackendLock:
    """Acquire the backend's lock of `key`, valid for at least `ttl_ms` without renewal."""

    key: str
    ttl_ms: int
    immediate: bool


@dataclass(frozen=True, slots=True)
class ReleaseBackendLock:
    """Release the backend's lock of `key`; `by_force` also if another process holds it."""

    key: str
    by_force: bool = False


Output = SendReply | AppendEntry | EndStream | AcquireBackendLock | ReleaseBackendLock
