"""Runs a stress test: starts processes, injects faults, restores the table, and checks it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import testkit.soak  # noqa: F401 - registers the store
from testkit.stress.member import PAUSE, Role
from testkit.stress.parameters import Kind, Parameters
from testkit.stress.replay import Replay, read_history
from tidelock.core.errors import Conflict, NotFound
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_ledger import check_ledger
from tidelock.storage.uri import open_store
from tidelock.workload.fleet import ProcessPool
from tidelock.workload.journal import ProgramEvent
from tidelock.workload.soak import open_store as open_soak_store

_MEMBER: Final = "testkit.stress.member"
_TICK_S: Final = 0.1
_ASLEEP_S: Final = 5.0
"""Longer than the lifetime of a heartbeat."""
_TIMEOUT_S: Final = 900.0
_WORK_TIMEOUT_S: Final = 120.0
"""How much longer a run lasts on a machine on which nothing was done in its time."""
_NEVER: Final = ("DataCorrupt:", "InvariantBroken:")
"""Errors that must not occur on a healthy table."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Duration and number of processes; the intervals of faults and restores."""

    seconds: float = 60.0
    writers: int = 4
    servers: int = 2
    readers: int = 2
    fault_every_s: float = 3.0
    restore_every_s: float = 30.0
    faulty: bool = False

    @property
    def programs(self) -> dict[str, Role]:
        """The processes by name."""
        writing = ((Role.WRITER, self.writers), (Role.SERVER, self.servers))
        named = (*writing, (Role.READER, self.readers))
        return {f"{role.value}-{n}": role for role, count in named for n in range(1, count + 1)}


@dataclass(slots=True)
class Result:
    """The result of a stress test; without failures, the replay explained all reads."""

    kind: str
    store: str
    lock: str
    seconds: float = 0.0
    counted: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def facts(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "kind": self.kind,
            "store": self.store,
            "lock": self.lock,
            "seconds": round(self.seconds, 1),
            "passed": not self.wrong,
            "wrong": self.wrong,
            "counted": dict(sorted(self.counted.items())),
            "failures": dict(self.failures.most_common(20)),
        }


