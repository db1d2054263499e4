"""An operator's hands on the record: the commands of the product, an editor, a slip of the mouse.

Bounded: a few times in a schedule. The token counter is never deleted, since nothing else
remembers the tokens of a record that is gone too.
"""

from __future__ import annotations

from dataclasses import replace

from tidelock.base.errors import RecordFromFuture
from tidelock.base.ids import SeededIds
from tidelock.base.limits import RECORD_BYTES_MAX, RECORD_FORMAT
from tidelock.lock.force import Operator
from tidelock.lock.inspect import inspect_counter, inspect_lock
from tidelock.lock.objects import LOCK_KEY, TOKENS_KEY
from tidelock.lock.record import Record, encode
from tidelock.store.readback import Patience
from tidelock.testing.sim.plan import Fault
from tidelock.testing.sim.world import World

_STRIKES_MAX = 4


class OperatorHands:
    """Forces, edits, deletes, spoils and mends."""

    def __init__(self, world: World) -> None:
        """Touch nothing yet."""
        self._world = world
        self._clock = world.clock()
        patience = Patience(clock=self._clock, ids=SeededIds(world.plan.seed))
        self._product = Operator(world.store, patience, owner="operator")
        self._strikes = 0
        self._last_good: Record | None = None

    def strike(self, fault: Fault) -> None:
        """Do what `fault` says, if there is something to do it to."""
        world, store = self._world, self._world.store
        if self._strikes == _STRIKES_MAX or store.garbage or store.counter_garbage:
            return
        record = store.current
        if record is None and fault is not Fault.GARBAGE:
            return
        if fault is Fault.FORCED and record is not None and record.expired:
            return
        self._strikes += 1
        self._last_good = record or self._last_good
        world.fire(fault, "live" if record is not None and not record.expired else "free")
        if world.trace is not None:
            world.say("operator", f"{fault.value}: {record}")
        if fault is Fault.GARBAGE:
            key = TOKENS_KEY if world.random() < 0.2 else LOCK_KEY
            store.meddle(key, self._garbage(record))
            after_ms = world.random() * 2 * world.plan.lease.validity_ms
            world.at(world.now + after_ms, self._mend, None)
        elif fault is Fault.DELETED:
            store.meddle(LOCK_KEY, None)
        elif fault is Fault.FORCED:
            store.hand_over()
            self._product.force_release(inspect_lock(store, world.plan.lease, self._clock))
        elif record is not None:
            self._edit(record)

    def _edit(self, record: Record) -> None:
        """Release with an editor, which may keep the fields it does not know, or drop them."""
        if self._world.random() < 0.5:
            edited = replace(record, expired=True)
        else:
            edited = Record(
                expired=True, valid_until_epoch_ms=record.valid_until_epoch_ms, owner=record.owner
            )
        self._world.store.meddle(LOCK_KEY, encode(edited))

    def _garbage(self, record: Record | None) -> bytes:
        """F12: torn, foreign, oversized, or from the future."""
        whole = encode(record) if record else b'{"expired":false}'
        return self._world.rng.choice(
            (
                b"",
                whole[: len(whole) // 2],
                whole + whole,
                b"garbage",
                b'{"expired":"no","validUntil":1,"owner":"x"}',
                b" " * (RECORD_BYTES_MAX + 1),
                b'{"expired":true,"validUntil":1,"owner":"x","format":%d}' % (RECORD_FORMAT + 1),
            )
        )

    def _mend(self, _: None, __: None) -> None:
        self.mend()

    def mend(self) -> None:
        """Put something readable in the place of garbage."""
        world, store = self._world, self._world.store
        if world.trace is not None and (store.garbage or store.counter_garbage):
            world.say("operator", "mends")
        if store.counter_garbage:
            store.hand_over()
            seen = inspect_lock(store, world.plan.lease, self._clock)
            self._product.mend_counter(seen, inspect_counter(store))
        if not store.garbage:
            return
        drawn = world.random()
        store.hand_over()
        seen = inspect_lock(store, world.plan.lease, self._clock)
        if drawn < 0.4 and not isinstance(seen.problem, RecordFromFuture):
            self._product.mend_record(seen, inspect_counter(store))
        elif drawn < 0.7 and self._last_good is not None:
            self._edit(self._last_good)
        elif drawn < 0.85 and Fault.STALE not in world.plan.faults:
            store.meddle(LOCK_KEY, None)
        else:
            store.meddle(LOCK_KEY, b'{"expired":true,"validUntil":1,"owner":"operator"}')
