"""A look at a lock from outside: what its record says, and what follows from that.

Nothing here writes. A record that cannot be read is a finding, not an error; a store that cannot
be asked is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelock.base.clock import Clock, Now
from tidelock.base.errors import DataCorrupt
from tidelock.base.limits import RECORD_BYTES_MAX
from tidelock.lock.lease import Lease
from tidelock.lock.objects import LOCK_KEY, TOKENS_KEY
from tidelock.lock.record import Counter, Record, decode, decode_counter
from tidelock.store.contract import ObjectStore, StoredObject


class Condition(Enum):
    """What a passer-by may conclude from a lock record and a clock."""

    FREE = "free"
    HELD = "held"
    LAPSED = "lapsed"
    DEAD = "dead"
    UNREADABLE = "unreadable"

    @property
    def meaning(self) -> str:
        """Return the condition in a sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Condition.FREE: "nobody holds it",
    Condition.HELD: "its lease is running",
    Condition.LAPSED: "its lease is over; takers still wait for the clock drift and the grace",
    Condition.DEAD: "its holder never released it; the next taker takes it over",
    Condition.UNREADABLE: "its record is not a lock record; nobody can take it",
}


@dataclass(frozen=True, slots=True)
class Inspection:
    """One look at the lock record.

    `body` holds at most one byte more than a record may have. `record` is None when there is no
    record, and when there is one that cannot be read; then `problem` says why.
    """

    uri: str
    condition: Condition
    seen_at: Now
    lease: Lease
    version: str = ""
    body: bytes = b""
    modified_epoch_ms: int = 0
    record: Record | None = None
    problem: DataCorrupt | None = None

    @property
    def exists(self) -> bool:
        """Tell whether there is a lock object at all."""
        return self.version != ""

    @property
    def expires_in_ms(self) -> int | None:
        """How long the lease still runs by this machine's clock; negative once it is over."""
        if self.record is None or self.record.expired:
            return None
        return self.record.valid_until_epoch_ms - self.seen_at.wall_epoch_ms

    @property
    def takeover_in_ms(self) -> int | None:
        """How long until another owner may take the lock over (P10); 0 when it may now."""
        if self.record is None or self.record.expired:
            return None
        left_ms = self.lease.dead_after_epoch_ms(self.record) + 1 - self.seen_at.wall_epoch_ms
        return max(0, left_ms)

    @property
    def written_ago_ms(self) -> int:
        """How long ago the record was written, by the store's clock against this machine's."""
        return self.seen_at.wall_epoch_ms - self.modified_epoch_ms


@dataclass(frozen=True, slots=True)
class CounterInspection:
    """One look at the token counter; `counter` is None when absent or unreadable."""

    version: str = ""
    body: bytes = b""
    counter: Counter | None = None
    problem: DataCorrupt | None = None

    @property
    def exists(self) -> bool:
        """Tell whether there is a counter object at all."""
        return self.version != ""


def inspect_lock(store: ObjectStore, lease: Lease, clock: Clock) -> Inspection:
    """Read the lock record of the resource at the root of `store` and judge it.

    Raises: what `ObjectStore.get` raises.
    """
    found = store.get(LOCK_KEY, end=RECORD_BYTES_MAX + 1)
    now = clock.now()
    uri = f"{store.uri}/{LOCK_KEY}"
    if found is None:
        return Inspection(uri, Condition.FREE, now, lease)
    record, problem = None, None
    try:
        record = decode(found.body)
    except DataCorrupt as error:
        problem = error
    return Inspection(
        uri,
        _condition(record, lease, now),
        now,
        lease,
        version=found.version,
        body=found.body,
        modified_epoch_ms=found.modified_epoch_ms,
        record=record,
        problem=problem,
    )


def inspect_counter(store: ObjectStore) -> CounterInspection:
    """Read the token counter of the resource at the root of `store`.

    Raises: what `ObjectStore.get` raises.
    """
    found: StoredObject | None = store.get(TOKENS_KEY, end=RECORD_BYTES_MAX + 1)
    if found is None:
        return CounterInspection()
    try:
        return CounterInspection(found.version, found.body, decode_counter(found.body))
    except DataCorrupt as error:
        return CounterInspection(found.version, found.body, problem=error)


def _condition(record: Record | None, lease: Lease, now: Now) -> Condition:
    if record is None:
        return Condition.UNREADABLE
    if record.expired:
        return Condition.FREE
    if lease.is_dead(record, now):
        return Condition.DEAD
    if now.wall_epoch_ms > record.valid_until_epoch_ms:
        return Condition.LAPSED
    return Condition.HELD
