"""A fleet of writers and services on one table: started, killed at random, called to account."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import tidelock as tl
from tidelock.ops.validate.ledger import check_ledger
from tidelock.ops.validate.validating import validate
from tidelock.store.uri import open_store
from tidelock.table.timeline.active import TIMELINE_FOLDER, load_timeline
from tidelock.table.timeline.archive import Archive
from tidelock.testing.servicechaos.serving import HEARTBEAT_MS, MISSES, OPTIONS
from tidelock.txn.heartbeat import HEARTBEAT_FOLDER

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])
_PATIENCE_S = 120
_DEAD_S = HEARTBEAT_MS * MISSES / 1000 + 0.5
"""After that every heartbeat of the fleet counts as dead."""


@dataclass(slots=True)
class Result:
    """What a run came to; without problems, every promise was kept."""

    batches: int = 0
    kills: int = 0
    completed: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the result for a reader."""
        yield f"{'batches written':<28} {self.batches:>6}"
        yield f"{'processes killed':<28} {self.kills:>6}"
        for action, count in sorted(self.completed.items()):
            yield f"{f'completed {action}':<28} {count:>6}"
        yield f"{'problems':<28} {len(self.problems):>6}"
        yield from self.problems


@dataclass(slots=True)
class Fleet:
    """Processes with the numbers 0, 1, ...; the first `writers` of them write, the others serve."""

    home: Path
    kind: str
    writers: int
    services: int
    held: ExitStack
    result: Result = field(default_factory=Result)
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: Counter[int] = field(default_factory=Counter)

    @property
    def uri(self) -> str:
        """The table."""
        return str(self.home / "table")

    @property
    def stop(self) -> Path:
        """The file that tells everybody to stop."""
        return self.home / "stop"

    def start(self, number: int) -> None:
        """Start one process, or start it again."""
        role = "writer" if number < self.writers else "service"
        self.starts[number] += 1
        said = self.held.enter_context((self.home / f"{number}.out").open("ab"))
        complained = self.held.enter_context((self.home / f"{number}.err").open("ab"))
        program = [sys.executable, "-m", "tidelock.testing.servicechaos.serving"]
        self.running[number] = subprocess.Popen(
            [*program, role, self.uri, str(number), str(self.stop)], stdout=said, stderr=complained
        )

    def disturb(self, seconds: float) -> None:
        """Kill one every second, of those that have begun; go on until something was written."""
        for number in range(self.writers + self.services):
            self.start(number)
        until = time.monotonic() + seconds
        while time.monotonic() < until or not self._has_written(until):
            time.sleep(1)
            ready = [number for number in sorted(self.running) if self._is_ready(number)]
            if not ready:
                continue
            number = random.choice(ready)
            self.running[number].kill()
            self._take(number)
            self.result.kills += 1
            self.start(number)

    def _said(self, number: int) -> list[str]:
        return (self.home / f"{number}.out").read_text(encoding="utf-8").splitlines()

    def _is_ready(self, number: int) -> bool:
        """Tell whether a process may be killed: a writer has written before that, this time too."""
        said = self._said(number)
        if said.count("ready") != self.starts[number]:
            return False
        return number >= self.writers or (said[-1].startswith("begins") and said[-2] != "ready")

    def _has_written(self, until: float) -> bool:
        """Tell whether a batch was written, or nobody wants to wait any longer for one."""
        said = (line for number in range(self.writers) for line in self._said(number))
        return time.monotonic() > until + _PATIENCE_S or any(s.startswith("wrote") for s in said)

    def end(self) -> None:
        """Let everybody end what they are at."""
        self.stop.touch()
        for number in sorted(self.running):
            self._take(number)

    def _take(self, number: int) -> None:
        """Wait for the end of a process; nobody ends of its own accord before it is told to."""
        code = self.running.pop(number).wait(_PATIENCE_S)
        if code not in (0, -signal.SIGKILL):
            said = (self.home / f"{number}.err").read_text(encoding="utf-8")
            self.result.problems.append(f"process {number} ended with {code}: {said[-2_000:]}")

    def kill_all(self) -> None:
        """Leave nobody behind."""
        for process in self.running.values():
            process.kill()
            process.wait()

    def told(self) -> tuple[dict[int, int], dict[int, set[int]]]:
        """Return the last value of each key that was written, and all that ever were begun."""
        wrote: dict[int, int] = {}
        begun: dict[int, set[int]] = defaultdict(set)
        for number in range(self.writers):
            for line in self._said(number):
                if line == "ready":
                    continue
                word, value, *keys = line.split()
                self.result.batches += word == "wrote"
                for key in map(int, keys):
                    if word == "wrote":
                        wrote[key] = int(value)
                    else:
                        begun[key].add(int(value))
        return wrote, begun

    def inspect(self) -> None:
        """Call everybody to account: rows, keys, plans, and the table as a whole."""
        problems = self.result.problems
        with tl.Table.open(self.uri, options=OPTIONS) as table:
            _run_one_cycle(table)
            problems += self._left_pending(table)
            rows = table.read().to_pylist()
        problems += self._rows(rows)
        problems += self._completed()
        found = validate(open_store(self.uri), more=[check_ledger])
        problems += [f"{each.check}: {each.object} {each.what}" for each in found.problems]

    def _left_pending(self, table: tl.Table) -> Iterator[str]:
        """S10: nothing of the dead is left a heartbeat's life and one cycle later."""
        fold = table.writer().transactions.ledger.refresh()
        for plan in fold.plans.values():
            yield f"S10: the {plan.action} {plan.instant} is still pending"
        table.refresh()
        for instant in table.timeline:
            if not instant.is_completed:
                yield f"S10: {instant.file_name} is still on the timeline"
        for meta in open_store(self.uri).list(f"{HEARTBEAT_FOLDER}/"):
            # One later than the ledger reserves its time, and goes with the next writes.
            if meta.key.rpartition("/")[2] <= fold.time:
                yield f"S10: {meta.key} is left"

    def _rows(self, rows: list[dict[str, int]]) -> Iterator[str]:
        wrote, begun = self.told()
        if not wrote:
            yield "nothing was written"
        values = {row["id"]: row["value"] for row in rows}
        if len(values) != len(rows):
            yield f"T4: a key is there twice: {len(rows)} rows of {len(values)} keys"
        for key, value in sorted(wrote.items()):
            # A batch whose writer was killed may be there, but nothing older than confirmed ones.
            seen = values.get(key, 0)
            if seen < value or seen not in begun[key]:
                yield f"T4: key {key} has {seen}, and {value} was confirmed"

    def _completed(self) -> Iterator[str]:
        """S1: one completed instant for each request, on the timeline and in the history."""
        store = open_store(self.uri)
        timeline = load_timeline(store, TIMELINE_FOLDER)
        done = {(i.requested, i.completion, i.action) for i in timeline.files if i.is_completed}
        done |= {(i.requested, i.completion, i.action) for i in Archive(store).instants()}
        self.result.completed.update(action.value for _, _, action in done)
        for requested, count in Counter(requested for requested, _, _ in done).items():
            if count > 1:
                yield f"S1: {requested} was completed {count} times"


def _run_one_cycle(table: tl.Table) -> None:
    table.clean()
    table.compact()
    table.cluster()
    table.clean()


@contextmanager
def fleet(home: Path, kind: str, *, writers: int, services: int) -> Iterator[Fleet]:
    """Make a table for a fleet, and leave no process behind."""
    with ExitStack() as held:
        made = Fleet(home, kind, writers, services, held)
        held.callback(made.kill_all)
        tl.Table.create(made.uri, SCHEMA, key="id", type=kind, options=OPTIONS).close()
        yield made


def run(home: Path, kind: str, *, seconds: float, writers: int, services: int) -> Result:
    """Let a fleet loose on a table for a while, kill one each second, and check everything."""
    with fleet(home, kind, writers=writers, services=services) as ships:
        ships.disturb(seconds)
        ships.end()
        time.sleep(_DEAD_S)
        ships.inspect()
        return ships.result
