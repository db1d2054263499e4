"""`tidelock demo`: a fleet writes one table, a writer is killed and restarted, rows are checked.

`DemoRun` is the part that both demos share.
"""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeVar

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tidelock.core.clock import Clock
from tidelock.core.errors import TidelockError
from tidelock.lock.admin import Inspection, inspect_lock
from tidelock.lock.config import LockSettings
from tidelock.services.pending import PendingService, pending_services
from tidelock.storage.uri import open_store
from tidelock.txn import entries as e
from tidelock.txn.writers import entries, writers
from tidelock.workload.fleet import FleetRun, ProcessPool, R, S
from tidelock.workload.journal import FleetRecord, ProgramEvent
from tidelock.workload.oracle import check_table
from tidelock.workload.report import DemoReport
from tidelock.workload.screen import RIGHT, Scene, Screen, grid, labeled
from tidelock.workload.table_program import WRITER_ROLES, Role, TableFleetSpec, TablePool

T = TypeVar("T")


class DemoRun(FleetRun[S, R]):
    """One demo: a fleet, the scene that shows it, and the faults injected into it."""

    def __init__(
        self,
        pool: ProcessPool[S, R],
        scene: Scene,
        screen: Screen,
        clock: Clock,
        *,
        interval_ms: float,
    ) -> None:
        super().__init__(pool, clock, interval_ms=interval_ms)
        self._base_scene = scene
        self._screen = screen

    def _read_journals(self) -> None:
        for event in self.pool.read_journals():
            self._base_scene.add_event(event)

    @abstractmethod
    def _observe(self) -> None:
        """Update the parts of the scene that do not come from journals."""

    def _poll(self) -> None:
        self._read_journals()
        self._observe()
        self._screen.show(self._base_scene, self._now_ms())

    def _log(self, message: str, style: str = "") -> None:
        self._base_scene.add_log(self._now_ms(), message, style)

    def _fault(self, message: str) -> None:
        self._base_scene.faults.append(message)
        self._log(message, "bold red")

    def _suspend_inside(
        self,
        names: Iterable[str],
        is_inside: Callable[[str], bool],
        confirm: Callable[[str], T | None],
        timeout_ms: float,
    ) -> tuple[str, T] | None:
        """Suspend a program inside an operation; return its name and what `confirm` found.

        A program may have left the operation between its last journal entry and the signal, so
        `confirm` checks again while it is suspended; if it returns None the program resumes.
        """
        caught: list[tuple[str, T]] = []

        def attempt() -> bool:
            for name in names:
                if not self.pool.programs[name].is_running or not is_inside(name):
                    continue
                self.pool.suspend(name)
                if (found := confirm(name)) is not None:
                    caught.append((name, found))
                    return True
                self.pool.resume(name)
            return False

        self._poller.until(attempt, timeout_ms)
        return caught[0] if caught else None


_OTHERS: Final = {"services": Role.SERVICES, "reader": Role.READER}
WITH_SPARK: Final = {
    "ada": Role.PYTHON,
    "ben": Role.SPARK,
    "cleo": Role.SPARK,
    "sql": Role.SQL,
    **_OTHERS,
}
WITHOUT_SPARK: Final = {**dict.fromkeys(("ada", "ben", "cleo"), Role.PYTHON), **_OTHERS}


@dataclass(frozen=True, slots=True)
class TableDemoPlan:
    """The programs of a demo; they write for `phase_s` before the kill and again after it."""

    programs: dict[str, Role]
    phase_s: float = 25.0
    start_ms_max: int = 180_000
    recovery_ms_max: int = 120_000
    end_ms_max: int = 120_000

    @property
    def writers(self) -> tuple[str, ...]:
        """The programs that write."""
        return tuple(name for name, role in self.programs.items() if role in WRITER_ROLES)

    @property
    def victims(self) -> tuple[str, ...]:
        """The programs that may be killed: the Spark writers, if any."""
        for role in (Role.SPARK, Role.PYTHON):
            if found := tuple(name for name, has in self.programs.items() if has is role):
                return found
        return ()