@dataclass(slots=True)
class Stress:
    """One stress test with its processes."""

    plan: Plan
    pool: ProcessPool[Parameters, Role]
    result: Result
    events: list[ProgramEvent] = field(default_factory=list)
    draw: random.Random = field(default_factory=random.Random)
    _asleep: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """Run the processes for a while, at least until something was done, then stop them."""
        for name, role in self.plan.programs.items():
            self.pool.start(name, role)
        self._until(self._all_at_work, "not every process started to work")
        began = harmed = restored = time.monotonic()
        until = began + self.plan.seconds
        while (now := time.monotonic()) < until or not self._has_worked(until):
            time.sleep(_TICK_S)
            self._wake(now)
            self._check_alive()
            if now - harmed >= self.plan.fault_every_s:
                harmed = now
                self._inject_fault(now)
            if now - restored >= self.plan.restore_every_s:
                self._restore()
                restored = time.monotonic()
        self.result.seconds = time.monotonic() - began
        self._wake(None)
        self.pool.stop()
        self._until(self._all_ended, "not every process ended when requested")
        self.events += self.pool.read_journals()

    def _all_at_work(self) -> bool:
        self.events += self.pool.read_journals()
        return {each.name for each in self.events if each.kind == "starts"} >= set(
            self.plan.programs
        )

    def _has_worked(self, until: float) -> bool:
        """Return whether a row was written, read, and a fault injected, or it takes too long."""
        self.events += self.pool.read_journals()
        faults = self.result.counted["kills"] + self.result.counted["sleeps"]
        done = {"wrote", "read"} <= {each.kind for each in self.events} and faults > 0
        return done or time.monotonic() > until + _WORK_TIMEOUT_S

    def _all_ended(self) -> bool:
        return not any(program.is_running for program in self.pool.programs.values())

    def _until(self, condition: Callable[[], bool], otherwise: str) -> None:
        until = time.monotonic() + _TIMEOUT_S
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError(otherwise)
            time.sleep(_TICK_S)

    def _check_alive(self) -> None:
        for name, program in list(self.pool.programs.items()):
            if not program.is_running:
                output = self.pool.last_output(name)
                self.result.wrong.append(f"{name} ended by itself: {output}")
                self.pool.start(name, program.role)

    def _inject_fault(self, now: float) -> None:
        """Kill a process, or pause it for longer than the lifetime of its heartbeat."""
        victims = [
            name
            for name, role in self.plan.programs.items()
            if role is not Role.READER and name not in self._asleep
        ]
        if not victims:
            return
        name = self.draw.choice(victims)
        if self.draw.random() < 0.75 or len(self._asleep) > 1:
            self.pool.kill(name)
            self.pool.start(name, self.plan.programs[name])
            self.result.counted["kills"] += 1
        else:
            self.pool.suspend(name)
            self._asleep[name] = now
            self.result.counted["sleeps"] += 1

    def _wake(self, now: float | None) -> None:
        for name, since in list(self._asleep.items()):
            if now is None or now - since >= _ASLEEP_S:
                del self._asleep[name]
                self.pool.resume(name)

    def _restore(self) -> None:
        """Restore the table to its savepoint, once all processes know how their last step ended."""
        pause = self.pool.folder / PAUSE
        pause.touch()
        self._wake(None)
        try:
            self._until(self._all_wait, "not every process paused")
            with closing(self.pool.spec.open()) as table:
                saved = table.savepoints()
                if saved and table.restore(saved[-1].instant, fence=True) is not None:
                    self.result.counted["restores"] += 1
        except (Conflict, NotFound) as error:
            self.result.failures[f"restore: {type(error).__name__}"] += 1
        finally:
            pause.unlink()

    def _all_wait(self) -> bool:
        """Return whether all writers and servers wait, according to their last journal entry."""
        self.events += self.pool.read_journals()
        last = {each.name: each.kind for each in self.events}
        return all(
            last.get(name) == "waits"
            for name, role in self.plan.programs.items()
            if role is not Role.READER
        )

    def judge(self) -> None:
        """Replay everything, and validate the table."""
        parameters, result = self.pool.spec, self.result
        for each in self.events:
            if each.kind == "failed":
                says = str(each.facts.get("says", ""))
                result.failures[says[:160]] += 1
                if says.startswith(_NEVER):
                    result.wrong.append(f"{each.name} failed: {says}")
            elif each.kind in ("served", "left", "refused", "undid", "kept", "late"):
                what = each.facts.get("service", "")
                result.counted[f"{each.kind} {what}".strip()] += 1
        with closing(parameters.open()) as table:
            table.clean()
            table.refresh()
            final = table.read().to_pylist()
        store = open_store(parameters.uri, parameters.settings)
        try:
            replay = Replay(parameters)
            replay.judge(read_history(store), self.events, final)
            result.counted.update(replay.counted)
            result.wrong += replay.wrong
            found = validate(store, more=[check_ledger])
            result.wrong += [f"{p.check}: {p.object} {p.what}" for p in found.problems]
        finally:
            store.close()


@contextmanager
def stress(folder: Path, kind: Kind, plan: Plan, **more: Any) -> Iterator[Stress]:
    """Create a table for a stress test, on local disk or on `store`; leave no process behind."""
    seed, lock = more.get("seed", 1), more.get("lock", "none")
    store_option = more.get("store", "local")
    where = {"local": "", "s3": "seaweedfs"}.get(store_option, store_option)
    with open_soak_store(where, folder, {}, faulty=plan.faulty, seed=seed) as place:
        parameters = Parameters(place.uri, kind, seed, lock, dict(place.settings))
        with ProcessPool[Parameters, Role](folder, parameters, _MEMBER) as pool:
            made = Stress(plan, pool, Result(str(kind), place.description, _lock_name(parameters)))
            yield made
            place.stop_faults()


def _lock_name(parameters: Parameters) -> str:
    provider = parameters.options.get("hoodie.write.lock.provider", "")
    return provider.rpartition(".")[2] or "none: the ledger's conditional writes"


def run(folder: Path, kind: Kind, plan: Plan, **more: Any) -> Result:
    """Run a stress test and check it."""
    with stress(folder, kind, plan, **more) as made:
        made.run()
        made.judge()
        return made.result
