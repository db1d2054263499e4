"""Kills a writer before and after each of its requests, and lets a newcomer look after each."""

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

from tidelock.store.local import LocalStore
from tidelock.table.timeline.instant import Action
from tidelock.testing.tablecrash import story
from tidelock.testing.tablecrash.children import fork, wait
from tidelock.testing.tablecrash.stops import OffClock, Stop, StoppingStore

UPDATE: story.Rows = {"a1": "victim", "b1": "victim", "b9": "victim"}
AGAIN: story.Rows = {"a2": "again", "c7": "again"}
KINDS = ("COPY_ON_WRITE", "MERGE_ON_READ")
_SHARED = ("tidelock", "pyarrow", "numpy", "fastavro")

_NEVER = Stop(lambda _number, _verb, _key: False)

Life = Callable[[StoppingStore], None]


@dataclass(slots=True)
class Report:
    """How many victims were hit where, and what was wrong afterwards."""

    points: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the report for a reader."""
        for place, count in sorted(self.points.items()):
            yield f"{place:<44} {count:>5}"
        yield f"{'points':<44} {self.points.total():>5}"
        yield f"{'problems':<44} {len(self.problems):>5}"
        yield from self.problems


@dataclass(slots=True)
class Harness:
    """Victims on copies of one table, forked from this process, which has no other threads."""

    home: Path
    report: Report = field(default_factory=Report)

    def kill_writers(self, kind: str) -> None:
        """Kill an upsert at each request of begin, write, commit and publish."""
        table = self._table(kind)
        after = {**story.FIRST, **UPDATE}
        self._kill_at_each(f"upsert {kind}", table, _upsert, after)

    def kill_undoers(self, kind: str) -> None:
        """Kill a roll-back at each of its requests, of one's own write and of a dead one's."""
        self._kill_at_each(f"rollback {kind}", self._table(kind), _give_up, story.FIRST)
        abandoned = self._table(kind)
        self._run(abandoned, _upsert, Stop(_first_entry))
        self._kill_at_each(f"recover {kind}", abandoned, _recover, story.FIRST)

    def kill_restorers(self, kind: str) -> None:
        """Kill who takes back commits, and who keeps a state or gives it up, at each request."""
        updated = {**story.FIRST, **UPDATE}
        kept = self._table(kind)
        self._kill_at_each(f"savepoint {kind}", kept, story.keep, story.FIRST)
        self._run(kept, story.keep, _NEVER)
        self._kill_at_each(f"release {kind}", kept, story.release, story.FIRST)
        self._run(kept, _upsert, _NEVER)
        place = f"take back {kind}"
        self._kill_at_each(place, kept, story.take_back, story.FIRST, before=updated)
        self._run(kept, _upsert_again, _NEVER)
        more = {**updated, **AGAIN}
        self._kill_at_each(f"restore {kind}", kept, story.restore, story.FIRST, before=more)

    def _table(self, kind: str) -> Path:
        """Return a table, made by a process of its own so that this one stays without threads."""
        root = Path(tempfile.mkdtemp(dir=self.home))
        loaded = self.home / "modules"

        def make() -> None:
            story.make_table(root, kind)
            loaded.write_text("\n".join(sys.modules))

        wait(fork(make))
        # What loads on first use is loaded here, once for all victims.
        for name in loaded.read_text().splitlines():
            if name.partition(".")[0] in _SHARED:
                importlib.import_module(name)
        return root

    def _kill_at_each(
        self,
        place: str,
        table: Path,
        life: Life,
        after: story.Rows,
        *,
        before: story.Rows = story.FIRST,
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
                found = self._ask_newcomer(root, before, after, acked=acked)
                self.report.problems += [f"{place} {when} {number}: {each}" for each in found]
                shutil.rmtree(root.parent)
                if not hit:
                    break
                self.report.points[f"{place}, {when} a request"] += 1

    def _run(self, root: Path, life: Life, stop: Stop) -> tuple[bool, bool]:
        """Return whether the victim was killed, and whether it had been told of its success."""
        journal = root.parent / f"{root.name}.acked"
        journal.unlink(missing_ok=True)

        def live() -> None:
            life(StoppingStore(LocalStore(root), stop))
            journal.write_text("acked")

        status = wait(fork(live))
        hit = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not hit and status != 0:
            self.report.problems.append(f"{root.name}: the victim ended with status {status}")
        return hit, journal.exists()

    def _ask_newcomer(
        self, root: Path, before: story.Rows, after: story.Rows, *, acked: bool
    ) -> list[str]:
        told = root.parent / f"{root.name}.problems"

        def look() -> None:
            try:
                found = story.inspect(root, before, after, acked=acked)
            except Exception as error:
                found = [f"the newcomer raised {error!r}"]
            told.write_text(json.dumps(found))

        wait(fork(look))
        problems: list[str] = json.loads(told.read_text()) if told.exists() else ["it died"]
        return problems


def _upsert(store: StoppingStore) -> None:
    with story.open_on(store) as table:
        table.upsert(story.rows_of(UPDATE))


def _upsert_again(store: StoppingStore) -> None:
    with story.open_on(store) as table:
        table.upsert(story.rows_of(AGAIN))


def _recover(store: StoppingStore) -> None:
    with story.open_on(store, OffClock(story.HOUR_MS)) as table:
        table.writer().transactions.recover()


def _give_up(store: StoppingStore) -> None:
    """Begin a write, put a data file there, and roll it back."""
    with story.open_on(store) as table:
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
