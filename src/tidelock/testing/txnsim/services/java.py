"""Somebody without a ledger beside the others: plans, executes compactions, takes attempts back.

It stands for Apache Hudi's Java services. What they do under the table's lock happens here in one
go. It is as careful as they are and no more: it looks at heartbeats before it begins, and at
nothing when it completes. Where that cannot be safe with any ledger (clocks that differ, requests
that land after their sender's lock is another's), it plans and does not execute.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelock.table.naming import WriteToken, base_name, data_file
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Action, format_time, parse_time
from tidelock.table.timeline.metadata import CommitMetadata, RollbackMetadata, WriteStat
from tidelock.testing.txnsim.plan import Fault
from tidelock.testing.txnsim.services.planning import Service, record_of
from tidelock.testing.txnsim.services.truth import Slice, Truth, Waiting, slice_rows
from tidelock.testing.txnsim.services.watching import WatchedStore
from tidelock.testing.txnsim.witness import PARTITION
from tidelock.testing.txnsim.world import Process, World
from tidelock.txn.heartbeat import heartbeat_key

_LOOK_EVERY_MS: Final = 40.0
_SKEW_MS: Final = 4.0
_UNSAFE: Final = frozenset({Fault.CLOCK, Fault.DELAYED})
_STAGES: Final = (0, 17)
"""Numbers in the names of its files: also larger ones than that of any attempt of ours."""


@dataclass(slots=True)
class Mutex:
    """The lock of the table, which all of them take; it is free when its holder is dead."""

    world: World
    holder: Process | None = None
    died_ms: float = 0.0

    def take(self, process: Process) -> bool:
        """Take it if it is free. What a holder that died has sent arrives before."""
        if self.holder is not None and self.holder.alive:
            self.died_ms = self.world.now
            return False
        if self.world.now < self.died_ms + 4 * self.world.plan.latency_ms:
            return False
        self.holder = process
        return True


@dataclass(slots=True)
class Hand:
    """One process's hand on the lock; implements what `tidelock.txn.locking` asks of a provider."""

    mutex: Mutex
    process: Process

    def try_lock(self, wait_ms: float) -> bool:
        """Wait for the lock."""
        ends_ms = self.process.world.now + wait_ms
        while not self.mutex.take(self.process):
            if self.process.world.now >= ends_ms:
                return False
            self.process.sleep_ms(_LOOK_EVERY_MS)
        return True

    def check(self) -> int:
        """It has no tokens, and does not run out."""
        return 0

    def unlock(self) -> None:
        """Give it back."""
        if self.mutex.holder is self.process:
            self.mutex.holder, self.mutex.died_ms = None, 0.0

    def close(self) -> None:
        """Hold on to nothing."""


