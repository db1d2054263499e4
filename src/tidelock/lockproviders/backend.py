"""The seam below the providers: what one lock of one service can be asked, in five verbs.

A backend knows the wire and the format of its service and nothing else. Waiting, renewing, the
deadline, the loss and its notice are `tidelock.lockproviders.leased`'s, once for all of them.

An implementation must
  * send a request that changes something at most once per call, and answer `Unclear` when it
    cannot tell whether it landed; an exception proves that nothing did;
  * renew and release only its own grant (L4), atomically against every other client;
  * let go of a lock whose holder is silent for `terms.validity_ms`, and not before.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from tidelock.base.errors import ConfigInvalid
from tidelock.base.limits import MARGIN_MS_MIN, MARGIN_SHARE
from tidelock.lock.provider import Features, Holder


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a silent holder keeps the lock (None: for ever), and how often one speaks."""

    validity_ms: int | None
    renew_ms: int

    def __post_init__(self) -> None:
        """Refuse terms under which a holder could not keep what it has."""
        if self.renew_ms < 1:
            raise ConfigInvalid(f"a renewal every {self.renew_ms} ms cannot be")
        if self.validity_ms is None:
            return
        if self.validity_ms < 2 * self.renew_ms:
            raise ConfigInvalid(
                f"a lock valid for {self.validity_ms} ms needs renewals more often than every"
                f" {self.renew_ms} ms",
                hint="renew at least twice in the time of validity",
            )
        if self.validity_ms <= 2 * self.margin_ms:
            raise ConfigInvalid(
                f"a validity of {self.validity_ms} ms leaves no time beside the margin",
                hint=f"use more than {2 * self.margin_ms} ms",
            )

    @property
    def margin_ms(self) -> int:
        """How long before the end of its lease a holder stops."""
        return max(MARGIN_MS_MIN, (self.validity_ms or 0) // MARGIN_SHARE)

    def deadline_monotonic_ms(self, sent_monotonic_ms: int) -> int | None:
        """L3: return when the holder stops, if what it sent then was heard; None is never."""
        if self.validity_ms is None:
            return None
        return sent_monotonic_ms + self.validity_ms - self.margin_ms


@dataclass(frozen=True, slots=True)
class Attempt:
    """One client's wish for the lock. No other attempt, of any process, has this id."""

    id: str


@dataclass(frozen=True, slots=True)
class Grant:
    """A holding as its service knows it: `handle` is what a renewal or a release must show."""

    attempt: Attempt
    handle: str
    token: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """The lock is held under this grant."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else holds it. `queued`: the service remembers that this attempt waits."""

    owner: str = ""
    queued: bool = False
    look_after_ms: float | None = None
    """When the answer may be another one, if that is known."""

    changed: threading.Event | None = None
    """Set when it is, by a service that tells; waiting for it replaces the pause."""


@dataclass(frozen=True, slots=True)
class Unclear:
    """No answer, or one that proves nothing: what was asked may have been done."""

    cause: str


@dataclass(frozen=True, slots=True)
class Kept:
    """The lease goes on, under this grant."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class Freed:
    """The lock was given back."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The service says that the grant is not there any more, and why as far as it knows."""

    cause: str


TakeReply = Taken | Held | Unclear
RenewReply = Kept | Gone | Unclear
ReleaseReply = Freed | Gone | Unclear


class Backend(Protocol):
    """One lock of one service.

    Raises (every verb): errors of `tidelock.base.errors`; `Unavailable` is worth another try.
    """

    @property
    def uri(self) -> str:
        """The lock, for messages; without secrets."""
        ...

    @property
    def terms(self) -> Terms:
        """Validity and cadence."""
        ...

    def features(self) -> Features:
        """Return what the service can do."""
        ...

    def take(self, attempt: Attempt) -> TakeReply:
        """Look once, and take the lock if it is free. A queued attempt is asked again by this."""
        ...

    def leave(self, attempt: Attempt) -> bool:
        """Undo whatever `attempt` may have left, waiting or granted; tell if there was anything."""
        ...

    def renew(self, grant: Grant) -> RenewReply:
        """Extend the lease of `grant` by one validity, counted from before this call."""
        ...

    def release(self, grant: Grant) -> ReleaseReply:
        """Give the lock back."""
        ...

    def forsake(self, grant: Grant) -> None:
        """Stop whatever keeps `grant` alive by itself; the holder is gone. Never waits."""
        ...

    def holder(self) -> Holder | None:
        """Return who holds the lock now."""
        ...

    def break_lock(self) -> bool:
        """Free the lock whoever holds it; return whether anybody did."""
        ...

    def close(self) -> None:
        """Give back connections; closing twice is no error."""
        ...
