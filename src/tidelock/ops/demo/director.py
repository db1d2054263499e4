"""Runs the demo: starts the programs, kills a writer, brings it back, and asks for the verdict.

Whatever happens, no program is left running and every wait has an end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidelock.base.clock import Clock
from tidelock.base.errors import TidelockError
from tidelock.lock.config import LockSettings
from tidelock.lock.inspect import inspect_lock
from tidelock.ops.demo.board import Board
from tidelock.ops.demo.plan import Plan
from tidelock.ops.demo.scene import Actor, Scene
from tidelock.ops.fleet.articles import Articles
from tidelock.ops.fleet.crew import Crew
from tidelock.ops.fleet.member import Role
from tidelock.ops.fleet.pacing import Pacing
from tidelock.ops.fleet.verdict import Check, judge
from tidelock.store.uri import open_store
from tidelock.tableservice.overview import pending_services
from tidelock.txn.writers import entries, writers

_TICK_MS: Final = 100
_LOOK_EVERY_MS: Final = 700
_WRITERS: Final = frozenset({Role.PYTHON, Role.SPARK, Role.SQL})


@dataclass(slots=True)
class Outcome:
    """What the demo ends with."""

    checks: list[Check]
    landed: int
    solved: int
    served: int
    faults: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Tell whether every check that could be made passed."""
        return all(check.passed is not False for check in self.checks)