class Java(Process):
    """A process that knows no ledger."""

    def __init__(self, world: World, name: str, store: WatchedStore, mutex: Mutex) -> None:
        """Stand still until it is started."""
        super().__init__(world, name, offset_ms=0.0)
        self.store = store
        self.truth: Truth = store.truth
        self.hand = Hand(mutex, self)
        self.steady = True
        self.executes = not _UNSAFE & set(world.plan.faults)

    def serve(self) -> None:
        """Go on for a few turns."""
        for _ in range(self.world.rng.choice((4, 6, 10))):
            self.sleep_ms(100.0 + 500.0 * self.world.random())
            drawn = self.world.random()
            if drawn < 0.4:
                self._locked(self.plan)
            elif drawn < 0.7 and self.executes:
                self.execute()
            else:
                self._locked(self.take_back)
        self.idle = True

    def _locked(self, act: Callable[[], None]) -> None:
        if self.hand.try_lock(5_000.0):
            act()
            self._let_go()

    def _let_go(self) -> None:
        """Give the lock back when the time that was taken under it has passed for everybody."""
        self.sleep_ms(_SKEW_MS)
        self.hand.unlock()

    # Planning

    def plan(self) -> None:
        """Put a plan on the timeline, of what the timeline shows."""
        truth = self.truth
        if any(i in truth.published and i not in truth.position for i in truth.java):
            return  # the truth is told by the ledger, which does not know yet what Java did
        state = truth.state(self._shown())
        busy = {g for plan in truth.plans.values() for g in plan.inputs}
        busy |= {g for i in self.store.java_pending() for g in truth.java[i].inputs}
        service = Service.COMPACTION if self.world.random() < 0.7 else Service.CLUSTERING
        free = [g for g in sorted(state) if g not in busy]
        if service is Service.COMPACTION:
            free = [g for g in free if state[g].logs]
        if not free:
            return
        chosen = self.world.rng.sample(free, min(len(free), self.world.rng.choice((1, 2))))
        inputs = {group: state[group] for group in sorted(chosen)}
        instant = self._time()
        truth.java[instant] = Waiting(service.action, service is Service.CLUSTERING, inputs)
        body = encode(record_of(service, inputs, self.store.uri))
        self.store.put_foreign(f"{TIMELINE_FOLDER}/{instant}.{service.action}.requested", body)

    def _shown(self) -> int:
        """Return up to which entry the timeline shows the table."""
        hidden = [at for i, at in self.truth.position.items() if i not in self.truth.published]
        return min(hidden) - 1 if hidden else len(self.truth.ledger)

    def _time(self) -> str:
        """Return a time that nobody has, later than all there is."""
        truth = self.truth
        last = truth.ledger[-1].time if truth.ledger else "0"
        time = max(format_time(self.world.wall()), last)
        taken = {*truth.begun, *truth.plans, *truth.java, *truth.position, last}
        while time in taken or self.store.peek(heartbeat_key(time)) is not None:
            time = format_time(parse_time(time) + 1)
        return time

    # Executing

    def execute(self) -> None:
        """Carry out a compaction of anybody's, unless a heart beats; sometimes die over it."""
        if not self.hand.try_lock(5_000.0):
            return
        found = self._executable()
        if found is None:
            self.hand.unlock()
            return
        instant, plan = found
        if self.store.peek(self._key(instant, "inflight")) is not None:
            self._remove(instant, plan_too=False)
        self.store.delete_foreign(heartbeat_key(instant))
        self.store.put_foreign(heartbeat_key(instant), b"")
        self.store.put_foreign(self._key(instant, "inflight"), b"")
        self._let_go()
        began_ms = self.world.now
        self.sleep_ms(self.life_ms * 0.2 * self.world.random())
        self._write(instant, plan)
        if self.world.random() < 0.3:
            self.world.say(self.name, f"dies over {instant}")
            return
        if self.hand.try_lock(self.life_ms * 0.5):
            if self.world.now - began_ms < self.life_ms * 0.8:
                self._complete(instant, plan)
            self._let_go()

    def _executable(self) -> tuple[str, Waiting] | None:
        for instant, plan in self._pending():
            shown = self.store.peek(self._key(instant, "requested")) is not None
            compacts = plan.action is Action.COMPACTION and shown
            if compacts and not self._is_alive(instant) and self._is_whole(instant, plan):
                return instant, plan
        return None

    def _pending(self) -> list[tuple[str, Waiting]]:
        """Return the plans that the timeline shows as pending, anybody's, oldest first."""
        truth = self.truth
        found = {i: truth.java[i] for i in self.store.java_pending()} | truth.plans
        return [(i, found[i]) for i in sorted(found) if i not in truth.published]

    def _is_whole(self, instant: str, plan: Waiting) -> bool:
        """Tell whether a plan has all that lies below it: whoever died had not published all."""
        done = {commit.instant: entry.time for entry, commit in self.truth.commits}
        state = self.truth.state()
        for group, piece in plan.inputs.items():
            now = state.get(group, Slice(""))
            late = [data_file(PARTITION, log.rpartition("/")[2], 0) for log in now.logs]
            below = {f.name for f in late if f is not None and done.get(f.instant, "") < instant}
            if now.base != piece.base or below != {log.rpartition("/")[2] for log in piece.logs}:
                return False
        return True

    def _write(self, instant: str, plan: Waiting) -> None:
        files: dict[str, str] = {}
        stage = self.world.rng.choice(_STAGES)
        for slot, (group, piece) in enumerate(sorted(plan.inputs.items())):
            rows = slice_rows(piece, self.store.body)
            if isinstance(rows, str):
                self.truth.broken.append(f"S3: {rows}, and the plan {instant} reads it")
                return
            name = base_name(group, WriteToken(slot, stage, 0), instant)
            files[group] = f"{PARTITION}/{name}"
            self.store.put_foreign(files[group], json.dumps(rows).encode())
        self.truth.written[instant, 0] = files

    def _complete(self, instant: str, plan: Waiting) -> None:
        files = self.truth.written[instant, 0]
        stats = tuple(
            WriteStat(file_id=group, path=key, partition_path=PARTITION, prev_commit="1")
            for group, key in sorted(files.items())
        )
        record = CommitMetadata({PARTITION: stats}, compacted=True, operation_type="COMPACT")
        self.truth.published.add(instant)
        self.truth.java.setdefault(instant, plan)
        key = f"{TIMELINE_FOLDER}/{instant}_{self._time()}.commit"
        self.store.put_foreign(key, encode(record))
        self.store.delete_foreign(heartbeat_key(instant))
        self.truth.services += 1

    # Taking back

    def take_back(self) -> None:
        """Undo an attempt whose heart does not beat, or a clustering that nobody executes."""
        for instant, plan in self._pending():
            begun = self.store.peek(self._key(instant, "inflight")) is not None
            shown = self.store.peek(self._key(instant, "requested")) is not None
            clusters = plan.action is Action.CLUSTERING
            if not plan.inputs or not shown or self._is_alive(instant):
                continue
            if begun or clusters:
                self._remove(instant, plan_too=clusters)
                return

    def _remove(self, instant: str, *, plan_too: bool) -> None:
        for key in self.store.all_keys():
            file = data_file(PARTITION, key.rpartition("/")[2], 0)
            if key.startswith(f"{PARTITION}/") and file is not None and file.instant == instant:
                self.store.delete_foreign(key)
        for state in ("inflight", "requested") if plan_too else ("inflight",):
            self.store.delete_foreign(self._key(instant, state))
        if plan_too:
            self.store.delete_foreign(heartbeat_key(instant))
        begun = self._time()
        record = RollbackMetadata(begun, 1, 0, (instant,))
        self.truth.published.add(begun)
        self.truth.java[begun] = Waiting(Action.ROLLBACK, removable=False, inputs={})
        done = format_time(parse_time(begun) + 1)
        self.store.put_foreign(f"{TIMELINE_FOLDER}/{begun}_{done}.rollback", encode(record))

    def _is_alive(self, instant: str) -> bool:
        found = self.store.peek(heartbeat_key(instant))
        return found is not None and self.world.wall() - found.modified_epoch_ms <= 2 * self.life_ms

    def _key(self, instant: str, state: str) -> str:
        plan = self.truth.plans.get(instant) or self.truth.java[instant]
        return f"{TIMELINE_FOLDER}/{instant}.{plan.action}.{state}"
