"""Scenes of several real processes on one table: started, stopped, woken, and asked what they did.

The processes are forked from one that has loaded everything and has no threads, so a scene costs
tenths of a second. Nobody waits for a heartbeat to die: whoever is to find it dead has a clock that
is ahead.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidelock.ops.validate.ledger import check_ledger
from tidelock.ops.validate.validating import validate
from tidelock.store.local import LocalStore
from tidelock.table.timeline.active import TIMELINE_FOLDER, load_timeline
from tidelock.table.timeline.instant import Instant
from tidelock.tableservice.table import Table
from tidelock.testing.servicescenes.acting import (
    DATA_FILE,
    LOG_FILE,
    OPTIONS,
    At,
    Part,
    act,
    make_table,
)
from tidelock.testing.tablecrash.stops import Stop
from tidelock.txn.entry import (
    LEDGER_FOLDER,
    Claim,
    Commit,
    Entry,
    Fact,
    Plan,
    Rollback,
    Undo,
    decode,
)
from tidelock.txn.heartbeat import Heartbeat, heartbeat_key, pulse_of

PATIENCE_S = 120.0
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["tidelock.testing.servicescenes.acting"])


@dataclass(slots=True)
class Actor:
    """A process on the stage."""

    part: Part
    process: BaseProcess

    def is_stopped(self) -> bool:
        """Tell whether the process stands still."""
        try:
            status = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return status.rpartition(")")[2].split()[0] in "Tt"

    def wait_stopped(self) -> Self:
        """Wait until it has come to its stop. Raises: `AssertionError` if it ends before."""
        self._wait(lambda: self.is_stopped() or not self.process.is_alive())
        assert self.is_stopped(), f"it did not stop: {self._said()}"
        return self

    def wait_killed(self) -> None:
        """Wait until it has killed itself."""
        self.process.join(PATIENCE_S)
        assert self.process.exitcode == -signal.SIGKILL, f"it was not killed: {self._said()}"

    def wake(self) -> dict[str, Any]:
        """Let it go on, and return what it says at its end."""
        os.kill(self.process.pid or 0, signal.SIGCONT)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Wait for its end, and return what it says."""
        self.process.join(PATIENCE_S)
        assert self.process.exitcode == 0, f"it ended with {self.process.exitcode}"
        told: dict[str, Any] = json.loads(self._said())
        return told

    def _said(self) -> str:
        return self.part.told.read_text(encoding="utf-8") if self.part.told.exists() else "nothing"

    def _wait(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < until, "the process takes too long"
            time.sleep(0.005)


@dataclass(slots=True)
class Stage:
    """One table with a plan, and the processes on it."""

    home: Path
    service: str
    rows: dict[str, int] = field(default_factory=dict)
    actors: list[Actor] = field(default_factory=list)
    instant: str = ""

    @classmethod
    def on_copy(cls, template: Path, home: Path, service: str) -> Self:
        """Set the stage with a copy of a table that has a plan."""
        shutil.copytree(template, home / "table")
        stage = cls(home, service)
        (stage.instant,) = (e.time for e in stage.entries() if isinstance(e.fact, Plan))
        stage.rows = stage.read()
        return stage

    @property
    def root(self) -> Path:
        """The table."""
        return self.home / "table"

    @property
    def store(self) -> LocalStore:
        """The table's store."""
        return LocalStore(self.root)

    def start(
        self,
        role: str = "",
        *,
        stop_at: At | None = None,
        kill_at: At | None = None,
        after: bool = False,
        clock_ms: int = 0,
        options: Mapping[str, object] | None = None,
        rows: Mapping[str, int] | None = None,
    ) -> Actor:
        """Start a process; without a role it executes the plan."""
        at = stop_at or kill_at
        if at == DATA_FILE and self.service == "logcompaction":
            at = LOG_FILE
        number = signal.SIGSTOP if stop_at else signal.SIGKILL
        stop = Stop(At(at.verb, at.part, at.nth), number, after) if at else None
        told = self.home / f"{len(self.actors)}.json"
        role = role or self.service
        part = Part(role, self.root, told, self.instant, stop, clock_ms, options or {}, rows or {})
        process = FORK.Process(target=act, args=(part,), daemon=True)
        process.start()
        actor = Actor(part, process)
        self.actors.append(actor)
        return actor

    def entries(self) -> list[Entry]:
        """Return the ledger."""
        found = (self.store.get(meta.key) for meta in self.store.list(f"{LEDGER_FOLDER}/"))
        return [decode(each.body, where="the ledger") for each in found if each is not None]

    @property
    def history(self) -> str:
        """What was decided: c claimed, r an attempt is over, R rolled back, C committed."""
        return "".join(_letter(entry.fact, self.instant) for entry in self.entries())

    def states(self) -> list[str]:
        """Return what the timeline says of the plan's instant."""
        timeline = load_timeline(self.store, TIMELINE_FOLDER)
        found = [each for each in timeline.files if each.requested == self.instant]
        return sorted(each.state.name for each in found)

    def instants(self, action: str) -> list[Instant]:
        """Return the instants of an action on the timeline."""
        timeline = load_timeline(self.store, TIMELINE_FOLDER)
        return [each for each in timeline.instants if each.action.value == action]

    def data_files(self) -> set[str]:
        """Return the data files of the plan's instant."""
        keys = (meta.key for meta in self.store.list("") if not meta.key.startswith(".hoodie"))
        return {key for key in keys if f"_{self.instant}." in key}

    def heartbeat(self) -> Heartbeat | None:
        """Return what the plan's heartbeat says; None if there is none."""
        found = self.store.get(heartbeat_key(self.instant))
        return None if found is None else pulse_of(self.instant, found).says

    def read(self) -> dict[str, int]:
        """Return the rows, as a reader sees them."""
        with Table.open(str(self.root), options=dict(OPTIONS)) as table:
            found = table.read().select(["id", "value"]).to_pylist()
        rows = {row["id"]: row["value"] for row in found}
        assert len(rows) == len(found), f"a key is there twice: {found}"
        return rows

    def check(self) -> None:
        """Check what must hold after every scene: S1, S4, S5, and a table without a flaw."""
        assert self.read() == self.rows
        assert self.states().count("COMPLETED") <= 1
        assert self.history.count("C") + self.history.count("R") <= 1
        found = validate(self.store, more=[check_ledger])
        assert found.problems == ()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove whoever is left."""
        del kind, error, trace
        for actor in self.actors:
            if actor.process.is_alive():
                actor.process.kill()
                actor.process.join()


def _letter(fact: Fact, instant: str) -> str:
    match fact:
        case Claim(about) if about == instant:
            return "c"
        case Rollback(about, attempt=attempt) if about == instant:
            return "R" if attempt is None else "r"
        case Undo(instants=instants) if instant in instants:
            return "R"
        case Commit(about) if about == instant:
            return "C"
        case _:
            return ""


def made(home: Path, service: str, *, stays: bool = False) -> Path:
    """Return a table with a plan of a service, to be copied."""
    root = home / service
    more = {"stays": stays}
    process = FORK.Process(target=make_table, args=(root, service), kwargs=more, daemon=True)
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == 0, f"the table was not made: {process.exitcode}"
    return root
