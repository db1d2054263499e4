"""The backend protocol: one lock of one lock service.

A backend implements the wire protocol and the data format of its service. Waiting, the renewal
schedule, the deadline and loss notifications are in `tidelock.lock.providers.leased`, once for all
backends.

An implementation must
  * send a mutating request at most once per call, and return `BackendUnclear` if it is not known
    whether the request landed; an exception means that it did not;
  * renew and release only its own grant (L4), atomically with respect to every other client;
  * expire a lock that is not renewed for `terms.validity_ms`, and not earlier.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from tidelock.core.errors import ConfigInvalid, StoreUnreachable
from tidelock.lock.lease import check_margin, margin_of
from tidelock.lock.provider import Features, Holder


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Validity of a lock that is not renewed (None: it does not expire), and renewal interval."""

    validity_ms: int | None
    renew_ms: int

    def __post_init__(self) -> None:
        """Reject terms under which a holder could not keep its lock."""
        if self.renew_ms < 1:
            raise ConfigInvalid(f"renewal interval: expected at least 1 ms, got {self.renew_ms} ms")
        if self.validity_ms is None:
            return
        if self.validity_ms < 2 * self.renew_ms:
            raise ConfigInvalid(
                f"renewal interval: expected at most half of the validity of {self.validity_ms} ms,"
                f" got {self.renew_ms} ms",
                hint="renew at least twice within the validity",
            )
        check_margin(self.validity_ms)

    def deadline_monotonic_ms(self, sent_monotonic_ms: int) -> int | None:
        """L3: return when a holder must stop whose last request was sent then; None: never."""
        if self.validity_ms is None:
            return None
        return sent_monotonic_ms + self.validity_ms - margin_of(self.validity_ms)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to acquire the lock. The id is unique across all processes."""

    id: str


@dataclass(frozen=True, slots=True)
class BackendGrant:
    """A holding in the service; `handle` identifies it for renewals and the release."""

    attempt: Attempt
    handle: str
    token: int = 0


@dataclass(frozen=True, slots=True)
class BackendAcquired:
    """The lock is held under this grant."""

    grant: BackendGrant


@dataclass(frozen=True, slots=True)
class HeldByOther:
    """Another client holds the lock. `queued`: this attempt waits in the queue of the service."""

    owner: str = ""
    queued: bool = False
    poll_after_ms: float | None = None
    """The earliest time at which a new attempt can succeed, if it is known."""

    changed: threading.Event | None = None
    """Set on a change by a service with watches; waiting for it replaces the pause."""


@dataclass(frozen=True, slots=True)
class BackendUnclear:
    """No reply, or an inconclusive one: the request may have landed."""

    cause: str

    def error(self, uri: str, hint: str = "try again") -> StoreUnreachable:
        """Return the error for a caller that needs a definite reply."""
        return StoreUnreachable(f"{uri}: {self.cause}", hint=hint)


@dataclass(frozen=True, slots=True)
class RenewedLease:
    """The lease was extended; the grant is up to date."""

    grant: BackendGrant


@dataclass(frozen=True, slots=True)
class GrantReleased:
    """The lock was released."""


@dataclass(frozen=True, slots=True)
class GrantLost:
    """The service no longer has the grant."""

    cause: str


AcquireReply = BackendAcquired | HeldByOther | BackendUnclear
RenewReply = RenewedLease | GrantLost | BackendUnclear
ReleaseReply = GrantReleased | GrantLost | BackendUnclear


class Backend(Protocol):
    """One lock of one service.

    All methods raise errors of `tidelock.core.errors`; `Unavailable` may be retried.
    """

    @property
    def uri(self) -> str:
        """URI of the lock, for messages; without secrets."""

    @property
    def terms(self) -> LeaseTerms:
        """Validity and renewal interval."""

    @property
    def features(self) -> Features:
        """Features of the service."""

    def try_acquire(self, attempt: Attempt) -> AcquireReply:
        """Try once to acquire the lock. For a queued attempt, check whether it has been granted."""

    def cancel(self, attempt: Attempt) -> bool:
        """Remove `attempt` from the service, queued or granted; return whether it was there."""

    def renew(self, grant: BackendGrant) -> RenewReply:
        """Extend the lease of `grant` by one validity, counted from before the call."""

    def release(self, grant: BackendGrant) -> ReleaseReply:
        """Release the lock."""

    def abandon(self, grant: BackendGrant) -> None:
        """Stop any automatic renewal of `grant`, whose holder is gone. Never blocks."""

    def holder(self) -> Holder | None:
        """Return who holds the lock; None if it is free."""

    def force_release(self) -> bool:
        """Release the lock, whoever holds it; return whether it was held."""

    def close(self) -> None:
        """Close the connections. May be called twice."""
