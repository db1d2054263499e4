"""A fleet of writers and services on one table: started, killed at random, and checked."""

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
from testkit.servicechaos.worker import HEARTBEAT_MS, MISSES, OPTIONS
from tidelock.hudi.timeline.active import TIMELINE_FOLDER, load_timeline
from tidelock.hudi.timeline.history import Archive
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_ledger import check_ledger
from tidelock.storage.uri import open_store
from tidelock.txn.heartbeats import HEARTBEAT_FOLDER

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])
_TIMEOUT_S = 120
_DEAD_S = HEARTBEAT_MS * MISSES / 1000 + 0.5
"""After this time every heartbeat of the fleet has expired."""


@dataclass(slots=True)
class Result:
    """The result of a run; without problems, every guarantee held."""

    batches: int = 0
    kills: int = 0
    completed: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the result as lines of text."""
        yield f"{'batches written':<28} {self.batches:>6}"
        yield f"{'processes killed':<28} {self.kills:>6}"
        for action, count in sorted(self.completed.items()):
            yield f"{f'completed {action}':<28} {count:>6}"
        yield f"{'problems':<28} {len(self.problems):>6}"
        yield from self.problems


@dataclass(slots=True)
class Fleet:
    """Numbered processes; the first `writers` write, the others run table services."""

    home: Path
    kind: str
    writers: int
    services: int
    files: ExitStack
    result: Result = field(default_factory=Result)
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: Counter[int] = field(default_factory=Counter)

    @property
    def uri(self) -> str:
        """The URI of the table."""
        return str(self.home / "table")

    @property
    def stop(self) -> Path:
        """The file whose existence stops all processes."""
        return self.home / "stop"

    def start(self, number: int) -> None:
        """Start or restart one process."""
        role = "writer" if number < self.writers else "service"
        self.starts[number] += 1
        output = self.files.enter_context((self.home / f"{number}.out").open("ab"))
        errors = self.files.enter_context((self.home / f"{number}.err").open("ab"))
        program = [sys.executable, "-m", "testkit.servicechaos.worker"]
        self.running[number] = subprocess.Popen(
            [*program, role, self.uri, str(number), str(self.stop)], stdout=output, stderr=errors
        )

    def run_with_kills(self, seconds: float) -> None:
        """Kill a ready process every second, at least until a batch was written."""
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
            self._wait_for(number)
            self.result.kills += 1
            self.start(number)

    def _output(self, number: int) -> list[str]:
        return (self.home / f"{number}.out").read_text(encoding="utf-8").splitlines()

    def _is_ready(self, number: int) -> bool:
        """Return whether a process may be killed: a writer must have written since its start."""
        lines = self._output(number)
        if lines.count("ready") != self.starts[number]:
            return False
        return number >= self.writers or (lines[-1].startswith("begins") and lines[-2] != "ready")

    def _has_written(self, until: float) -> bool:
        """Return whether a batch was written, or the timeout has passed."""
        lines = (line for number in range(self.writers) for line in self._output(number))
        return time.monotonic() > until + _TIMEOUT_S or any(s.startswith("wrote") for s in lines)

    def end(self) -> None:
        """Ask all processes to end, and wait for them."""
        self.stop.touch()
        for number in sorted(self.running):
            self._wait_for(number)

    def _wait_for(self, number: int) -> None:
        """Wait for the end of a process; an exit status other than 0 or SIGKILL is a problem."""
        code = self.running.pop(number).wait(_TIMEOUT_S)
        if code not in (0, -signal.SIGKILL):
            errors = (self.home / f"{number}.err").read_text(encoding="utf-8")
            self.result.problems.append(f"process {number} ended with {code}: {errors[-2_000:]}")

    def kill_all(self) -> None:
        """Kill all processes that still run."""
        for process in self.running.values():
            process.kill()
            process.wait()

    def batches(self) -> tuple[dict[int, int], dict[int, set[int]]]:
        """Return the last acknowledged value of each key, and all values that writers began."""
        wrote: dict[int, int] = {}
        begun: dict[int, set[int]] = defaultdict(set)
        for number in range(self.writers):
            for line in self._output(number):
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
        """Check rows, keys, plans, and the table as a whole."""
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
        """S10: nothing of dead processes is left after their heartbeats expired and one cycle."""
        state = table.writer().transactions.ledger.refresh()
        for plan in state.plans.values():
            yield f"S10: the {plan.action} {plan.instant} is still pending"
        table.refresh()
        for instant in table.timeline:
            if not instant.is_completed:
                yield f"S10: {instant.file_name} is still on the timeline"
        for meta in open_store(self.uri).list(f"{HEARTBEAT_FOLDER}/"):
            # A heartbeat later than the ledger reserves its time; later writes remove it.
            if meta.key.rpartition("/")[2] <= state.time:
                yield f"S10: {meta.key} is left"

    def _rows(self, rows: list[dict[str, int]]) -> Iterator[str]:
        wrote, begun = self.batches()
        if not wrote:
            yield "no batch was written"
        values = {row["id"]: row["value"] for row in rows}
        if len(values) != len(rows):
            yield f"T4: duplicate keys: {len(rows)} rows of {len(values)} keys"
        for key, value in sorted(wrote.items()):
            # A batch whose writer was killed may exist, but nothing older than acknowledged ones.
            seen = values.get(key, 0)
            if seen < value or seen not in begun[key]:
                yield f"T4: key {key}: expected {value} or later, found {seen}"

    def _completed(self) -> Iterator[str]:
        """S1: one completed instant per request, on the active and the archived timeline."""
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
    """Create a table and its fleet; kill all processes at the end."""
    with ExitStack() as stack:
        created = Fleet(home, kind, writers, services, stack)
        stack.callback(created.kill_all)
        tl.Table.create(created.uri, SCHEMA, key="id", type=kind, options=OPTIONS).close()
        yield created


def run(home: Path, kind: str, *, seconds: float, writers: int, services: int) -> Result:
    """Run a fleet, kill a process each second, and check everything."""
    with fleet(home, kind, writers=writers, services=services) as running:
        running.run_with_kills(seconds)
        running.end()
        time.sleep(_DEAD_S)
        running.inspect()
        return running.result
