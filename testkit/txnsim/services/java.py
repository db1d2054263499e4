"""A simulated external writer: schedules, executes compactions, rolls back attempts.

It models Apache Hudi's Java services. Their actions under the table's lock are one step here. Like
them, it checks heartbeats before it starts, and nothing when it completes. Where that cannot be
safe with any ledger (clock differences, requests that land after the sender lost its lock), it
schedules and does not execute.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from testkit.txnsim.checked_store import PARTITION
from testkit.txnsim.plan import Fault
from testkit.txnsim.services.checked_store import CheckedServiceStore
from testkit.txnsim.services.planning import Service, record_of
from testkit.txnsim.services.truth import ExpectedPlan, Slice, Truth, slice_rows
from testkit.txnsim.world import Process, World
from tidelock.hudi.file_groups import WriteToken, base_name, data_file
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.instant import Action, format_time, parse_time
from tidelock.hudi.timeline.metadata import CommitMetadata, RollbackMetadata, WriteStat, encode
from tidelock.txn.heartbeats import heartbeat_key

_POLL_EVERY_MS: Final = 40.0
_SKEW_MS: Final = 4.0
_UNSAFE: Final = frozenset({Fault.CLOCK, Fault.DELAYED})
_STAGES: Final = (0, 17)
"""Attempt numbers in its file names, some larger than those of our attempts."""


@dataclass(slots=True)
class Mutex:
    """The table's lock, shared by all; it is free when its holder is dead."""

    world: World
    holder: Process | None = None
    died_ms: float = 0.0

    def take(self, process: Process) -> bool:
        """Take the lock if it is free. Requests of a dead holder arrive before."""
        if self.holder is not None and self.holder.alive:
            self.died_ms = self.world.now
            return False
        if self.world.now < self.died_ms + 4 * self.world.plan.latency_ms:
            return False
        self.holder = process
        return True


@dataclass(slots=True)
class MutexProvider:
    """The lock of one process, a provider as `tidelock.txn.transaction_manager` uses it."""

    mutex: Mutex
    process: Process

    def try_lock(self, wait_ms: float) -> bool:
        """Wait for the lock."""
        ends_ms = self.process.world.now + wait_ms
        while not self.mutex.take(self.process):
            if self.process.world.now >= ends_ms:
                return False
            self.process.sleep_ms(_POLL_EVERY_MS)
        return True

    def check(self) -> int:
        """Return 0: the lock has no tokens and does not expire."""
        return 0

    def unlock(self) -> None:
        """Release the lock."""
        if self.mutex.holder is self.process:
            self.mutex.holder, self.mutex.died_ms = None, 0.0

    def close(self) -> None:
        """Release nothing."""


