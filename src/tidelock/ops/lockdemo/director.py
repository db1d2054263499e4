"""Runs the demo: starts the writers, kills one, stops another, and asks for the verdict.

Whatever happens, no writer is left running and every wait has an end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tidelock.base.clock import Clock
from tidelock.base.errors import TidelockError
from tidelock.lock.inspect import Inspection, inspect_lock
from tidelock.ops.fleet.pacing import Pacing
from tidelock.ops.lockdemo.board import Board
from tidelock.ops.lockdemo.counters import FencedCounter, PlainCounter
from tidelock.ops.lockdemo.journal import Did, JournalReader
from tidelock.ops.lockdemo.plan import Plan
from tidelock.ops.lockdemo.scene import Scene, Writer
from tidelock.ops.lockdemo.verdict import Check, judge, plain_acknowledged
from tidelock.store.local import LocalStore

_TICK_MS = 30
_START_MS_MAX = 30_000
_END_MS_MAX = 15_000
CONTENDER = "tidelock.ops.lockdemo.contender"


@dataclass(slots=True)
class Outcome:
    """What the demo ends with."""

    checks: list[Check]
    fenced: int
    plain: int
    plain_acknowledged: int
    grants: int
    faults: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Tell whether every check passed."""
        return all(check.passed for check in self.checks)


