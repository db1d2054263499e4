"""Runs a stress: starts the processes, does them harm, restores the table now and then, judges."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tidelock.base.errors import Conflict, NotFound
from tidelock.ops.fleet.crew import Crew
from tidelock.ops.fleet.journal import Noted
from tidelock.ops.soak.place import OWN_SERVER, opened
from tidelock.ops.validate.ledger import check_ledger
from tidelock.ops.validate.validating import validate
from tidelock.store.uri import open_store
from tidelock.testing.stress.member import PAUSE, Role
from tidelock.testing.stress.replay import Replay, told
from tidelock.testing.stress.terms import Kind, Terms

_MEMBER: Final = "tidelock.testing.stress.member"
_TICK_S: Final = 0.1
_ASLEEP_S: Final = 5.0
"""Longer than a heartbeat of a process may stay out."""
_PATIENCE_S: Final = 900.0
_NEVER: Final = ("DataCorrupt:", "InvariantBroken:")
"""Errors that nobody may be told of a table that is in order."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and with how many; every so many seconds one is harmed, or the table restored."""

    seconds: float = 60.0
    writers: int = 4
    servers: int = 2
    readers: int = 2
    harm_every_s: float = 3.0
    restore_every_s: float = 30.0
    faulty: bool = False

    @property
    def programs(self) -> dict[str, Role]:
        """The processes by name."""
        wanted = ((Role.WRITER, self.writers), (Role.SERVER, self.servers))
        named = (*wanted, (Role.READER, self.readers))
        return {f"{role.value}-{n}": role for role, count in named for n in range(1, count + 1)}


@dataclass(slots=True)
class Result:
    """What a stress came to; with nothing wrong, the replay explained all of it."""

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
    """One stress with its processes."""

    plan: Plan
    crew: Crew[Terms, Role]
    result: Result
    noted: list[Noted] = field(default_factory=list)
    draw: random.Random = field(default_factory=random.Random)
    _asleep: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """Let the processes loose for a while, then end them."""
        for name, role in self.plan.programs.items():
            self.crew.start(name, role)
        self._until(self._all_at_work, "not every process came to work")
        began = harmed = restored = time.monotonic()
        while (now := time.monotonic()) < began + self.plan.seconds:
            time.sleep(_TICK_S)
            self._wake(now)
            self._check_alive()
            if now - harmed >= self.plan.harm_every_s:
                harmed = now
                self._harm(now)
            if now - restored >= self.plan.restore_every_s:
                self._restore()
                restored = time.monotonic()
        self.result.seconds = time.monotonic() - began
        self._wake(None)
        self.crew.dismiss()
        self._until(self._all_ended, "not every process ended when it was told to")
        self.noted += self.crew.fresh()

    def _all_at_work(self) -> bool:
        self.noted += self.crew.fresh()
        return {each.name for each in self.noted if each.did == "starts"} >= set(self.plan.programs)

    def _all_ended(self) -> bool:
        return not any(program.is_running for program in self.crew.programs.values())

    def _until(self, comes: Callable[[], bool], otherwise: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not comes():
            if time.monotonic() > until:
                raise TimeoutError(otherwise)
            time.sleep(_TICK_S)

    def _check_alive(self) -> None:
        for name, program in list(self.crew.programs.items()):
            if not program.is_running:
                said = self.crew.last_words(name)
                self.result.wrong.append(f"{name} ended by itself: {said}")
                self.crew.start(name, program.role)

    def _harm(self, now: float) -> None:
        """Kill one, or put it to sleep for longer than its heartbeat may stay out."""
        victims = [
            name
            for name, role in self.plan.programs.items()
            if role is not Role.READER and name not in self._asleep
        ]
        if not victims:
            return
        name = self.draw.choice(victims)
        if self.draw.random() < 0.75 or len(self._asleep) > 1:
            self.crew.kill(name)
            self.crew.start(name, self.plan.programs[name])
            self.result.counted["kills"] += 1
        else:
            self.crew.put_to_sleep(name)
            self._asleep[name] = now
            self.result.counted["sleeps"] += 1

    def _wake(self, now: float | None) -> None:
        for name, since in list(self._asleep.items()):
            if now is None or now - since >= _ASLEEP_S:
                del self._asleep[name]
                self.crew.wake(name)

    def _restore(self) -> None:
        """Bring the table back to its savepoint, once everybody knows how their last step ended."""
        pause = self.crew.folder / PAUSE
        pause.touch()
        self._wake(None)
        try:
            self._until(self._all_wait, "not every process came to rest")
            with closing(self.crew.articles.open()) as table:
                saved = table.savepoints()
                if saved and table.restore(saved[-1].instant, fence=True) is not None:
                    self.result.counted["restores"] += 1
        except (Conflict, NotFound) as error:
            self.result.failures[f"restore: {type(error).__name__}"] += 1
        finally:
            pause.unlink()

    def _all_wait(self) -> bool:
        """Tell whether every writer and server waits: the last that each noted says so."""
        self.noted += self.crew.fresh()
        last = {each.name: each.did for each in self.noted}
        return all(
            last.get(name) == "waits"
            for name, role in self.plan.programs.items()
            if role is not Role.READER
        )

    def judge(self) -> None:
        """Replay everything, and validate the table."""
        terms, result = self.crew.articles, self.result
        for each in self.noted:
            if each.did == "failed":
                says = str(each.facts.get("says", ""))
                result.failures[says[:160]] += 1
                if says.startswith(_NEVER):
                    result.wrong.append(f"{each.name} was told {says}")
            elif each.did in ("served", "left", "refused", "undid", "kept", "late"):
                what = each.facts.get("service", "")
                result.counted[f"{each.did} {what}".strip()] += 1
        with closing(terms.open()) as table:
            table.clean()
            table.refresh()
            final = table.read().to_pylist()
        store = open_store(terms.uri, terms.settings)
        try:
            replay = Replay(terms)
            replay.judge(told(store), self.noted, final)
            result.counted.update(replay.counted)
            result.wrong += replay.wrong
            found = validate(store, more=[check_ledger])
            result.wrong += [f"{p.check}: {p.object} {p.what}" for p in found.problems]
        finally:
            store.close()


@contextmanager
def stress(folder: Path, kind: Kind, plan: Plan, **more: Any) -> Iterator[Stress]:
    """Make a table for a stress, on local disk or on `store`; leave no process behind."""
    seed, lock = more.get("seed", 1), more.get("lock", "none")
    asked = more.get("store", "local")
    where = {"local": "", "s3": OWN_SERVER}.get(asked, asked)
    with opened(where, folder, {}, faulty=plan.faulty, seed=seed) as place:
        terms = Terms(place.uri, kind, seed, lock, dict(place.settings))
        with Crew[Terms, Role](folder, terms, _MEMBER) as crew:
            made = Stress(plan, crew, Result(str(kind), place.says, _lock_name(terms)))
            yield made
            place.calm()


def _lock_name(terms: Terms) -> str:
    provider = terms.options.get("hoodie.write.lock.provider", "")
    return provider.rpartition(".")[2] or "none: the ledger's conditional writes"


def run(folder: Path, kind: Kind, plan: Plan, **more: Any) -> Result:
    """Run a stress and judge it."""
    with stress(folder, kind, plan, **more) as made:
        made.run()
        made.judge()
        return made.result