class Java(Process):
    """A writer that keeps no ledger."""

    def __init__(self, world: World, name: str, store: CheckedServiceStore, mutex: Mutex) -> None:
        """Create the process without starting it."""
        super().__init__(world, name, offset_ms=0.0)
        self.store = store
        self.truth: Truth = store.truth
        self.hand = MutexProvider(mutex, self)
        self.steady = True
        self.executes = not _UNSAFE & set(world.plan.faults)

    def serve(self) -> None:
        """Run a few times."""
        for _ in range(self.world.rng.choice((4, 6, 10))):
            self.sleep_ms(100.0 + 500.0 * self.world.random())
            drawn = self.world.random()
            if drawn < 0.4:
                self._locked(self.plan)
            elif drawn < 0.7 and self.executes:
                self.execute()
            else:
                self._locked(self.roll_back)
        self.idle = True

    def _locked(self, act: Callable[[], None]) -> None:
        if self.hand.try_lock(5_000.0):
            act()
            self._release()

    def _release(self) -> None:
        """Release the lock once the time taken under it has passed on all clocks."""
        self.sleep_ms(_SKEW_MS)
        self.hand.unlock()

    # Planning

    def plan(self) -> None:
        """Schedule a plan for what the timeline shows."""
        truth = self.truth
        if any(i in truth.published and i not in truth.position for i in truth.java):
            return  # the truth follows the ledger, which does not contain Java's work yet
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
        truth.java[instant] = ExpectedPlan(service.action, service is Service.CLUSTERING, inputs)
        body = encode(record_of(service, inputs, self.store.uri))
        self.store.put_external(f"{TIMELINE_FOLDER}/{instant}.{service.action}.requested", body)

    def _shown(self) -> int:
        """Return the entry up to which the timeline shows the table."""
        hidden = [at for i, at in self.truth.position.items() if i not in self.truth.published]
        return min(hidden) - 1 if hidden else len(self.truth.ledger)

    def _time(self) -> str:
        """Return an unused time, later than all others."""
        truth = self.truth
        last = truth.ledger[-1].time if truth.ledger else "0"
        time = max(format_time(self.world.wall()), last)
        taken = {*truth.begun, *truth.plans, *truth.java, *truth.position, last}
        while time in taken or self.store.peek(heartbeat_key(time)) is not None:
            time = format_time(parse_time(time) + 1)
        return time

    # Executing

    def execute(self) -> None:
        """Execute any pending compaction without a fresh heartbeat; sometimes die in between."""
        if not self.hand.try_lock(5_000.0):
            return
        found = self._executable()
        if found is None:
            self.hand.unlock()
            return
        instant, plan = found
        if self.store.peek(self._key(instant, "inflight")) is not None:
            self._remove(instant, plan_too=False)
        self.store.delete_external(heartbeat_key(instant))
        self.store.put_external(heartbeat_key(instant), b"")
        self.store.put_external(self._key(instant, "inflight"), b"")
        self._release()
        began_ms = self.world.now
        self.sleep_ms(self.lifetime_ms * 0.2 * self.world.random())
        self._write(instant, plan)
        if self.world.random() < 0.3:
            self.world.log(self.name, f"dies while it executes {instant}")
            return
        if self.hand.try_lock(self.lifetime_ms * 0.5):
            if self.world.now - began_ms < self.lifetime_ms * 0.8:
                self._complete(instant, plan)
            self._release()

    def _executable(self) -> tuple[str, ExpectedPlan] | None:
        for instant, plan in self._pending():
            shown = self.store.peek(self._key(instant, "requested")) is not None
            compacts = plan.action is Action.COMPACTION and shown
            if compacts and not self._is_alive(instant) and self._is_published_below(instant, plan):
                return instant, plan
        return None

    def _pending(self) -> list[tuple[str, ExpectedPlan]]:
        """Return all pending plans on the timeline, oldest first."""
        truth = self.truth
        found = {i: truth.java[i] for i in self.store.java_pending()} | truth.plans
        return [(i, found[i]) for i in sorted(found) if i not in truth.published]

    def _is_published_below(self, instant: str, plan: ExpectedPlan) -> bool:
        """Return whether all commits below a plan are published; a dead writer may not have done
        so."""
        done = {commit.instant: entry.time for entry, commit in self.truth.commits}
        state = self.truth.state()
        for group, piece in plan.inputs.items():
            now = state.get(group, Slice(""))
            late = [data_file(PARTITION, log.rpartition("/")[2], 0) for log in now.logs]
            below = {f.name for f in late if f is not None and done.get(f.instant, "") < instant}
            if now.base != piece.base or below != {log.rpartition("/")[2] for log in piece.logs}:
                return False
        return True

    def _write(self, instant: str, plan: ExpectedPlan) -> None:
        files: dict[str, str] = {}
        stage = self.world.rng.choice(_STAGES)
        for slot, (group, piece) in enumerate(sorted(plan.inputs.items())):
            rows = slice_rows(piece, self.store.body)
            if isinstance(rows, str):
                self.truth.broken.append(f"S3: {rows}, and the plan {instant} reads it")
                return
            name = base_name(group, WriteToken(slot, stage, 0), instant)
            files[group] = f"{PARTITION}/{name}"
            self.store.put_external(files[group], json.dumps(rows).encode())
        self.truth.written[instant, 0] = files

    def _complete(self, instant: str, plan: ExpectedPlan) -> None:
        files = self.truth.written[instant, 0]
        stats = tuple(
            WriteStat(file_id=group, path=key, partition_path=PARTITION, prev_commit="1")
            for group, key in sorted(files.items())
        )
        record = CommitMetadata({PARTITION: stats}, compacted=True, operation_type="COMPACT")
        self.truth.published.add(instant)
        self.truth.java.setdefault(instant, plan)
        key = f"{TIMELINE_FOLDER}/{instant}_{self._time()}.commit"
        self.store.put_external(key, encode(record))
        self.store.delete_external(heartbeat_key(instant))
        self.truth.services += 1

    # Rolling back

    def roll_back(self) -> None:
        """Roll back an attempt without a fresh heartbeat, or a clustering that is not executed."""
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
                self.store.delete_external(key)
        for state in ("inflight", "requested") if plan_too else ("inflight",):
            self.store.delete_external(self._key(instant, state))
        if plan_too:
            self.store.delete_external(heartbeat_key(instant))
        begun = self._time()
        record = RollbackMetadata(begun, 1, 0, (instant,))
        self.truth.published.add(begun)
        self.truth.java[begun] = ExpectedPlan(Action.ROLLBACK, removable=False, inputs={})
        done = format_time(parse_time(begun) + 1)
        self.store.put_external(f"{TIMELINE_FOLDER}/{begun}_{done}.rollback", encode(record))

    def _is_alive(self, instant: str) -> bool:
        found = self.store.peek(heartbeat_key(instant))
        return (
            found is not None
            and self.world.wall() - found.modified_epoch_ms <= 2 * self.lifetime_ms
        )

    def _key(self, instant: str, state: str) -> str:
        plan = self.truth.plans.get(instant) or self.truth.java[instant]
        return f"{TIMELINE_FOLDER}/{instant}.{plan.action}.{state}"