_RATE_OVER_MS: Final = 10_000
_ENTRIES_SHOWN: Final = 5
_KINDS: Final = {
    Role.PYTHON: "Python",
    Role.SPARK: "Spark df.write",
    Role.SQL: "Spark SQL",
    Role.SERVICES: "services",
    Role.READER: "reader",
}


@dataclass(slots=True)
class ProgramState:
    """One program as shown on the screen."""

    name: str
    role: Role
    pid: int
    activity: str = "starting"
    killed: bool = False
    writing: bool = False


@dataclass(slots=True)
class TableScene(Scene):
    """The programs, their journals, and the ledger of their table."""

    title: ClassVar[str] = "tidelock demo"
    summary_every_s: ClassVar[float] = 10
    lines_above_log: ClassVar[int] = 26
    log_shown_max: ClassVar[int] = 8

    programs: dict[str, ProgramState] = field(default_factory=dict)
    record: FleetRecord = field(default_factory=FleetRecord)
    entries: deque[e.LedgerEntry] = field(default_factory=lambda: deque(maxlen=_ENTRIES_SHOWN))
    position: int = 0
    rebased: int = 0
    """Commits that were rebased after a conflict."""
    committed: set[str] = field(default_factory=set)
    rolled_back: set[str] = field(default_factory=set)
    pending: tuple[PendingService, ...] = ()
    lock: Inspection | None = None

    def add_event(self, event: ProgramEvent) -> None:
        self.record.add(event)
        program, facts = self.programs[event.name], event.facts
        program.writing = event.kind == "begins"
        match event.kind:
            case "begins":
                program.activity = f"step {facts['step']}"
            case "starts":
                program.activity = "started"
            case "resumes":
                program.activity = f"resumed after step {facts['step']}"
                message = f"{event.name} restarted and resumes after step {facts['step']}"
                self.add_log(event.at_ms, f"{message}, its last in the table", "bold cyan")
            case "served":
                program.activity = f"{facts['service']}: {facts['done']} done"
            case "read":
                program.activity = f"{facts['rows']:,} rows"
            case "failed":
                self.add_log(event.at_ms, f"{event.name} failed: {facts['says']}", "red")
            case "ended":
                program.activity = "done"

    def add_entry(self, entry: e.LedgerEntry) -> None:
        """Add an entry of the ledger."""
        self.entries.append(entry)
        self.position = entry.position
        match entry.fact:
            case e.Commit(instant, rebased=times):
                self.committed.add(instant)
                self.rebased += times > 0
            case e.Rollback(instant):
                self.rolled_back.add(instant)
            case e.PlanRollback(instants=instants):
                self.rolled_back.update(instants)
            case _:
                pass

    def writes_per_s(self, now_ms: int) -> float:
        """Return the rate of commits over the last seconds."""
        since_ms = max(self.began_ms, now_ms - _RATE_OVER_MS)
        count = sum(at_ms >= since_ms for at_ms, _ in self.record.write_times[-2_000:])
        return count * 1000 / max(1, now_ms - since_ms)

    def summary(self) -> str:
        """Return the commits of each writer and the number of resolved conflicts."""
        if not self.record.committed:
            return "the programs are starting"
        steps = ", ".join(
            f"{program.name} {len(self.record.steps_of(program.name))}"
            for program in self.programs.values()
            if program.role in WRITER_ROLES
        )
        return f"writes: {steps}; {self.rebased} conflicts resolved"

    def body(self, now_ms: int) -> list[RenderableType]:
        """Return the programs, the totals and the end of the ledger."""
        totals = self._totals(now_ms)
        return [self._program_table(), Text(), *totals, Text(), self._ledger_table()]

    def _program_table(self) -> Table:
        table = grid(program={}, kind={}, pid=RIGHT, now={"min_width": 24}, commits=RIGHT)
        for program in self.programs.values():
            commits = ""
            if program.role in WRITER_ROLES:
                commits = str(len(self.record.steps_of(program.name)))
            activity = Text(program.activity, style="cyan" if program.writing else "dim")
            if program.killed:
                activity = Text("killed (SIGKILL)", style="bold red")
            kind = _KINDS[program.role]
            table.add_row(program.name, kind, str(program.pid), activity, commits)
        return table

    def _totals(self, now_ms: int) -> list[Text]:
        record = self.record
        times_ms = [took for _, took in record.write_times[-200:]]
        median = f", median {statistics.median(times_ms):.0f} ms" if times_ms else ""
        writes = f"{len(record.committed)} committed, {self.writes_per_s(now_ms):.1f}/s{median}"
        failed = len(record.failures)
        conflicts = f"{self.rebased} resolved by rebasing, {failed} failed"
        served = [f"{name} {count}" for name, count in sorted(record.served.items()) if count]
        pending = [f"{plan.action} {plan.next_step}" for plan in self.pending[:2]]
        style = "bold green" if self.rebased and not failed else ""
        return [
            labeled(11, "writes", writes),
            labeled(11, "conflicts", conflicts, style),
            labeled(11, "services", ", ".join(served) or "nothing to do yet"),
            labeled(11, "pending", ", ".join(pending) or "no pending plan"),
            labeled(11, "lock", self._lock_state()),
        ]

    def _lock_state(self) -> str:
        if self.lock is None or self.lock.record is None:
            return "not acquired yet"
        holder = f"{self.lock.condition.value}, token {self.lock.record.token}"
        return f"{holder} (Hudi's storage lock; advisory: the ledger decides)"

    def _ledger_table(self) -> Table:
        table = grid(ledger=RIGHT, entry={"min_width": 40})
        for entry in self.entries:
            table.add_row(str(entry.position), _entry(entry))
        return table


