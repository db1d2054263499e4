"""Operator actions on a lock: inspect it, release it by force, repair its objects.

Every write is conditional on the state that was inspected, and has a nonce of the operator. A
holder that is still alive finds the change at its next renewal and declares the lock lost (P21).
Tokens keep increasing, so its late writes can be rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from tidelock.core.clock import Clock, Now
from tidelock.core.errors import (
    Conflict,
    DataCorrupt,
    InvalidInput,
    OutcomeUnknown,
    RecordFromFuture,
    TidelockError,
    Unsupported,
)
from tidelock.core.limits import BROKEN_BYTES_MAX, RECORD_BYTES_MAX, TOKEN_MAX, TOKEN_RANGE
from tidelock.core.outcome import Landed, NotLanded, Unknown
from tidelock.lock.audit import audit_files
from tidelock.lock.lease import Lease
from tidelock.lock.record import (
    LockRecord,
    TokenCounter,
    decode,
    decode_counter,
    encode,
    encode_counter,
)
from tidelock.lock.record_store import LOCK_KEY, TOKENS_KEY
from tidelock.storage.conditional import ReadbackPolicy, put_and_verify
from tidelock.storage.contract import Create, Match, ObjectStore


class Condition(Enum):
    """The condition of a lock, as seen by a client that does not hold it."""

    FREE = "free"
    HELD = "held"
    LAPSED = "lapsed"
    DEAD = "dead"
    UNREADABLE = "unreadable"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Condition.FREE: "nobody holds it",
    Condition.HELD: "its lease is valid",
    Condition.LAPSED: "its lease has expired; a takeover waits for clock drift and grace",
    Condition.DEAD: "its lease expired without a release; the next client takes it over",
    Condition.UNREADABLE: "its record cannot be decoded; nobody can acquire it",
}


@dataclass(frozen=True, slots=True)
class Inspection:
    """The lock record at one point in time.

    `body` has at most one byte more than the maximum size of a record. `record` is None if the
    object is absent or cannot be decoded; in the latter case `problem` is the error.
    """

    uri: str
    condition: Condition
    seen_at: Now
    lease: Lease
    version: str = ""
    body: bytes = b""
    modified_epoch_ms: int = 0
    record: LockRecord | None = None
    problem: DataCorrupt | None = None

    @property
    def exists(self) -> bool:
        return self.version != ""

    @property
    def expires_in_ms(self) -> int | None:
        """Time to the end of the lease by the local clock; negative after it."""
        if self.record is None or self.record.expired:
            return None
        return self.record.valid_until_epoch_ms - self.seen_at.wall_epoch_ms

    @property
    def takeover_in_ms(self) -> int | None:
        """Time until another owner may take over the lock (P10); 0 if it may now."""
        if self.record is None or self.record.expired:
            return None
        left_ms = self.lease.dead_after_epoch_ms(self.record) + 1 - self.seen_at.wall_epoch_ms
        return max(0, left_ms)

    @property
    def written_ago_ms(self) -> int:
        """Time since the record was written: the local clock minus the store's."""
        return self.seen_at.wall_epoch_ms - self.modified_epoch_ms


@dataclass(frozen=True, slots=True)
class CounterInspection:
    """The token counter at one point in time; `counter` is None if absent or unreadable."""

    version: str = ""
    body: bytes = b""
    counter: TokenCounter | None = None
    problem: DataCorrupt | None = None

    @property
    def exists(self) -> bool:
        return self.version != ""


def inspect_lock(store: ObjectStore, lease: Lease, clock: Clock) -> Inspection:
    """Read the lock record at the root of `store`. Raises: the errors of `ObjectStore.get`."""
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
        found.version,
        found.body,
        found.modified_epoch_ms,
        record,
        problem,
    )


def inspect_counter(store: ObjectStore) -> CounterInspection:
    """Read the token counter at the root of `store`. Raises: the errors of `ObjectStore.get`."""
    found = store.get(TOKENS_KEY, end=RECORD_BYTES_MAX + 1)
    if found is None:
        return CounterInspection()
    try:
        return CounterInspection(found.version, found.body, decode_counter(found.body))
    except DataCorrupt as error:
        return CounterInspection(found.version, found.body, problem=error)


def _condition(record: LockRecord | None, lease: Lease, now: Now) -> Condition:
    if record is None:
        return Condition.UNREADABLE
    if record.expired:
        return Condition.FREE
    if lease.is_dead(record, now):
        return Condition.DEAD
    if now.wall_epoch_ms > record.valid_until_epoch_ms:
        return Condition.LAPSED
    return Condition.HELD


