"""`tidelock lock demo`: programs contend for one lock; one is killed, another suspended."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tidelock.core.clock import Clock
from tidelock.core.errors import TidelockError
from tidelock.lock.admin import Condition, Inspection, inspect_lock
from tidelock.lock.lease import Lease
from tidelock.storage.local import LocalStore
from tidelock.workload.demo import DemoRun
from tidelock.workload.journal import ProgramEvent
from tidelock.workload.lock_program import (
    SHORTEST_LEASE,
    FencedCounter,
    LockEvent,
    LockFleetSpec,
    LockPool,
    LockRole,
    PlainCounter,
)
from tidelock.workload.oracle import check_lock
from tidelock.workload.report import DemoReport
from tidelock.workload.screen import RIGHT, Scene, Screen, grid, labeled

NAMES: Final = ("ada", "ben", "cleo", "dan", "eve")


@dataclass(frozen=True, slots=True)
class LockDemoPlan:
    """A demo of at least `seconds` in all, with `phase_s` of contention after each fault."""

    names: tuple[str, ...] = NAMES
    lease: Lease = SHORTEST_LEASE
    seconds: float = 36.0
    warm_up_s: float = 4.0
    phase_s: float = 3.0

    @property
    def takeover_ms_max(self) -> int:
        """The longest time from a fault to the takeover, on a busy machine."""
        lease = self.lease
        return lease.validity_ms + lease.drift_ms + lease.grace_ms + 60_000


@dataclass(slots=True)
class ContenderState:
    """One contender as shown on the screen."""

    name: str
    pid: int
    activity: str = "starting"
    token: int = 0
    grants: int = 0
    refused: int = 0
    handovers_ms: list[int] = field(default_factory=list)
    killed: bool = False
    suspended: bool = False


_BAR_WIDTH: Final = 12
_ACTIVITIES: Final[Mapping[str, str]] = {
    LockEvent.WAITING: "waits",
    LockEvent.GRANTED: "holds the lock",
    LockEvent.BELIEVES: "holds the lock",
    LockEvent.LOST: "LOST, detected by check()",
    LockEvent.RELEASED: "pauses",
    LockEvent.ENDED: "done",
}
_STYLES: Final = {
    Condition.FREE: "green",
    Condition.HELD: "bold cyan",
    Condition.LAPSED: "yellow",
    Condition.DEAD: "bold yellow",
    Condition.UNREADABLE: "bold red",
}


@dataclass(slots=True)
class LockScene(Scene):
    """The contenders, their journals, the lock and the two counters."""

    title: ClassVar[str] = "tidelock lock demo"
    summary_every_s: ClassVar[float] = 5.0
    lines_above_log: ClassVar[int] = 18
    log_shown_max: ClassVar[int] = 10

    lease: Lease = SHORTEST_LEASE
    contenders: dict[str, ContenderState] = field(default_factory=dict)
    events: list[ProgramEvent] = field(default_factory=list)
    fenced_value: int = 0
    plain_value: int = 0
    lock: Inspection | None = None
    _released: tuple[int, str] | None = None

    def add_event(self, event: ProgramEvent) -> None:
        self.events.append(event)
        contender, token = self.contenders[event.name], event.facts.get("token", 0)
        contender.activity = _ACTIVITIES.get(event.kind, contender.activity)
        match event.kind:
            case LockEvent.GRANTED:
                contender.grants += 1
                contender.token = token
                if self._released is not None and self._released[1] != event.name:
                    contender.handovers_ms.append(max(0, event.at_ms - self._released[0]))
                self._released = None
            case LockEvent.LOST:
                self.add_log(event.at_ms, f"{event.name} checks its lock: LOST", "yellow")
            case LockEvent.REFUSED:
                contender.refused += 1
                message = f"{event.name} writes late with token {token}: REFUSED,"
                seen = f"the counter has seen token {event.facts['says']}"
                self.add_log(event.at_ms, f"{message} {seen}", "bold green")
            case LockEvent.RELEASING:
                self._released = (event.at_ms, event.name)
            case LockEvent.FAILED:
                self.add_log(event.at_ms, f"{event.name} failed: {event.facts['says']}", "red")
            case _:
                pass

    def is_inside(self, name: str) -> bool:
        """Return whether the last event of a contender is inside its critical section."""
        last = next((event for event in reversed(self.events) if event.name == name), None)
        return last is not None and last.kind == LockEvent.BELIEVES

    def grants(self) -> list[ProgramEvent]:
        """Return every grant so far, in the order in which they were read."""
        return [event for event in self.events if event.kind == LockEvent.GRANTED]

    def count(self, kind: LockEvent, name: str = "") -> int:
        """Return the number of events of a kind, of all contenders or of one."""
        return sum(e.kind == kind and name in ("", e.name) for e in self.events)

    def summary(self) -> str:
        """Return the number of grants of each contender."""
        return "grants: " + ", ".join(f"{w.name} {w.grants}" for w in self.contenders.values())

    def body(self, now_ms: int) -> list[RenderableType]:
        """Return the lock, the contenders, the counters and the handovers."""
        del now_ms
        lines = [*self._counters(), self._handovers()]
        return [self._lock_line(), Text(), self._contender_table(), Text(), *lines]

    def _lock_line(self) -> Text:
        seen = self.lock
        if seen is None or seen.record is None:
            return Text("lock   not acquired yet")
        record, style = seen.record, _STYLES[seen.condition]
        state = (f"{seen.condition.value:<7}", style)
        line = Text.assemble("lock   ", state, f" token {record.token}")
        holder = next((w for w in self.contenders.values() if w.token == record.token), None)
        if record.expired or holder is None:
            return line
        left_ms = max(0, seen.takeover_in_ms or 0)
        whole_ms = self.lease.validity_ms + self.lease.drift_ms + self.lease.grace_ms
        filled = round(_BAR_WIDTH * min(1.0, left_ms / whole_ms))
        lease_ms = max(0, seen.expires_in_ms or 0)
        line.append(f"  {holder.name:<5} ", "bold")
        line.append("━" * filled, style)
        line.append("·" * (_BAR_WIDTH - filled), "dim")
        line.append(f"  lease {lease_ms / 1000:.1f} s, takeover in {left_ms / 1000:.1f} s")
        return line

    def _contender_table(self) -> Table:
        counts = dict.fromkeys(("grants", "token", "handover", "refused"), RIGHT)
        table = grid(writer={}, pid=RIGHT, now={"min_width": 18}, **counts)
        for each in self.contenders.values():
            last = f"{each.handovers_ms[-1]} ms" if each.handovers_ms else ""
            refused = Text(str(each.refused or ""), style="bold green")
            row = (each.name, str(each.pid), _activity(each), str(each.grants))
            table.add_row(*row, str(each.token or ""), last, refused)
        return table

    def _counters(self) -> list[Text]:
        wrote, refused = self.count(LockEvent.WROTE), self.count(LockEvent.REFUSED)
        plural = "write" if refused == 1 else "writes"
        fenced = f"{self.fenced_value} of {wrote} increments"
        wrote_plain = self.count(LockEvent.WROTE_PLAIN)
        lost = max(0, wrote_plain - self.plain_value) if refused else 0
        plain = labeled(16, "plain counter", f"{wrote_plain - lost} of {wrote_plain} increments")
        if lost:
            plain.append(f", {lost} overwritten by the late writer", "bold red")
        return [
            labeled(16, "fenced counter", f"{fenced}, {refused} stale {plural} refused by token"),
            plain,
            labeled(16, "faults injected", str(len(self.faults)), "red" if self.faults else ""),
        ]

    def _handovers(self) -> Text:
        times_ms = [ms for each in self.contenders.values() for ms in each.handovers_ms]
        if not times_ms:
            return labeled(16, "handovers", "none yet", "dim")
        median = statistics.median(times_ms)
        count = f"{len(times_ms)}, median {median:.0f} ms, longest {max(times_ms)} ms"
        return labeled(16, "handovers", count)


def _activity(contender: ContenderState) -> Text:
    if contender.killed:
        return Text("killed (SIGKILL)", style="bold red")
    if contender.suspended:
        return Text("suspended (SIGSTOP)", style="bold red")
    style = "bold cyan" if contender.activity == "holds the lock" else "dim"
    lost = contender.activity.startswith("LOST")
    return Text(contender.activity, style="yellow" if lost else style)


_INTERVAL_MS: Final = 30
_START_MS_MAX: Final = 120_000
_END_MS_MAX: Final = 60_000


class LockDemo(DemoRun[LockFleetSpec, LockRole]):
    """Runs the demo: a holder is killed, another suspended past its lease, journals are checked."""

    def __init__(self, plan: LockDemoPlan, pool: LockPool, screen: Screen, clock: Clock) -> None:
        self._scene = LockScene(clock.now().monotonic_ms, lease=plan.lease)
        super().__init__(pool, self._scene, screen, clock, interval_ms=_INTERVAL_MS)
        self._plan = plan
        self._store = LocalStore(pool.folder / "table")
        counters = LocalStore(pool.folder / "counters", fsync=False)
        self._fenced, self._plain = FencedCounter(counters), PlainCounter(counters)

    def run(self) -> DemoReport:
        """Run the whole demo and check the result."""
        plan, scene = self._plan, self._scene
        scene.phase = "writers start"
        for name in plan.names:
            program = self.pool.start(name, LockRole.CONTENDER)
            scene.contenders[name] = ContenderState(name, program.process.pid)
        started = self._poller.until(lambda: len(scene.grants()) >= 3, _START_MS_MAX)
        self._check(started, "the writers started and acquired the lock in turn")
        if started:
            self._contend(plan.warm_up_s)
            self._kill_a_holder()
            self._contend(plan.phase_s)
            self._suspend_a_holder()
            spent_s = (self._now_ms() - scene.began_ms) / 1000
            self._contend(max(plan.phase_s, plan.seconds - spent_s))
        self._finish()
        return self._report()

    def _contend(self, duration_s: float) -> None:
        self._scene.phase = "writers contend"
        self._poller.for_seconds(duration_s)

    def _kill_a_holder(self) -> None:
        self._scene.phase = "a holder is killed"
        name = self._suspended_holder()
        if name is None:
            return
        self.pool.kill(name)
        self._scene.contenders[name].killed = True
        self._fault(f"SIGKILL to {name} inside its critical section")
        taken_over = self._wait_for_takeover(name)
        self._check(
            taken_over, f"another writer took over after the lease of {name}, which was killed"
        )

    def _suspend_a_holder(self) -> None:
        self._scene.phase = "a holder is suspended past its lease"
        name = self._suspended_holder()
        if name is None:
            return
        contender, scene = self._scene.contenders[name], self._scene
        contender.suspended = True
        self._fault(f"SIGSTOP to {name} inside its critical section")
        taken_over = self._wait_for_takeover(name)
        # Two more increments, so that the value which the suspended writer will write is stale.
        wrote = scene.count(LockEvent.WROTE)
        stale = taken_over and self._poller.until(
            lambda: scene.count(LockEvent.WROTE) >= wrote + 2, self._plan.takeover_ms_max
        )
        contender.suspended = False
        scene.phase = "the suspended writer resumes"
        self.pool.resume(name)
        self._log(f"SIGCONT to {name}: it continues its write", "red")
        refused = stale and self._poller.until(
            lambda: scene.count(LockEvent.REFUSED, name) > 0, self._plan.takeover_ms_max
        )
        lost = scene.count(LockEvent.LOST, name) > 0
        message = f"{name}, suspended past its lease, saw LOST and its late write was refused"
        self._check(refused and lost, message)

    def _suspended_holder(self) -> str | None:
        """Suspend a contender between its reads and its writes; return its name."""

        def confirm(name: str) -> bool | None:
            self._read_journals()
            return self._scene.is_inside(name) or None

        names, timeout_ms = self._plan.names, self._plan.takeover_ms_max
        caught = self._suspend_inside(names, self._scene.is_inside, confirm, timeout_ms)
        if caught is None:
            self._check(passed=False, message="no holder was inside its critical section")
            return None
        return caught[0]

    def _wait_for_takeover(self, name: str) -> bool:
        """Wait until another contender is granted the lock."""
        began_ms, grants = self._now_ms(), len(self._scene.grants())
        self._scene.phase = f"{name} is gone, its lease expires"
        if not self._poller.until(
            lambda: len(self._scene.grants()) > grants, self._plan.takeover_ms_max
        ):
            return False
        grant = self._scene.grants()[grants]
        took_s = (grant.at_ms - began_ms) / 1000
        message = f"{grant.name} takes over with token {grant.facts['token']} after {took_s:.1f} s"
        self._scene.add_log(grant.at_ms, message, "bold cyan")
        return True

    def _finish(self) -> None:
        self._scene.phase = "writers stop"
        alive = [name for name in self._plan.names if not self._scene.contenders[name].killed]
        running = self._stop_programs(alive, _END_MS_MAX)
        codes = [self.pool.programs[name].process.poll() for name in alive]
        self._check(not running and not any(codes), "every other writer ended without an error")
        self._poll()

    def _report(self) -> DemoReport:
        fenced = self._fenced.value()
        self.checks.extend(check_lock(self._scene.events, fenced=fenced))
        figures = {
            "grants": len(self._scene.grants()),
            "fenced": fenced,
            "unfenced": self._plain.read(),
            "unfenced_acknowledged": self._scene.count(LockEvent.WROTE_PLAIN),
        }
        return DemoReport(checks=self.checks, figures=figures, faults=self._scene.faults)

    def _observe(self) -> None:
        scene = self._scene
        scene.fenced_value, scene.plain_value = self._fenced.value(), self._plain.read()
        try:
            scene.lock = inspect_lock(self._store, self._plan.lease, self.clock)
        except TidelockError:
            scene.lock = None
