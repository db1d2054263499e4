"""Operator actions on the lock objects: admin commands, manual edits, deletions, damage.

At most a few in a schedule. The token counter is never deleted, because nothing else stores the
tokens of a record that is deleted as well.
"""

from __future__ import annotations

from dataclasses import replace

from testkit.sim.plan import Fault
from testkit.sim.world import World
from tidelock.core.errors import RecordFromFuture
from tidelock.core.limits import RECORD_BYTES_MAX, RECORD_FORMAT
from tidelock.core.system import SeededIds
from tidelock.lock.admin import Operator, inspect_counter, inspect_lock
from tidelock.lock.record import LockRecord, encode
from tidelock.lock.record_store import LOCK_KEY, TOKENS_KEY
from tidelock.storage.conditional import ReadbackPolicy

_FAULTS_MAX = 4


class OperatorFaults:
    """Forces, edits, deletes, damages and repairs the lock objects."""

    def __init__(self, world: World) -> None:
        """Do nothing yet."""
        self._world = world
        self._clock = world.clock()
        policy = ReadbackPolicy(clock=self._clock, ids=SeededIds(world.plan.seed))
        self._admin = Operator(world.store, policy, owner="operator")
        self._injected = 0
        self._last_good: LockRecord | None = None

    def inject(self, fault: Fault) -> None:
        """Apply `fault`, if it is possible."""
        world, store = self._world, self._world.store
        if self._injected == _FAULTS_MAX or store.garbage or store.counter_garbage:
            return
        record = store.current
        if record is None and fault is not Fault.GARBAGE:
            return
        if fault is Fault.FORCED and record is not None and record.expired:
            return
        self._injected += 1
        self._last_good = record or self._last_good
        world.fire(fault, "live" if record is not None and not record.expired else "free")
        if world.trace is not None:
            world.log("operator", f"{fault.value}: {record}")
        if fault is Fault.GARBAGE:
            key = TOKENS_KEY if world.random() < 0.2 else LOCK_KEY
            store.write_as_operator(key, self._garbage(record))
            after_ms = world.random() * 2 * world.plan.lease.validity_ms
            world.at(world.now + after_ms, self._repair, None)
        elif fault is Fault.DELETED:
            store.write_as_operator(LOCK_KEY, None)
        elif fault is Fault.FORCED:
            store.act_as_operator()
            self._admin.force_release(inspect_lock(store, world.plan.lease, self._clock))
        elif record is not None:
            self._edit(record)

    def _edit(self, record: LockRecord) -> None:
        """Release by an edit, which may keep or drop unknown fields."""
        if self._world.random() < 0.5:
            edited = replace(record, expired=True)
        else:
            edited = LockRecord(
                expired=True, valid_until_epoch_ms=record.valid_until_epoch_ms, owner=record.owner
            )
        self._world.store.write_as_operator(LOCK_KEY, encode(edited))

    def _garbage(self, record: LockRecord | None) -> bytes:
        """F12: truncated, foreign, oversized, or from a newer version."""
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

    def _repair(self, _: None, __: None) -> None:
        self.repair()

    def repair(self) -> None:
        """Replace garbage with something readable."""
        world, store = self._world, self._world.store
        if world.trace is not None and (store.garbage or store.counter_garbage):
            world.log("operator", "repairs")
        if store.counter_garbage:
            store.act_as_operator()
            seen = inspect_lock(store, world.plan.lease, self._clock)
            self._admin.repair_counter(seen, inspect_counter(store))
        if not store.garbage:
            return
        drawn = world.random()
        store.act_as_operator()
        seen = inspect_lock(store, world.plan.lease, self._clock)
        if drawn < 0.4 and not isinstance(seen.problem, RecordFromFuture):
            self._admin.repair_record(seen, inspect_counter(store))
        elif drawn < 0.7 and self._last_good is not None:
            self._edit(self._last_good)
        elif drawn < 0.85 and Fault.STALE not in world.plan.faults:
            store.write_as_operator(LOCK_KEY, None)
        else:
            store.write_as_operator(LOCK_KEY, b'{"expired":true,"validUntil":1,"owner":"operator"}')
