"""A model of Hudi's Java provider (StorageBasedLockProvider), competing for the same record.

It knows three fields and drops the others when it writes. It takes over a record that ended 500 ms
ago, does not read back, and renews at a fixed rate without checking its own lease. It relies on its
lock until `validUntil + 500` by its own clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testkit.sim.clocks import VirtualClock
from testkit.sim.plan import Fault
from testkit.sim.process import Process, ThreadBody
from tidelock.core.errors import TidelockError
from tidelock.core.outcome import Landed
from tidelock.lock.record import LockRecord
from tidelock.lock.record_store import LOCK_KEY
from tidelock.lock.session import SessionPause
from tidelock.storage.contract import Busy, Create, Match, PutMode, PutReply, Refused, StoredObject

if TYPE_CHECKING:
    from testkit.sim.world import World

_DRIFT_MS = 500
_POLL_MS = 1_000
_UNLOCK_PAUSES_MS = (1_000, 2_000, 4_000)


@dataclass(frozen=True, slots=True)
class JavaGet:
    """Read the record."""


@dataclass(frozen=True, slots=True)
class JavaPut:
    """Write the record."""

    record: LockRecord
    mode: PutMode


class JavaError(Exception):
    """The provider raised: the record could not be parsed."""


class JavaPeer(Process):
    """One Java writer."""

    def __init__(self, world: World, index: int, clock: VirtualClock) -> None:
        """Create the owner."""
        super().__init__(world, index, clock)
        self._owner = f"java-{index}"
        self._held: tuple[str, LockRecord] | None = None
        self._renewing = False

    @property
    def name(self) -> str:
        """The peer in the trace."""
        return self._owner

    def perform(self, request: Any) -> Any:
        """Perform a request; an exception of the store is an unknown error in Java."""
        store, landings = self.world.store, self.world.history.landings
        before = len(landings)
        try:
            if isinstance(request, JavaGet):
                return store.get(LOCK_KEY)
            store.author, store.record, store.sent = self._owner, request.record, None
            reply = store.put(LOCK_KEY, _encoded(request.record), request.mode)
        except TidelockError as error:
            return error
        if len(landings) > before and not request.record.expired:
            replaced = landings[-1].replaced
            if replaced is None or replaced.expired or replaced.owner != self._owner:
                self._took_over()
        return reply

    def _took_over(self) -> None:
        """Record the clients that believe they hold the lock when Java takes it: none may."""
        world = self.world
        world.fire(Fault.JAVA, "grant")
        world.record_believers(self.index, len(world.history.landings) - 1)

    def script(self) -> ThreadBody:
        """Lock, work, unlock."""
        world = self.world
        validity_ms = world.plan.lease.validity_ms
        try:
            while not world.healed:
                yield SessionPause(world.random() * validity_ms)
                taken = yield from self._try_lock()
                if not taken:
                    yield SessionPause(_POLL_MS)
                    continue
                self._renewing = True
                self.start("heartbeat", self._heartbeat())
                yield SessionPause(world.random() * validity_ms)
                self._renewing = False
                yield from self._unlock()
        except JavaError:
            return

    def _try_lock(self) -> ThreadBody:
        found = yield JavaGet()
        if isinstance(found, TidelockError):
            return False
        mode: PutMode = Create()
        if found is not None:
            record = _decoded(found)
            now_ms = self.clock.now().wall_epoch_ms
            if not record.expired and now_ms <= record.valid_until_epoch_ms + _DRIFT_MS:
                return False
            mode = Match(found.version)
        return (yield from self._put(mode, expired=False))

    def _put(self, mode: PutMode, *, expired: bool) -> ThreadBody:
        now_ms = self.clock.now().wall_epoch_ms
        until_ms = now_ms + self.world.plan.lease.validity_ms
        if expired and self._held is not None:
            until_ms = self._held[1].valid_until_epoch_ms
        record = LockRecord(expired=expired, valid_until_epoch_ms=until_ms, owner=self._owner)
        reply: PutReply | TidelockError = yield JavaPut(record, mode)
        if isinstance(reply, Landed):
            self._held = None if expired else (reply.version, record)
            return True
        return reply if expired else False

    def _heartbeat(self) -> ThreadBody:
        """Renew at a fixed rate; only a refusal stops it."""
        while True:
            yield SessionPause(self.world.plan.lease.renew_ms)
            held = self._held
            if not self._renewing or held is None:
                return
            yield from self._put(Match(held[0]), expired=False)

    def _unlock(self) -> ThreadBody:
        for pause_ms in (*_UNLOCK_PAUSES_MS, None):
            if self._held is None:
                return
            reply = yield from self._put(Match(self._held[0]), expired=True)
            if not isinstance(reply, Busy) or pause_ms is None:
                if reply is not True and isinstance(reply, Refused):
                    self._held = None
                return
            yield SessionPause(pause_ms)


def _encoded(record: LockRecord) -> bytes:
    return json.dumps(
        {
            "expired": record.expired,
            "validUntil": record.valid_until_epoch_ms,
            "owner": record.owner,
        },
        separators=(",", ":"),
    ).encode()


def _decoded(found: StoredObject) -> LockRecord:
    """Parse as Jackson does: three required fields, the rest ignored."""
    try:
        fields = json.loads(found.body)
        return LockRecord(fields["expired"], fields["validUntil"], fields["owner"])
    except (ValueError, KeyError, TypeError) as error:
        raise JavaError from error