def _entry(entry: e.LedgerEntry) -> Text:
    match entry.fact:
        case e.Commit(app_transaction=step, footprint=footprint, rebased=rebased):
            writer = "" if step is None else f"{step.app_id}, step {step.version}: "
            again = f", rebased {rebased}x" if rebased else ""
            return Text(f"{writer}{footprint.commit_kind}{again}", "green" if rebased else "")
        case e.Plan(action, targets):
            return Text(f"plan: {action.value} of {len(targets)} file groups", style="blue")
        case e.ImportPlan(action=action):
            return Text(f"plan: {action.value} by an external writer", style="blue")
        case e.Claim(attempt=attempt):
            return Text(f"plan claimed for execution, attempt {attempt}", style="blue")
        case e.Rollback(reason=reason):
            return Text(f"rollback: {reason}", style="yellow")
        case e.PlanRollback(reason=reason, instants=instants):
            return Text(f"rollback of {len(instants)}: {reason}", style="yellow")
        case e.Boundary(position):
            return Text(f"archived up to {position}", style="dim")
        case e.PriorityTicket():
            return Text("a writer requests priority", style="dim")
        case e.ReleaseSavepoint():
            return Text("savepoint deleted", style="dim")
        case _:
            return Text("commit by an external writer")


_INTERVAL_MS: Final = 100
_INSPECT_EVERY_MS: Final = 700


