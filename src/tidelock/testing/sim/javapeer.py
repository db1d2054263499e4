"""A model of Hudi's Java provider (StorageBasedLockProvider), contending for the same record.

It knows three fields and drops ours when it writes; it takes a record that ended 500 ms ago; it
reads nothing back; it renews at a fixed rate without looking at its own lease; it believes in
itself until `validUntil + 500` by its own clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelock.base.errors import TidelockError
from tidelock.base.outcome import Landed
from tidelock.lock.objects import LOCK_KEY
from tidelock.lock.record import Record
from tidelock.lock.session import Pause
from tidelock.store.contract import Busy, Create, Match, PutMode, PutReply, Refused, StoredObject
from tidelock.testing.sim.clocks import VirtualClock
from tidelock.testing.sim.plan import Fault
from tidelock.testing.sim.process import Body, Process

if TYPE_CHECKING:
    from tidelock.testing.sim.world import World

_DRIFT_MS = 500
_POLL_MS = 1_000
_UNLOCK_PAUSES_MS = (1_000, 2_000, 4_000)


@dataclass(frozen=True, slots=True)
class JavaGet:
    """Read the record."""


@dataclass(frozen=True, slots=True)
class JavaPut:
    """Write the record."""

    record: Record
    mode: PutMode


class JavaFails(Exception):
    """The provider threw: the record could not be parsed."""


class JavaPeer(Process):
    """One Java writer."""

    def __init__(self, world: World, index: int, clock: VirtualClock) -> None:
        """Draw an owner."""
        super().__init__(world, index, clock)
        self._owner = f"java-{index}"
        self._held: tuple[str, Record] | None = None
        self._beating = False

    @property
    def name(self) -> str:
        """The peer, for the trace."""
        return self._owner

    def perform(self, request: Any) -> Any:
        """Carry out a request; an exception of the store is an unknown error to Java."""
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
        """Note who of ours believes while Java takes the lock: nobody may."""
        world = self.world
        world.fire(Fault.JAVA, "grant")
        world.note_believers(self.index, len(world.history.landings) - 1)

    def script(self) -> Body:
        """Lock, work, unlock."""
        world = self.world
        validity_ms = world.plan.lease.validity_ms
        try:
            while not world.healed:
                yield Pause(world.random() * validity_ms)
                taken = yield from self._try_lock()
                if not taken:
                    yield Pause(_POLL_MS)
                    continue
                self._beating = True
                self.start("heartbeat", self._beat())
                yield Pause(world.random() * validity_ms)
                self._beating = False
                yield from self._unlock()
        except JavaFails:
            return

    def _try_lock(self) -> Body:
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

    def _put(self, mode: PutMode, *, expired: bool) -> Body:
        now_ms = self.clock.now().wall_epoch_ms
        until_ms = now_ms + self.world.plan.lease.validity_ms
        if expired and self._held is not None:
            until_ms = self._held[1].valid_until_epoch_ms
        record = Record(expired=expired, valid_until_epoch_ms=until_ms, owner=self._owner)
        reply: PutReply | TidelockError = yield JavaPut(record, mode)
        if isinstance(reply, Landed):
            self._held = None if expired else (reply.version, record)
            return True
        return reply if expired else False

    def _beat(self) -> Body:
        """Renew at a fixed rate; only a refusal stops it."""
        while True:
            yield Pause(self.world.plan.lease.renew_ms)
            held = self._held
            if not self._beating or held is None:
                return
            yield from self._put(Match(held[0]), expired=False)

    def _unlock(self) -> Body:
        for pause_ms in (*_UNLOCK_PAUSES_MS, None):
            if self._held is None:
                return
            reply = yield from self._put(Match(self._held[0]), expired=True)
            if not isinstance(reply, Busy) or pause_ms is None:
                if reply is not True and isinstance(reply, Refused):
                    self._held = None
                return
            yield Pause(pause_ms)


def _encoded(record: Record) -> bytes:
    return json.dumps(
        {
            "expired": record.expired,
            "validUntil": record.valid_until_epoch_ms,
            "owner": record.owner,
        },
        separators=(",", ":"),
    ).encode()


def _decoded(found: StoredObject) -> Record:
    """Parse as Jackson does: three required fields, the rest ignored."""
    try:
        fields = json.loads(found.body)
        return Record(fields["expired"], fields["validUntil"], fields["owner"])
    except (ValueError, KeyError, TypeError) as error:
        raise JavaFails from error