class Director:
    """One demo with one crew."""

    def __init__(self, plan: Plan, crew: Crew[Articles, Role], board: Board, clock: Clock) -> None:
        """Start nothing."""
        self._plan = plan
        self._crew = crew
        self._board = board
        self._clock = clock
        self._store = open_store(crew.articles.uri, crew.articles.settings)
        self._scene = Scene(clock.now().monotonic_ms)
        self._act = ""
        self._pacing = Pacing(clock, self._tick, _TICK_MS)
        self._looked_ms = 0
        self._lease = LockSettings.read(crew.articles.options).lease
        self._checks: list[Check] = []

    def play(self) -> Outcome:
        """Run the whole demo and judge it."""
        self._act = "programs start"
        for name, role in self._plan.programs.items():
            self._start(name, role)
        started = self._pacing.until(self._all_wrote, self._plan.start_ms_max)
        count = sum(role in _WRITERS for role in self._plan.programs.values())
        self._check(started, f"{count} writers started and landed their first writes")
        if started:
            self._tell(f"all {count} writers write to the same rows of one table", "bold")
            self._act = "everybody writes"
            self._pacing.lasting(self._plan.calm_s)
            self._kill_and_bring_back()
            self._act = "everybody writes"
            self._pacing.lasting(self._plan.calm_s)
        self._finish()
        return self._judged()

    def _start(self, name: str, role: Role) -> None:
        program = self._crew.start(name, role)
        self._scene.actors[name] = Actor(name, role, program.process.pid)

    def _all_wrote(self) -> bool:
        landed = self._scene.record.steps_of
        ended = [name for name, p in self._crew.programs.items() if not p.is_running]
        if ended:
            self._check(passed=False, says=f"{ended[0]} ended: {self._crew.last_words(ended[0])}")
        return bool(ended) or all(
            landed(name) for name, role in self._plan.programs.items() if role in _WRITERS
        )

    def _kill_and_bring_back(self) -> None:
        """Kill a writer in the middle of a write; see it undone, and the writer go on."""
        self._act = "a writer is killed in the middle of a write"
        caught = self._caught_writing()
        if caught is None:
            self._check(passed=False, says="a writer was caught in the middle of a write")
            return
        name, instant = caught
        self._scene.actors[name].killed = True
        fault = f"SIGKILL to {name} in the middle of a write (instant {instant})"
        self._scene.faults.append(fault)
        self._tell(fault, "bold red")
        began_ms, landed = self._now_ms(), len(self._scene.record.landed)
        self._act = f"{name} is dead; the others go on"
        undone = self._pacing.until(
            lambda: instant in self._scene.undone, self._plan.recovery_ms_max
        )
        took_s = (self._now_ms() - began_ms) / 1000
        others = len(self._scene.record.landed) - landed
        self._tell(f"its half write is undone by another after {took_s:.1f} s", "bold cyan")
        self._check(
            undone and others > 0,
            f"{name}, killed within a write, was cleared away by the others in {took_s:.1f} s;"
            f" {others} of their writes landed meanwhile",
        )
        self._act = f"{name} starts again"
        before = len(self._scene.record.steps_of(name))
        self._start(name, self._plan.programs[name])
        back = self._pacing.until(
            lambda: len(self._scene.record.steps_of(name)) > before, self._plan.start_ms_max
        )
        self._check(back, f"{name} came back and went on where the table says it was")

    def _caught_writing(self) -> tuple[str, str] | None:
        """Stop a writer after its write began, and kill it if it still is at it."""
        caught: list[tuple[str, str]] = []

        def try_it() -> bool:
            for name in self._plan.victims:
                if not self._scene.actors[name].writing:
                    continue
                self._crew.put_to_sleep(name)
                instant = self._instant_of(name)
                if instant is not None:
                    self._crew.kill(name)
                    caught.append((name, instant))
                    return True
                self._crew.wake(name)
            return False

        self._pacing.until(try_it, self._plan.recovery_ms_max)
        return caught[0] if caught else None

    def _instant_of(self, name: str) -> str | None:
        """Return what a program is writing, while it is not decided."""
        pid = self._crew.programs[name].process.pid
        mine = [writer.instant for writer in writers(self._store) if writer.pid == pid]
        self._read_ledger()
        decided = self._scene.decided
        return next((instant for instant in mine if instant not in decided), None)

    def _finish(self) -> None:
        self._act = "the end"
        self._crew.dismiss()
        programs = self._crew.programs.values()
        ended = self._pacing.until(
            lambda: all(not program.is_running for program in programs), self._plan.end_ms_max
        )
        well = [program.name for program in programs if program.process.poll() == 0]
        self._check(
            ended and len(well) == len(programs), "every program ended by itself when asked to"
        )
        failures = self._scene.record.failures
        says = f"{failures[0].name}: {failures[0].facts['says']}" if failures else "no write failed"
        self._check(not failures, says)

    def _judged(self) -> Outcome:
        self._act = "the table is checked against what the programs say"
        self._tick()
        scene = self._scene
        for check in judge(self._crew, scene.record):
            self._checks.append(check)
        self._store.close()
        served = sum(scene.record.served.values())
        return Outcome(self._checks, len(scene.record.landed), scene.solved, served, scene.faults)

    def _tell(self, says: str, style: str = "") -> None:
        self._scene.tell(self._now_ms(), says, style)

    def _check(self, passed: bool, says: str) -> None:  # noqa: FBT001 - reads as a sentence
        self._checks.append(Check(passed, says))

    def _tick(self) -> None:
        for noted in self._crew.fresh():
            self._scene.take(noted)
        now_ms = self._now_ms()
        if now_ms - self._looked_ms >= _LOOK_EVERY_MS:
            self._looked_ms = now_ms
            self._look()
        self._board.show(self._scene, now_ms, self._act)

    def _look(self) -> None:
        """Look at the table itself, as any passer-by may."""
        try:
            self._read_ledger()
            self._scene.pending = pending_services(self._store, clock=self._clock)
            self._scene.lock = inspect_lock(self._store, self._lease, self._clock)
        except TidelockError:
            # What is shown is a moment older; the verdict looks again.
            return

    def _read_ledger(self) -> None:
        for entry in entries(self._store, after=self._scene.position):
            self._scene.read(entry)

    def _now_ms(self) -> int:
        return self._clock.now().monotonic_ms
