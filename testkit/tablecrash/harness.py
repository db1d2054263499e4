"""Kills a writer before and after each of its requests, and checks the table after each."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from testkit.tablecrash import scenario
from testkit.tablecrash.children import fork, wait
from testkit.tablecrash.stops import OffClock, Stop, StoppingStore
from tidelock.hudi.timeline.instant import Action
from tidelock.storage.local import LocalStore

UPDATE: scenario.Rows = {"a1": "victim", "b1": "victim", "b9": "victim"}
AGAIN: scenario.Rows = {"a2": "again", "c7": "again"}
KINDS = ("COPY_ON_WRITE", "MERGE_ON_READ")
_SHARED = ("tidelock", "pyarrow", "numpy", "fastavro")

_NEVER = Stop(lambda _number, _verb, _key: False)

Life = Callable[[StoppingStore], None]


@dataclass(slots=True)
class Report:
    """The number of killed writers per point, and the problems found."""

    points: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        for place, count in sorted(self.points.items()):
            yield f"{place:<44} {count:>5}"
        yield f"{'points':<44} {self.points.total():>5}"
        yield f"{'problems':<44} {len(self.problems):>5}"
        yield from self.problems


@dataclass(slots=True)
class Harness:
    """Writers on copies of one table, forked from this process, which has no other threads."""

    home: Path
    report: Report = field(default_factory=Report)

    def kill_writers(self, kind: str) -> None:
        """Kill an upsert at each request of begin, write, commit and publish."""
        table = self._table(kind)
        after = {**scenario.FIRST, **UPDATE}
        self._kill_at_each(f"upsert {kind}", table, _upsert, after)

    def kill_rollbacks(self, kind: str) -> None:
        """Kill a rollback at each of its requests: of its own write, and of a dead writer's."""
        self._kill_at_each(f"rollback {kind}", self._table(kind), _give_up, scenario.FIRST)
        abandoned = self._table(kind)
        self._run(abandoned, _upsert, Stop(_first_entry))
        self._kill_at_each(f"recover {kind}", abandoned, _recover, scenario.FIRST)

    def kill_restores(self, kind: str) -> None:
        """Kill rollbacks, restores and savepoint operations at each request."""
        updated = {**scenario.FIRST, **UPDATE}
        kept = self._table(kind)
        self._kill_at_each(f"savepoint {kind}", kept, scenario.savepoint, scenario.FIRST)
        self._run(kept, scenario.savepoint, _NEVER)
        self._kill_at_each(f"release {kind}", kept, scenario.release, scenario.FIRST)
        self._run(kept, _upsert, _NEVER)
        place = f"roll back a commit {kind}"
        self._kill_at_each(place, kept, scenario.roll_back_last, scenario.FIRST, before=updated)
        self._run(kept, _upsert_again, _NEVER)
        more = {**updated, **AGAIN}
        self._kill_at_each(f"restore {kind}", kept, scenario.restore, scenario.FIRST, before=more)

    def _table(self, kind: str) -> Path:
        """Return a table, created by a separate process so that this one stays without threads."""
        root = Path(tempfile.mkdtemp(dir=self.home))
        loaded = self.home / "modules"

        def make() -> None:
            scenario.make_table(root, kind)
            loaded.write_text("\n".join(sys.modules))

        wait(fork(make))
        # Lazy imports are loaded here, once for all forked writers.
        for name in loaded.read_text().splitlines():
            if name.partition(".")[0] in _SHARED:
                importlib.import_module(name)
        return root

    def _kill_at_each(
        self,
        place: str,
        table: Path,
        life: Life,
        after: scenario.Rows,
        *,
        before: scenario.Rows = scenario.FIRST,
    ) -> None:
        for is_after in (False, True):
            when = "after" if is_after else "before"
            number = 0
            while True:
                number += 1
                root = Path(tempfile.mkdtemp(dir=self.home)) / "table"
                shutil.copytree(table, root)
                stop = Stop(_nth(number), after=is_after)
                hit, acked = self._run(root, life, stop)
                found = self._check(root, before, after, acked=acked)
                self.report.problems += [f"{place} {when} {number}: {each}" for each in found]
                shutil.rmtree(root.parent)
                if not hit:
                    break
                self.report.points[f"{place}, {when} a request"] += 1

    def _run(self, root: Path, life: Life, stop: Stop) -> tuple[bool, bool]:
        """Return whether the writer was killed, and whether its success was acknowledged."""
        journal = root.parent / f"{root.name}.acked"
        journal.unlink(missing_ok=True)

        def live() -> None:
            life(StoppingStore(LocalStore(root), stop))
            journal.write_text("acked")

        status = wait(fork(live))
        hit = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not hit and status != 0:
            self.report.problems.append(f"{root.name}: the victim exited with status {status}")
        return hit, journal.exists()

    def _check(
        self, root: Path, before: scenario.Rows, after: scenario.Rows, *, acked: bool
    ) -> list[str]:
        output = root.parent / f"{root.name}.problems"

        def inspect_table() -> None:
            try:
                found = scenario.inspect(root, before, after, acked=acked)
            except Exception as error:
                found = [f"the inspection raised {error!r}"]
            output.write_text(json.dumps(found))

        wait(fork(inspect_table))
        problems: list[str] = ["the inspection died"]
        if output.exists():
            problems = json.loads(output.read_text())
        return problems


def _upsert(store: StoppingStore) -> None:
    with scenario.open_on(store) as table:
        table.upsert(scenario.rows_of(UPDATE))


def _upsert_again(store: StoppingStore) -> None:
    with scenario.open_on(store) as table:
        table.upsert(scenario.rows_of(AGAIN))


def _recover(store: StoppingStore) -> None:
    with scenario.open_on(store, OffClock(scenario.HOUR_MS)) as table:
        table.writer().transactions.recover()


def _give_up(store: StoppingStore) -> None:
    """Begin a write, create a data file, and roll it back."""
    with scenario.open_on(store) as table:
        transactions = table.writer().transactions
        transactions.ledger.refresh()
        action = Action.COMMIT if table.properties.type.value == KINDS[0] else Action.DELTA_COMMIT
        transaction = transactions.begin(action, "UPSERT", markers=False)
        name = f"a/none-0_0-{transaction.attempt}-0_{transaction.instant}.parquet"
        with store.upload(name) as upload:
            upload.write(b"PAR1")
            upload.finish()
        transaction.rollback("given up")


def _nth(number: int) -> Callable[[int, str, str], bool]:
    return lambda count, _verb, _key: count == number


def _first_entry(_number: int, verb: str, key: str) -> bool:
    return verb == "put" and key.startswith(".hoodie/.tidelock/ledger/")
