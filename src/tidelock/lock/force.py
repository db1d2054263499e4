"""What an operator may do to a lock that is not theirs: end it, or mend it.

Every write here is conditional on what the operator was shown, and carries a nonce of the
operator's own. A holder that is still alive meets it at its next renewal and knows that the record
is not its own any more (P21); tokens go on growing, so its late writes can be told apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tidelock.base.errors import (
    Conflict,
    DataCorrupt,
    InvalidInput,
    OutcomeUnknown,
    RecordFromFuture,
    Unsupported,
)
from tidelock.base.limits import BROKEN_BYTES_MAX, TOKEN_MAX, TOKEN_RANGE
from tidelock.base.outcome import Landed, NotLanded, Unknown
from tidelock.lock.inspect import CounterInspection, Inspection
from tidelock.lock.objects import LOCK_KEY, TOKENS_KEY
from tidelock.lock.record import Counter, Record, encode, encode_counter
from tidelock.store.contract import Create, Match, ObjectStore
from tidelock.store.readback import Patience, put_checked


@dataclass(slots=True)
class Operator:
    """One person's intervention in one resource's lock, with a name that its writes carry."""

    store: ObjectStore
    patience: Patience
    owner: str = ""
    writes: int = 0

    def __post_init__(self) -> None:
        """Draw a name, as every client of a lock does."""
        self.owner = self.owner or self.patience.ids.uuid()

    def force_release(self, seen: Inspection) -> Record:
        """Release the lock that `seen` shows, whoever holds it.

        The token and its ceiling stay, so the next token is larger than any before. A record of a
        Java writer has none; the next taker then reserves a range of tokens (P6).
        Raises: `Conflict` when the record has changed since it was shown; `OutcomeUnknown`.
        """
        record = seen.record
        if record is None or record.expired:
            raise InvalidInput(
                f"{seen.uri} is not held: there is nothing to release",
                hint="see `tidelock lock status`",
            )
        released = replace(record, expired=True, nonce=self._nonce(), previous=record.as_previous())
        self._put(LOCK_KEY, encode(released), Match(seen.version))
        return released

    def mend_record(self, seen: Inspection, counted: CounterInspection) -> tuple[list[str], Record]:
        """Replace an unreadable record by a released one; return where old bytes were saved.

        The first token after it lies above every token ever granted: the counter knows them (P5).
        Raises: `Conflict` when either object changed since; `OutcomeUnknown`.
        """
        if seen.problem is None:
            raise InvalidInput(f"{seen.uri} can be read: there is nothing to mend")
        if isinstance(seen.problem, RecordFromFuture):
            # L8: it is whole; only this version cannot read it.
            raise seen.problem
        saved = [self._save(LOCK_KEY, seen.version)]
        more, counter = self.mend_counter(seen, counted)
        saved += more
        # The record offers no token of its own: the next taker reserves a range above the
        # counter by the ordinary rules, whatever happens in between.
        released = Record(
            expired=True,
            valid_until_epoch_ms=self.patience.clock.now().wall_epoch_ms,
            owner=self.owner,
            token=counter.ceiling,
            token_ceiling=counter.ceiling,
            nonce=self._nonce(),
        )
        self._put(LOCK_KEY, encode(released), Match(seen.version))
        return saved, released

    def mend_counter(
        self, seen: Inspection, counted: CounterInspection
    ) -> tuple[list[str], Counter]:
        """Put the counter above every token ever granted, whether it is absent, unreadable or low.

        Returns where an unreadable one was saved.
        Raises: `Conflict` when the counter changed since; `OutcomeUnknown`.
        """
        saved = [self._save(TOKENS_KEY, counted.version)] if counted.problem else []
        counter = Counter(_raised(self._floor(seen, counted)), self._nonce())
        mode = Match(counted.version) if counted.exists else Create()
        self._put(TOKENS_KEY, encode_counter(counter), mode)
        return saved, counter

    def _floor(self, seen: Inspection, counted: CounterInspection) -> int:
        """Return a number that no token has passed yet.

        A readable counter is one (P5). A record is not: a range above it may be on its way to a
        grant. Without the counter the clock has to do, in microseconds, which pass faster than
        tokens are granted, besides whatever digits are left.
        """
        known = [seen.record.token, seen.record.token_ceiling] if seen.record else []
        if counted.counter is not None:
            return max([*known, counted.counter.ceiling])
        known += _salvaged(seen.body) + _salvaged(counted.body)
        return max([*known, self.patience.clock.now().wall_epoch_ms * 1_000])

    def _save(self, key: str, version: str) -> str:
        """Copy the object `key` beside itself, if it still has `version`; return the copy's key."""
        found = self.store.get(key, end=BROKEN_BYTES_MAX + 1)
        if found is None or found.version != version:
            raise _changed(self.store, key)
        if len(found.body) > BROKEN_BYTES_MAX:
            raise Unsupported(
                f"{self.store.uri}/{key} has more than {BROKEN_BYTES_MAX} bytes and is not copied",
                hint="copy it away yourself, put an empty object in its place, run this again",
            )
        copy = f"{key}.broken-{self.patience.clock.now().wall_epoch_ms}"
        self._put(copy, found.body, Create())
        return copy

    def _put(self, key: str, body: bytes, mode: Create | Match) -> None:
        match put_checked(self.store, key, body, mode, patience=self.patience):
            case Landed():
                return
            case NotLanded():
                raise _changed(self.store, key)
            case Unknown(cause):
                raise OutcomeUnknown(
                    f"{self.store.uri}/{key} may not have been written: {cause}",
                    hint="look with `tidelock lock status`, then run this again",
                )

    def _nonce(self) -> str:
        self.writes += 1
        return f"{self.owner}:{self.writes}"


def _changed(store: ObjectStore, key: str) -> Conflict:
    return Conflict(
        f"{store.uri}/{key} changed while it was looked at; nothing was done to it",
        hint="look again with `tidelock lock status`",
    )


def _raised(floor: int) -> int:
    """Return the ceiling of one more range above `floor`."""
    ceiling = floor + TOKEN_RANGE
    if ceiling > TOKEN_MAX:
        raise DataCorrupt(
            f"the token counter has reached {floor}: no larger token fits",
            hint="the number is damaged; restore the counter from a copy",
        )
    return ceiling


_NUMBERED = re.compile(rb'"(?:token|tokenCeiling|ceiling)"\s*:\s*(\d{1,18})\b')


def _salvaged(body: bytes) -> list[int]:
    """Return the numbers that stand where tokens do in bytes that cannot be parsed."""
    return [int(number) for number in _NUMBERED.findall(body)]
