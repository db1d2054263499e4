"""A lock in one record that supports conditional updates.

DynamoDB items, Kubernetes Leases and the values of any key-value store with etags are such records.
A record has a holder and a duration, and every renewal changes its version. If the version does not
change for the duration, measured on the observer's clock, the holder is dead.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Protocol

from tidelock.core.clock import Clock
from tidelock.core.errors import Conflict, TidelockError
from tidelock.core.limits import GRACE_MS
from tidelock.core.system import SystemClock
from tidelock.lock.provider import Features, Holder
from tidelock.lock.providers import backend as b

OBSERVED_LOCKS_MAX = 1_024
"""Locks that a process remembers; the least recently observed one is dropped first."""


class Observations:
    """The versions of locks that this process has observed, and since when."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._seen: dict[str, tuple[str, int]] = {}

    def left_ms(self, lock: str, version: str, duration_ms: int, clock: Clock) -> float:
        """Return how long `version` must stay unchanged until a takeover; 0: now."""
        now_ms = clock.now().monotonic_ms
        with self._mutex:
            known, since_ms = self._seen.pop(lock, ("", now_ms))
            if known != version:
                since_ms = now_ms
            self._seen[lock] = (version, since_ms)
            while len(self._seen) > OBSERVED_LOCKS_MAX:
                del self._seen[next(iter(self._seen))]
        return max(0.0, since_ms + duration_ms + GRACE_MS - now_ms)


shared_observations = Observations()
"""Shared by all clients of a process, so that a new provider knows what others observed."""


_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """The content of the record. `holder` is empty if free, `version` if not yet written."""

    holder: str
    duration_ms: int
    token: int = 0
    version: str = ""
    since_epoch_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReplaceRefused:
    """The record has changed, and was not replaced."""


class Register(Protocol):
    """The record of one lock."""

    @property
    def uri(self) -> str:
        """URI of the record, for messages."""

    def read(self) -> RecordEntry | None:
        """Return the current record; None if there is none."""

    def write(
        self, entry: RecordEntry, expected: RecordEntry | None
    ) -> RecordEntry | ReplaceRefused | b.BackendUnclear:
        """Replace `expected` (None: no record) with `entry`; return it with its version."""

    def next_token(self, entry: RecordEntry) -> int:
        """Return the fencing token of the grant `entry`; called once per grant."""

    def close(self) -> None:
        """Close the connections."""


class VersionedBackend:
    """The lock in the record of `register`."""

    features = Features(blocking_wait=True, fencing_token=True, force_release=True)

    def __init__(
        self,
        register: Register,
        terms: b.LeaseTerms,
        *,
        clock: Clock | None = None,
        observations: Observations | None = None,
    ) -> None:
        assert terms.validity_ms is not None
        self.terms = terms
        self._duration_ms = terms.validity_ms
        self._register = register
        self._clock = clock or SystemClock()
        self._observations = observations or shared_observations
        self._own: dict[str, RecordEntry] = {}

    @property
    def uri(self) -> str:
        return self._register.uri

    def try_acquire(self, attempt: b.Attempt) -> b.AcquireReply:
        """Read the record, and replace it if it is free or its holder is dead."""
        found = self._register.read()
        if found is not None and found.holder:
            left_ms = self._observations.left_ms(
                self.uri, found.version, found.duration_ms, self._clock
            )
            if left_ms > 0:
                return b.HeldByOther(found.holder, poll_after_ms=left_ms)
        entry = RecordEntry(
            attempt.id,
            self._duration_ms,
            token=(found.token if found else 0) + 1,
            since_epoch_ms=self._clock.now().wall_epoch_ms,
        )
        match self._register.write(entry, found):
            case RecordEntry() as landed:
                return self._granted(attempt, landed)
            case b.BackendUnclear() as unclear:
                return unclear
            case ReplaceRefused():
                return b.HeldByOther()

    def _granted(self, attempt: b.Attempt, landed: RecordEntry) -> b.AcquireReply:
        try:
            token = self._register.next_token(landed)
        except TidelockError as error:
            # The record names us as its holder, so the attempt must be cancelled.
            return b.BackendUnclear(str(error))
        self._own[attempt.id] = landed
        return b.BackendAcquired(b.BackendGrant(attempt, landed.version, token))

    def cancel(self, attempt: b.Attempt) -> bool:
        """Release the record if it has an unseen grant of this attempt."""
        self._own.pop(attempt.id, None)
        found = self._register.read()
        if found is None or found.holder != attempt.id:
            return False
        reply = self._replace_own(attempt, found, _released(found))
        self._own.pop(attempt.id, None)
        if isinstance(reply, b.BackendUnclear):
            raise reply.error(self.uri)
        return isinstance(reply, RecordEntry)

    def renew(self, grant: b.BackendGrant) -> b.RenewReply:
        """Write the record again, which changes its version."""
        own = self._own.get(grant.attempt.id)
        if own is None:
            return b.GrantLost("it was released")
        reply = self._replace_own(grant.attempt, own, own)
        if isinstance(reply, RecordEntry):
            self._own[grant.attempt.id] = reply
            return b.RenewedLease(replace(grant, handle=reply.version))
        return reply

    def release(self, grant: b.BackendGrant) -> b.ReleaseReply:
        """Write the record without a holder."""
        own = self._own.get(grant.attempt.id)
        if own is None:
            return b.GrantLost("it was released")
        reply = self._replace_own(grant.attempt, own, _released(own))
        if isinstance(reply, RecordEntry):
            self._own.pop(grant.attempt.id, None)
            return b.GrantReleased()
        return reply

    def abandon(self, grant: b.BackendGrant) -> None:
        """Stop tracking the record, and let it expire."""
        self._own.pop(grant.attempt.id, None)

    def holder(self) -> Holder | None:
        found = self._register.read()
        if found is None or not found.holder:
            return None
        # Whether the holder is dead takes a duration to observe, so it is not reported.
        return Holder(found.holder, found.token or None, found.since_epoch_ms)

    def force_release(self) -> bool:
        """Write the record without a holder. Raises: `Conflict` if it was renewed meanwhile."""
        found = self._register.read()
        if found is None or not found.holder:
            return False
        match self._register.write(_released(found), found):
            case RecordEntry():
                return True
            case b.BackendUnclear() as unclear:
                raise unclear.error(self.uri, hint="check the holder again")
            case ReplaceRefused():
                raise Conflict(
                    f"{self.uri} changed while it was being released",
                    hint="check the holder, then try again",
                )

    def close(self) -> None:
        self._register.close()

    def _replace_own(
        self, attempt: b.Attempt, own: RecordEntry, entry: RecordEntry
    ) -> RecordEntry | b.GrantLost | b.BackendUnclear:
        """L4: replace the version last written. A refusal may be our own unseen success (L5)."""
        for _ in range(_ROUNDS):
            reply = self._register.write(entry, own)
            if not isinstance(reply, ReplaceRefused):
                return reply
            found = self._register.read()
            if found is None:
                return b.GrantLost("its record was deleted")
            if found.holder != attempt.id:
                now = f"names the holder {found.holder}" if found.holder else "has no holder"
                return b.GrantLost(f"its record {now}")
            own = found
            self._own[attempt.id] = found
        return b.BackendUnclear("the record keeps changing")


def _released(entry: RecordEntry) -> RecordEntry:
    return replace(entry, holder="", version="")