class TableDemo(DemoRun[TableFleetSpec, Role]):
    """Runs the demo: all programs write, one writer is killed and restarted, rows are checked."""

    def __init__(self, plan: TableDemoPlan, pool: TablePool, screen: Screen, clock: Clock) -> None:
        self._scene = TableScene(clock.now().monotonic_ms)
        super().__init__(pool, self._scene, screen, clock, interval_ms=_INTERVAL_MS)
        self._plan = plan
        self._store = open_store(pool.spec.uri, pool.spec.settings)
        self._lease = LockSettings.read(pool.spec.options).lease
        self._inspected_ms = 0

    def run(self) -> DemoReport:
        """Run the whole demo and check the result."""
        self._scene.phase = "programs start"
        for name, role in self._plan.programs.items():
            self._start(name, role)
        started = self._poller.until(self._all_wrote, self._plan.start_ms_max)
        count = len(self._plan.writers)
        self._check(started, f"{count} writers started and committed their first writes")
        if started:
            self._log(f"all {count} writers write to the same rows of one table", "bold")
            self._write_for_a_phase()
            self._kill_and_restart()
            self._write_for_a_phase()
        self._finish()
        return self._report()

    def _start(self, name: str, role: Role) -> None:
        program = self.pool.start(name, role)
        self._scene.programs[name] = ProgramState(name, role, program.process.pid)

    def _write_for_a_phase(self) -> None:
        self._scene.phase = "all programs write"
        self._poller.for_seconds(self._plan.phase_s)

    def _all_wrote(self) -> bool:
        ended = [name for name, p in self.pool.programs.items() if not p.is_running]
        if ended:
            self._check(
                passed=False, message=f"{ended[0]} ended: {self.pool.last_output(ended[0])}"
            )
        return bool(ended) or all(map(self._scene.record.steps_of, self._plan.writers))

    def _kill_and_restart(self) -> None:
        """Kill a writer inside a write; wait until the others roll it back; restart it."""
        self._scene.phase = "a writer is killed inside a write"
        caught = self._suspend_inside(
            self._plan.victims,
            lambda name: self._scene.programs[name].writing,
            self._undecided_instant,
            self._plan.recovery_ms_max,
        )
        if caught is None:
            self._check(passed=False, message="no writer could be killed inside a write")
            return
        name, instant = caught
        self.pool.kill(name)
        self._scene.programs[name].killed = True
        self._fault(f"SIGKILL to {name} inside a write (instant {instant})")
        began_ms, committed = self._now_ms(), len(self._scene.record.committed)
        self._scene.phase = f"{name} is dead; the others continue"
        rolled_back = self._poller.until(
            lambda: instant in self._scene.rolled_back, self._plan.recovery_ms_max
        )
        took_s = (self._now_ms() - began_ms) / 1000
        others = len(self._scene.record.committed) - committed
        if rolled_back:
            self._log(f"its incomplete write is rolled back after {took_s:.1f} s", "bold cyan")
        self._check(
            rolled_back and others > 0,
            f"{name} was killed inside a write; the others rolled it back in {took_s:.1f} s;"
            f" {others} of their writes committed meanwhile",
        )
        self._scene.phase = f"{name} restarts"
        before = len(self._scene.record.steps_of(name))
        self._start(name, self._plan.programs[name])
        resumed = self._poller.until(
            lambda: len(self._scene.record.steps_of(name)) > before, self._plan.start_ms_max
        )
        self._check(resumed, f"{name} restarted and resumed after the last step in the table")

    def _undecided_instant(self, name: str) -> str | None:
        """Return the instant that a program is writing, unless the ledger has decided it."""
        pid = self.pool.programs[name].process.pid
        instants = [writer.instant for writer in writers(self._store) if writer.pid == pid]
        self._read_ledger()
        committed = self._scene.committed
        return next((instant for instant in instants if instant not in committed), None)

    def _finish(self) -> None:
        self._scene.phase = "programs stop"
        running = self._stop_programs(list(self.pool.programs), self._plan.end_ms_max)
        codes = [program.process.poll() for program in self.pool.programs.values()]
        self._check(not running and not any(codes), "every program ended when asked to")
        failures = self._scene.record.failures
        message = "no write failed"
        if failures:
            message = f"{failures[0].name}: {failures[0].facts['says']}"
        self._check(not failures, message)

    def _report(self) -> DemoReport:
        self._scene.phase = "the table is checked against the journals of the programs"
        self._poll()
        scene = self._scene
        self.checks.extend(check_table(self.pool, scene.record))
        self._store.close()
        figures = {
            "writes": len(scene.record.committed),
            "conflicts_solved": scene.rebased,
            "services_run": sum(scene.record.served.values()),
        }
        return DemoReport(checks=self.checks, figures=figures, faults=scene.faults)

    def _observe(self) -> None:
        """Read the ledger, the pending plans and the lock, as any other process can."""
        if self._now_ms() - self._inspected_ms < _INSPECT_EVERY_MS:
            return
        self._inspected_ms = self._now_ms()
        try:
            self._read_ledger()
            self._scene.pending = pending_services(self._store, clock=self.clock)
            self._scene.lock = inspect_lock(self._store, self._lease, self.clock)
        except TidelockError:
            # The screen shows the previous state; the final checks read everything again.
            return

    def _read_ledger(self) -> None:
        for entry in entries(self._store, after=self._scene.position):
            self._scene.add_entry(entry)
