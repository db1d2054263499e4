"""What can be asked of the lock service's desk, and what it answers. Pure values."""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.lockservice.entries import Entry, Granted, Mode


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for a lock. `handle` names the caller until it is answered, or leaves."""

    handle: int
    key: str
    principal: str
    ttl_ms: int
    mode: Mode
    owner: str = ""
    immediate: bool = True
    linger_ms: int = 0
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Attach:
    """A stream that broke comes back for the lock it took."""

    handle: int
    key: str
    principal: str
    lock_id: str


@dataclass(frozen=True, slots=True)
class Renew:
    """A client wants one more TTL, or another one (`ttl_ms` 0: the same)."""

    handle: int
    key: str
    principal: str
    lock_id: str
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class Unlock:
    """A client gives a lock back: by its id, by the owner it named (alpha1), or by its request.

    With `request_id` a request that is still on its way is called off as well.
    """

    handle: int
    key: str
    principal: str
    lock_id: str = ""
    owner: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Force:
    """An operator ends whatever grant the resource has."""

    handle: int
    key: str
    principal: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The caller behind `handle` is gone, or waits no longer."""

    handle: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The gate's answer: the backend's lock of `key` is ours; `token` 0 if it has none."""

    key: str
    token: int


@dataclass(frozen=True, slots=True)
class NotTaken:
    """The gate's answer: not now. `cause` is empty when another owner has it."""

    key: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Lose:
    """The lock of `key` cannot be vouched for any more; `lock_id` "" means whichever it is."""

    key: str
    lock_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class Unheard:
    """The caller that a grant was made for left before it could be told."""

    key: str
    lock_id: str


@dataclass(frozen=True, slots=True)
class Look:
    """A caller wants to know who holds the resource and who waits."""

    handle: int
    key: str


@dataclass(frozen=True, slots=True)
class Health:
    """The application is healthy, or is not: then what the service keeps is left to expire."""

    healthy: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    Ask
    | Attach
    | Renew
    | Unlock
    | Force
    | Leave
    | Taken
    | NotTaken
    | Lose
    | Unheard
    | Look
    | Health
    | Tick
)


@dataclass(frozen=True, slots=True)
class Yes:
    """The lock is the caller's; `since_epoch_ms` is when it was granted."""

    granted: Granted
    since_epoch_ms: int


@dataclass(frozen=True, slots=True)
class Locked:
    """Another has it (`holder`), or the backend says so (None)."""

    holder: Granted | None


@dataclass(frozen=True, slots=True)
class Done:
    """It was done; `ended` is the grant that is over, if one is."""

    ended: Granted | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """The resource is not locked."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """The resource is locked by another id, owner or principal."""


@dataclass(frozen=True, slots=True)
class Spent:
    """This idempotency key was used for a grant that is over."""


@dataclass(frozen=True, slots=True)
class Full:
    """A bound is reached; `what` names it."""

    what: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The backend gave no answer that helps."""

    cause: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A resource as of entry `number`; `expires_in_ms` is None while somebody keeps the grant."""

    granted: Granted | None
    since_epoch_ms: int
    expires_in_ms: int | None
    waiters: int
    number: int


Verdict = Yes | Locked | Done | Missing | Foreign | Spent | Full | Failed | Seen


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the caller behind `handle`, once what was decided is durable."""

    handle: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Record:
    """An entry for the journal."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Tell:
    """The stream behind `handle` must hear that its lock is over, and why."""

    handle: int
    cause: str


@dataclass(frozen=True, slots=True)
class Take:
    """Ask the gate for the backend's lock of `key`, for at least `ttl_ms` without renewal."""

    key: str
    ttl_ms: int
    immediate: bool


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Release the backend's lock of `key`; with `by_force` even if it is not this process's."""

    key: str
    by_force: bool = False


Output = Reply | Record | Tell | Take | GiveBack