@dataclass(slots=True)
class Operator:
    """One intervention in the lock of one resource, under its own owner id."""

    store: ObjectStore
    readback: ReadbackPolicy
    owner: str = ""
    writes: int = 0

    def __post_init__(self) -> None:
        """Generate an owner id, as every lock client does."""
        self.owner = self.owner or self.readback.ids.uuid()

    def force_release(self, seen: Inspection) -> LockRecord:
        """Release the lock in `seen`, whoever holds it.

        The token and its ceiling are kept, so the next token is larger than any before. A record of
        a Java writer has none; the next client then reserves a range of tokens (P6).
        Raises: `Conflict` if the record has changed since; `OutcomeUnknown`.
        """
        record = seen.record
        if record is None or record.expired:
            raise InvalidInput(
                f"lock {seen.uri} is not held: nothing to release",
                hint="check it with `tidelock lock status`",
            )
        released = replace(record, expired=True, nonce=self._nonce(), previous=record.as_previous())
        self._put(LOCK_KEY, encode(released), Match(seen.version))
        return released

    def repair_record(
        self, seen: Inspection, counted: CounterInspection
    ) -> tuple[list[str], LockRecord]:
        """Replace an unreadable record with a released one; return the keys of the backups too.

        The next token is larger than every token granted before, by the counter (P5).
        Raises: `Conflict` if one of the objects has changed since; `OutcomeUnknown`.
        """
        if seen.problem is None:
            raise InvalidInput(f"lock {seen.uri} is readable: nothing to repair")
        if isinstance(seen.problem, RecordFromFuture):
            # L8: the record is valid; it needs a newer version of Tidelock.
            raise seen.problem
        saved = [self._save(LOCK_KEY, seen.version)]
        more, counter = self.repair_counter(seen, counted)
        saved += more
        # The record offers no tokens: the next client reserves a range above the counter by the
        # usual rules, whatever happens in between.
        released = LockRecord(
            expired=True,
            valid_until_epoch_ms=self.readback.clock.now().wall_epoch_ms,
            owner=self.owner,
            token=counter.ceiling,
            token_ceiling=counter.ceiling,
            nonce=self._nonce(),
        )
        self._put(LOCK_KEY, encode(released), Match(seen.version))
        return saved, released

    def repair_counter(
        self, seen: Inspection, counted: CounterInspection
    ) -> tuple[list[str], TokenCounter]:
        """Set an absent, unreadable or low counter above every token granted before.

        Returns the keys of the backups too.
        Raises: `Conflict` if the counter has changed since; `OutcomeUnknown`.
        """
        saved = [self._save(TOKENS_KEY, counted.version)] if counted.problem else []
        counter = TokenCounter(_next_ceiling(self._floor(seen, counted)), self._nonce())
        mode = Match(counted.version) if counted.exists else Create()
        self._put(TOKENS_KEY, encode_counter(counter), mode)
        return saved, counter

    def _floor(self, seen: Inspection, counted: CounterInspection) -> int:
        """Return an upper bound of all tokens granted so far.

        A readable counter is one (P5). A record is not: a range above it may have been reserved for
        a grant. Without the counter, use the wall clock in microseconds, which advances faster than
        tokens are granted, and any token numbers left in the damaged objects.
        """
        known = [seen.record.token, seen.record.token_ceiling] if seen.record else []
        if counted.counter is not None:
            return max([*known, counted.counter.ceiling])
        known += _token_numbers(seen.body) + _token_numbers(counted.body)
        return max([*known, self.readback.clock.now().wall_epoch_ms * 1_000])

    def _save(self, key: str, version: str) -> str:
        """Copy the object `key`, if it still has `version`; return the key of the copy."""
        found = self.store.get(key, end=BROKEN_BYTES_MAX + 1)
        if found is None or found.version != version:
            raise _changed_error(self.store, key)
        if len(found.body) > BROKEN_BYTES_MAX:
            raise Unsupported(
                f"{self.store.uri}/{key} is larger than {BROKEN_BYTES_MAX} bytes: it is not copied",
                hint="copy it yourself, replace it with an empty object, and run this again",
            )
        copy = f"{key}.broken-{self.readback.clock.now().wall_epoch_ms}"
        self._put(copy, found.body, Create())
        return copy

    def _put(self, key: str, body: bytes, mode: Create | Match) -> None:
        match put_and_verify(self.store, key, body, mode, policy=self.readback):
            case Landed():
                return
            case NotLanded():
                raise _changed_error(self.store, key)
            case Unknown(cause):
                raise OutcomeUnknown(
                    f"{self.store.uri}/{key} may not have been written: {cause}",
                    hint="check it with `tidelock lock status`, then run this again",
                )

    def _nonce(self) -> str:
        self.writes += 1
        return f"{self.owner}:{self.writes}"


def _changed_error(store: ObjectStore, key: str) -> Conflict:
    return Conflict(
        f"{store.uri}/{key} has changed since it was inspected; nothing was written",
        hint="inspect it again with `tidelock lock status`",
    )


def _next_ceiling(floor: int) -> int:
    """Return the ceiling of the next range above `floor`."""
    ceiling = floor + TOKEN_RANGE
    if ceiling > TOKEN_MAX:
        raise DataCorrupt(
            f"token counter: {floor} leaves no room below the maximum of {TOKEN_MAX}",
            hint="the counter is damaged; restore it from a backup",
        )
    return ceiling


_TOKEN_FIELD = re.compile(rb'"(?:token|tokenCeiling|ceiling)"\s*:\s*(\d{1,18})\b')


def _token_numbers(body: bytes) -> list[int]:
    """Return the values of token fields in bytes that cannot be decoded."""
    return [int(number) for number in _TOKEN_FIELD.findall(body)]


def held_since(store: ObjectStore, seen: Inspection) -> int | None:
    """Return when the holding began, from the audit files; None if they do not show it."""
    if seen.record is None or seen.record.expired:
        return None
    ending = f"_{seen.record.owner}.jsonl"
    try:
        names = [meta.key.rpartition("/")[2] for meta in audit_files(store)]
    except TidelockError:
        return None
    starts = [name.removesuffix(ending) for name in names if name.endswith(ending)]
    return max((int(start) for start in starts if start.isdecimal()), default=None)
