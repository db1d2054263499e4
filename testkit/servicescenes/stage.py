"""Scenes of several processes on one table: started, stopped, resumed, and their results.

The processes are forked from one that has loaded all modules and has no threads, so a scene takes
tenths of a second. No scene waits for a heartbeat to expire: processes that must find it expired
have a clock that is ahead.
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

from testkit.servicescenes.roles import (
    DATA_FILE,
    LOG_FILE,
    OPTIONS,
    At,
    Part,
    make_table,
    run_part,
)
from testkit.tablecrash.stops import Stop
from tidelock.hudi.timeline.active import TIMELINE_FOLDER, load_timeline
from tidelock.hudi.timeline.instant import Instant
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_ledger import check_ledger
from tidelock.storage.local import LocalStore
from tidelock.table import Table
from tidelock.txn.entries import (
    LEDGER_FOLDER,
    Claim,
    Commit,
    Fact,
    LedgerEntry,
    Plan,
    PlanRollback,
    Rollback,
    decode,
)
from tidelock.txn.heartbeats import Heartbeat, heartbeat_key, heartbeat_status

TIMEOUT_S = 120.0
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["testkit.servicescenes.roles"])


@dataclass(slots=True)
class SceneProcess:
    """A process of a scene."""

    part: Part
    process: BaseProcess

    def is_stopped(self) -> bool:
        """Return whether the process is stopped."""
        try:
            status = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return status.rpartition(")")[2].split()[0] in "Tt"

    def wait_stopped(self) -> Self:
        """Wait until it has stopped. Raises: `AssertionError` if it ends before."""
        self._wait(lambda: self.is_stopped() or not self.process.is_alive())
        assert self.is_stopped(), f"it did not stop: {self._result_text()}"
        return self

    def wait_killed(self) -> None:
        """Wait until it has killed itself."""
        self.process.join(TIMEOUT_S)
        assert self.process.exitcode == -signal.SIGKILL, f"it was not killed: {self._result_text()}"

    def resume(self) -> dict[str, Any]:
        """Resume it, and return its result."""
        os.kill(self.process.pid or 0, signal.SIGCONT)
        return self.result()

    def result(self) -> dict[str, Any]:
        """Wait for its end, and return its result."""
        self.process.join(TIMEOUT_S)
        assert self.process.exitcode == 0, f"it ended with {self.process.exitcode}"
        result: dict[str, Any] = json.loads(self._result_text())
        return result

    def _result_text(self) -> str:
        return (
            self.part.result_file.read_text(encoding="utf-8")
            if self.part.result_file.exists()
            else "nothing"
        )

    def _wait(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + TIMEOUT_S
        while not done():
            assert time.monotonic() < until, "the process takes too long"
            time.sleep(0.005)


@dataclass(slots=True)
class Stage:
    """One table with a pending plan, and its processes."""

    home: Path
    service: str
    rows: dict[str, int] = field(default_factory=dict)
    processes: list[SceneProcess] = field(default_factory=list)
    instant: str = ""

    @classmethod
    def on_copy(cls, template: Path, home: Path, service: str) -> Self:
        """Create a stage with a copy of a table that has a plan."""
        shutil.copytree(template, home / "table")
        stage = cls(home, service)
        (stage.instant,) = (e.time for e in stage.entries() if isinstance(e.fact, Plan))
        stage.rows = stage.read()
        return stage

    @property
    def root(self) -> Path:
        """The folder of the table."""
        return self.home / "table"

    @property
    def store(self) -> LocalStore:
        """The store of the table."""
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
    ) -> SceneProcess:
        """Start a process; without a role it executes the plan."""
        at = stop_at or kill_at
        if at == DATA_FILE and self.service == "logcompaction":
            at = LOG_FILE
        number = signal.SIGSTOP if stop_at else signal.SIGKILL
        stop = Stop(At(at.verb, at.part, at.nth), number, after) if at else None
        result_file = self.home / f"{len(self.processes)}.json"
        role = role or self.service
        part = Part(
            role, self.root, result_file, self.instant, stop, clock_ms, options or {}, rows or {}
        )
        process = FORK.Process(target=run_part, args=(part,), daemon=True)
        process.start()
        started = SceneProcess(part, process)
        self.processes.append(started)
        return started

    def entries(self) -> list[LedgerEntry]:
        """Return the entries of the ledger."""
        found = (self.store.get(meta.key) for meta in self.store.list(f"{LEDGER_FOLDER}/"))
        return [decode(each.body, where="the ledger") for each in found if each is not None]

    @property
    def history(self) -> str:
        """The decisions: c claimed, r attempt aborted, R rolled back, C committed."""
        return "".join(_letter(entry.fact, self.instant) for entry in self.entries())

    def states(self) -> list[str]:
        """Return the states of the instant of the plan on the timeline."""
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
        """Return the heartbeat of the plan; None if there is none."""
        found = self.store.get(heartbeat_key(self.instant))
        return None if found is None else heartbeat_status(self.instant, found).record

    def read(self) -> dict[str, int]:
        """Return the rows that a reader sees."""
        with Table.open(str(self.root), options=dict(OPTIONS)) as table:
            found = table.read().select(["id", "value"]).to_pylist()
        rows = {row["id"]: row["value"] for row in found}
        assert len(rows) == len(found), f"duplicate key: {found}"
        return rows

    def check(self) -> None:
        """Check the invariants of every scene: S1, S4, S5, and a consistent table."""
        assert self.read() == self.rows
        assert self.states().count("COMPLETED") <= 1
        assert self.history.count("C") + self.history.count("R") <= 1
        found = validate(self.store, more=[check_ledger])
        assert found.problems == ()

    def __enter__(self) -> Self:
        """Start no process yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the processes that still run."""
        del kind, error, trace
        for each in self.processes:
            if each.process.is_alive():
                each.process.kill()
                each.process.join()


def _letter(fact: Fact, instant: str) -> str:
    match fact:
        case Claim(about) if about == instant:
            return "c"
        case Rollback(about, attempt=attempt) if about == instant:
            return "R" if attempt is None else "r"
        case PlanRollback(instants=instants) if instant in instants:
            return "R"
        case Commit(about) if about == instant:
            return "C"
        case _:
            return ""


def template_table(home: Path, service: str, *, stays: bool = False) -> Path:
    """Create a table with a plan of a service, to be copied by stages."""
    root = home / service
    more = {"stays": stays}
    process = FORK.Process(target=make_table, args=(root, service), kwargs=more, daemon=True)
    process.start()
    process.join(TIMEOUT_S)
    assert process.exitcode == 0, f"the table was not created: {process.exitcode}"
    return root