class Director:
    """One demo in one folder; a context, because it holds processes."""

    def __init__(self, plan: Plan, folder: Path, board: Board, clock: Clock) -> None:
        """Prepare the folder; start nothing."""
        self._plan = plan
        self._folder = folder
        self._board = board
        self._clock = clock
        self._store = LocalStore(folder / "table")
        counters = LocalStore(folder / "counters", fsync=False)
        self._fenced, self._plain = FencedCounter(counters), PlainCounter(counters)
        self._scene = Scene(clock.now().monotonic_ms)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: dict[str, JournalReader] = {}
        self._act = ""
        self._pacing = Pacing(clock, self._tick, _TICK_MS)
        self._checks: list[Check] = []
        (folder / "journals").mkdir()

    def __enter__(self) -> Self:
        """Start the writers, each in a group of its own: Ctrl-C is for the director alone."""
        lease = self._plan.lease
        for name in self._plan.names:
            argv = [sys.executable, "-m", CONTENDER, str(self._folder), name]
            argv += [str(lease.validity_ms), str(lease.renew_ms)]
            with (self._folder / f"{name}.err").open("wb") as errors:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    process_group=0,
                )
            self._processes[name] = process
            self._readers[name] = JournalReader(self._folder / "journals", name)
            self._scene.writers[name] = Writer(name, process.pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every writer that is left, stopped ones too."""
        del kind, error, trace
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def play(self) -> Outcome:
        """Run the whole demo and judge it."""
        plan, scene = self._plan, self._scene
        self._act = "writers start"
        started = self._pacing.until(lambda: len(scene.grants()) >= 3, _START_MS_MAX)
        self._check(started, "the writers started and took the lock in turn")
        if started:
            self._act = "writers contend"
            self._pacing.lasting(plan.warm_up_s)
            self._kill_a_holder()
            self._act = "writers contend"
            self._pacing.lasting(plan.calm_s)
            self._stop_a_holder()
            self._act = "writers contend"
            spent_s = (self._now_ms() - scene.began_ms) / 1000
            self._pacing.lasting(max(plan.calm_s, plan.seconds - spent_s))
        self._finish()
        return self._outcome()

    def _kill_a_holder(self) -> None:
        self._act = "a holder is killed"
        name = self._caught_inside()
        if name is None:
            self._check(passed=False, says="a holder was caught inside its critical section")
            return
        self._processes[name].kill()
        self._scene.writers[name].killed = True
        self._fault(f"SIGKILL to {name} inside its critical section")
        took_ms = self._taken_over(name)
        self._check(took_ms is not None, f"{name}, killed, was followed after its lease ran out")

    def _stop_a_holder(self) -> None:
        self._act = "a holder is stopped past its lease"
        name = self._caught_inside()
        if name is None:
            self._check(passed=False, says="a holder was caught inside its critical section")
            return
        writer = self._scene.writers[name]
        writer.stopped = True
        self._fault(f"SIGSTOP to {name} inside its critical section")
        took_ms = self._taken_over(name)
        # Two more increments, so that what the sleeper is about to write is out of date.
        wrote = self._scene.count(Did.WROTE)
        moved = took_ms is not None and self._pacing.until(
            lambda: self._scene.count(Did.WROTE) >= wrote + 2, self._plan.takeover_ms_max
        )
        writer.stopped = False
        self._act = "the sleeper wakes"
        self._processes[name].send_signal(signal.SIGCONT)
        self._scene.tell(self._now_ms(), f"SIGCONT to {name}: it goes on where it was", "red")
        refused = moved and self._pacing.until(
            lambda: self._scene.count(Did.REFUSED, name) > 0, self._plan.takeover_ms_max
        )
        lost = self._scene.count(Did.LOST, name) > 0
        says = f"{name}, asleep past its lease, was told LOST and its late write was refused"
        self._check(passed=refused and lost, says=says)

    def _caught_inside(self) -> str | None:
        """Stop a writer between its reads and its writes; return its name."""
        caught: list[str] = []

        def try_it() -> bool:
            for name, process in self._processes.items():
                latest = self._scene.latest(name)
                if latest is None or latest.did is not Did.BELIEVES or process.poll() is not None:
                    continue
                process.send_signal(signal.SIGSTOP)
                # It may have gone on between its last note and the signal; look again.
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
                self._read_journals()
                latest = self._scene.latest(name)
                if latest is not None and latest.did is Did.BELIEVES:
                    caught.append(name)
                    return True
                process.send_signal(signal.SIGCONT)
            return False

        self._pacing.until(try_it, self._plan.takeover_ms_max)
        return caught[0] if caught else None

    def _taken_over(self, name: str) -> int | None:
        """Wait until another writer is granted the lock; return how long that took."""
        began_ms, grants = self._now_ms(), len(self._scene.grants())
        self._act = f"{name} is gone, its lease runs out"
        if not self._pacing.until(
            lambda: len(self._scene.grants()) > grants, self._plan.takeover_ms_max
        ):
            return None
        taker = self._scene.grants()[grants]
        took_ms = taker.at_ms - began_ms
        says = f"{taker.name} takes over with token {taker.token} after {took_ms / 1000:.1f} s"
        self._scene.tell(taker.at_ms, says, "bold cyan")
        return took_ms

    def _finish(self) -> None:
        self._act = "the end"
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
        alive = [p for name, p in self._processes.items() if not self._scene.writers[name].killed]
        ended = self._pacing.until(lambda: all(p.poll() is not None for p in alive), _END_MS_MAX)
        self._check(
            ended and all(p.returncode == 0 for p in alive), "every other writer ended well"
        )
        self._tick()

    def _outcome(self) -> Outcome:
        fenced, plain = self._fenced.value(), self._plain.read()
        events = self._scene.events
        return Outcome(
            [*self._checks, *judge(events, fenced=fenced)],
            fenced=fenced,
            plain=plain,
            plain_acknowledged=plain_acknowledged(events),
            grants=len(self._scene.grants()),
            faults=self._scene.faults,
        )

    def _fault(self, says: str) -> None:
        self._scene.faults.append(says)
        self._scene.tell(self._now_ms(), says, "bold red")

    def _check(self, passed: bool, says: str) -> None:  # noqa: FBT001 - reads as a sentence
        self._checks.append(Check(passed, says))

    def _tick(self) -> None:
        self._read_journals()
        self._scene.fenced_value, self._scene.plain_value = self._fenced.value(), self._plain.read()
        self._board.show(self._scene, self._seen(), self._now_ms(), self._act)

    def _read_journals(self) -> None:
        fresh = [event for reader in self._readers.values() for event in reader.fresh()]
        for event in sorted(fresh, key=lambda event: event.at_ms):
            self._scene.take(event)

    def _seen(self) -> Inspection | None:
        try:
            return inspect_lock(self._store, self._plan.lease, self._clock)
        except TidelockError:
            return None

    def _now_ms(self) -> int:
        return self._clock.now().monotonic_ms
