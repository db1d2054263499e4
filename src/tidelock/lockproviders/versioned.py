"""A lock kept in one record that its service replaces only under a condition.

DynamoDB's items, Kubernetes' Lease objects and the entries of any key-value store with etags are
such records. A record names its holder and a duration; every renewal changes its version. A
version that stands still for the duration, on the taker's own clock, belongs to a dead holder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import Conflict, StoreUnreachable, TidelockError
from tidelock.lock.provider import Features, Holder
from tidelock.lockproviders.backend import (
    Attempt,
    Freed,
    Gone,
    Grant,
    Held,
    Kept,
    ReleaseReply,
    RenewReply,
    Taken,
    TakeReply,
    Terms,
    Unclear,
)
from tidelock.lockproviders.observation import Observations, shared_observations

_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """What the record says. `holder` empty: nobody. `version` is the service's, empty if unsent."""

    holder: str
    duration_ms: int
    token: int = 0
    version: str = ""
    since_epoch_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The record is not the one that was to be replaced."""


class Register(Protocol):
    """The one record of a lock."""

    @property
    def uri(self) -> str:
        """The record, for messages."""
        ...

    def read(self) -> Entry | None:
        """Return the record as of now; None if there is none."""
        ...

    def write(self, entry: Entry, over: Entry | None) -> Entry | Refused | Unclear:
        """Replace `over` (None: nothing) by `entry`; return it as it stands there now."""
        ...

    def draw_token(self, entry: Entry) -> int:
        """Return the fencing token of the grant that `entry` is; called once, by its holder."""
        ...

    def close(self) -> None:
        """Give back connections."""
        ...


class VersionedBackend:
    """The lock in the record of `register`."""

    def __init__(
        self,
        register: Register,
        terms: Terms,
        features: Features,
        *,
        clock: Clock | None = None,
        observations: Observations | None = None,
    ) -> None:
        """Read nothing yet."""
        assert terms.validity_ms is not None
        self.terms = terms
        self._duration_ms = terms.validity_ms
        self._register = register
        self._features = features
        self._clock = clock or SystemClock()
        self._observations = observations or shared_observations
        self._mine: dict[str, Entry] = {}

    @property
    def uri(self) -> str:
        """The record."""
        return self._register.uri

    def features(self) -> Features:
        """Return what the service can do."""
        return self._features

    def take(self, attempt: Attempt) -> TakeReply:
        """Read the record, and replace it if its holder let go or is silent."""
        found = self._register.read()
        if found is not None and found.holder:
            left_ms = self._observations.left_ms(
                self.uri, found.version, found.duration_ms, self._clock
            )
            if left_ms > 0:
                return Held(found.holder, look_after_ms=left_ms)
        wanted = Entry(
            attempt.id,
            self._duration_ms,
            token=(found.token if found else 0) + 1,
            since_epoch_ms=self._clock.now().wall_epoch_ms,
        )
        match self._register.write(wanted, found):
            case Entry() as landed:
                return self._granted(attempt, landed)
            case Unclear() as unclear:
                return unclear
            case Refused():
                return Held()

    def _granted(self, attempt: Attempt, landed: Entry) -> TakeReply:
        try:
            token = self._register.draw_token(landed)
        except TidelockError as error:
            # The record names us all the same: it has to be undone.
            return Unclear(str(error))
        self._mine[attempt.id] = landed
        return Taken(Grant(attempt, landed.version, token))

    def leave(self, attempt: Attempt) -> bool:
        """Release the record if an unheard grant of this attempt is in it."""
        self._mine.pop(attempt.id, None)
        for _ in range(_ROUNDS):
            found = self._register.read()
            if found is None or found.holder != attempt.id:
                return False
            match self._register.write(self._released(found), found):
                case Entry():
                    return True
                case Unclear(cause):
                    raise StoreUnreachable(f"{self.uri}: {cause}", hint="try again")
                case Refused():
                    continue
        raise StoreUnreachable(f"{self.uri} keeps changing", hint="try again")

    def renew(self, grant: Grant) -> RenewReply:
        """Write the record again, so that it gets another version."""
        mine = self._mine.get(grant.attempt.id)
        if mine is None:
            return Gone("it was released")
        reply = self._replace_own(grant, mine, mine)
        if isinstance(reply, Entry):
            self._mine[grant.attempt.id] = reply
            return Kept(replace(grant, handle=reply.version))
        return reply

    def release(self, grant: Grant) -> ReleaseReply:
        """Write the record without a holder."""
        mine = self._mine.get(grant.attempt.id)
        if mine is None:
            return Gone("it was released")
        reply = self._replace_own(grant, mine, self._released(mine))
        if isinstance(reply, Entry):
            self._mine.pop(grant.attempt.id, None)
            return Freed()
        return reply

    def forsake(self, grant: Grant) -> None:
        """Leave the record to stand still."""
        self._mine.pop(grant.attempt.id, None)

    def holder(self) -> Holder | None:
        """Return whom the record names."""
        found = self._register.read()
        if found is None or not found.holder:
            return None
        # Whether it is silent takes a duration to see; what the record says is all there is.
        return Holder(found.holder, found.token or None, found.since_epoch_ms)

    def break_lock(self) -> bool:
        """Write the record without a holder, whoever it names.

        Raises: `Conflict` when its holder renewed it in between.
        """
        found = self._register.read()
        if found is None or not found.holder:
            return False
        match self._register.write(self._released(found), found):
            case Entry():
                return True
            case Unclear(cause):
                raise StoreUnreachable(f"{self.uri}: {cause}", hint="look again")
            case Refused():
                raise Conflict(
                    f"{self.uri} changed while it was released", hint="look again, then repeat"
                )

    def close(self) -> None:
        """Give back connections."""
        self._register.close()

    def _replace_own(self, grant: Grant, mine: Entry, wanted: Entry) -> Entry | Gone | Unclear:
        """L4: replace the version last written. A refusal may be our own unheard success (L5)."""
        for _ in range(_ROUNDS):
            reply = self._register.write(wanted, mine)
            if not isinstance(reply, Refused):
                return reply
            found = self._register.read()
            if found is None:
                return Gone("its record was deleted")
            if found.holder != grant.attempt.id:
                return Gone(f"its record names {found.holder or 'nobody'}")
            mine = found
            self._mine[grant.attempt.id] = found
        return Unclear("the record keeps changing its version")

    def _released(self, entry: Entry) -> Entry:
        return replace(entry, holder="", version="")
