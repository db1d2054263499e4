"""`tidelock soak`: a fleet writes one table for a long time, with faults, measurements and checks.

The state is saved in the folder during the run, so an interrupted soak continues with the same
table, and its report covers all of it.
"""

from __future__ import annotations

import json
import operator
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from tidelock.core.clock import Clock
from tidelock.core.errors import InvalidInput
from tidelock.core.system import SeededIds
from tidelock.workload.fleet import FleetRun
from tidelock.workload.journal import FleetRecord, ProgramEvent
from tidelock.workload.oracle import check_table
from tidelock.workload.soak_report import Measurements, ResourceSample, WriteSample, resource_checks
from tidelock.workload.steps import StepGenerator
from tidelock.workload.table_program import FAST_OPTIONS, Role, TableFleetSpec, TablePool

_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_MB: Final = os.sysconf("SC_PAGE_SIZE") / 1024 / 1024
_GROUP, _USER, _SYSTEM, _THREADS, _PAGES = 2, 11, 12, 17, 21
"""Fields of /proc/PID/stat, counted from the one after the name of the program."""


class ResourceUsage(NamedTuple):
    """Resources that one program and its child processes use at one time."""

    memory_mb: float = 0.0
    cpu_s: float = 0.0
    threads: int = 0
    handles: int = 0


def usages(groups: Iterable[int]) -> dict[int, ResourceUsage]:
    """Return the usage of each of these process groups; empty without /proc."""
    found: dict[int, ResourceUsage] = {}
    for group, usage in _processes(frozenset(groups)):
        total = found.get(group, ResourceUsage())
        found[group] = ResourceUsage(*map(operator.add, total, usage))
    return found


def _processes(groups: frozenset[int]) -> Iterator[tuple[int, ResourceUsage]]:
    for folder in _PROC.iterdir() if _PROC.is_dir() else ():
        if not folder.name.isdigit():
            continue
        try:
            # The name is in parentheses and may contain any character, parentheses too.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            group = int(fields[_GROUP])
            if group not in groups:
                continue
            cpu_s = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS
            handles = sum(1 for _ in (folder / "fd").iterdir())
        except (OSError, IndexError):
            # The process has ended.
            continue
        memory_mb = int(fields[_PAGES]) * _PAGE_MB
        yield group, ResourceUsage(memory_mb, cpu_s, int(fields[_THREADS]), handles)


class ProcessFault(Enum):
    """A fault injected into a program."""

    KILL = "kill"
    """SIGKILL; the program restarts immediately."""
    SUSPEND = "sleep"
    """SIGSTOP for longer than heartbeats may be missing."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of soak."""

    name: str
    description: str
    writers: Mapping[Role, int]
    services: int = 1
    readers: int = 1
    pause_ms: int = 0
    reader_pause_ms: int = 250
    """How long a reader waits between two reads."""
    rows: int = 40
    keys: int = 2_000
    table_type: str = "MERGE_ON_READ"
    process_faults: tuple[ProcessFault, ...] = ()
    fault_every_s: float = 5.0
    store_faults: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def programs(self, writers: int | None) -> dict[str, Role]:
        """Return the roles by program name; `writers` overrides the count of the first role."""
        found: dict[str, Role] = {}
        for at, (role, count) in enumerate(self.writers.items()):
            number = count if writers is None or at > 0 else writers
            found.update({f"{role.value}-{n}": role for n in range(1, number + 1)})
        found.update({f"services-{n}": Role.SERVICES for n in range(1, self.services + 1)})
        found.update({f"reader-{n}": Role.READER for n in range(1, self.readers + 1)})
        return found

    def spec(self, store: SoakStore, seed: int) -> TableFleetSpec:
        """Return the spec of the fleet, with its table in `store`."""
        return TableFleetSpec(
            store.uri,
            StepGenerator(seed=seed, keys=self.keys, rows=self.rows),
            self.table_type,
            store.settings,
            {**FAST_OPTIONS, **self.options},
            self.pause_ms,
            reader_pause_ms=self.reader_pause_ms,
            deletes=Role.SQL in self.writers,
        )


SCENARIOS: Final = {
    each.name: each
    for each in (
        Scenario(
            "high-frequency",
            "small writes at the highest rate, concurrent with every table service",
            {Role.PYTHON: 4},
            reader_pause_ms=1_000,
            rows=1,
        ),
        Scenario(
            "mixed-sql",
            "UPDATE, DELETE and MERGE concurrent with Spark and Python writers on the same rows",
            {Role.PYTHON: 2, Role.SPARK: 1, Role.SQL: 1},
            pause_ms=50,
        ),
        Scenario(
            "long-stream",
            "a steady stream of batches and a slow second one, for hours",
            {Role.PYTHON: 1, Role.SPARK: 1},
            pause_ms=500,
            rows=200,
            keys=20_000,
        ),
        Scenario(
            "chaos",
            "writers and services are killed and suspended all the time, on a store that loses"
            " requests and replies if it can inject faults",
            {Role.PYTHON: 4},
            services=2,
            process_faults=(ProcessFault.KILL, ProcessFault.SUSPEND),
            fault_every_s=3.0,
            store_faults=True,
        ),
    )
}


def scenario(name: str) -> Scenario:
    """Return a scenario by its name. Raises: `InvalidInput`."""
    if name not in SCENARIOS:
        raise InvalidInput(
            f"--scenario: unknown scenario {name!r}", hint=f"use one of {', '.join(SCENARIOS)}"
        )
    return SCENARIOS[name]


_STATE: Final = "soak.json"
_MEASUREMENTS: Final = "curves.json"


def save(folder: Path, scenario: str, elapsed_s: float, measurements: Measurements) -> None:
    """Save the state of this run."""
    fields = {
        "samples": [asdict(sample) for sample in measurements.samples],
        "writes": measurements.writes,
        "harms": measurements.faults,
        "requests": [[at, role, sent] for (at, role), sent in measurements.requests.items()],
    }
    _write(folder / _MEASUREMENTS, fields)
    _write(folder / _STATE, {"scenario": scenario, "elapsed_s": elapsed_s})


def has_earlier_run(folder: Path) -> bool:
    """Return whether the folder has the state of an earlier run."""
    return (folder / _STATE).exists()


@dataclass(slots=True)
class SoakStore:
    """The table's URI and the store's settings, with counts of requests and injected faults."""

    uri: str
    description: str
    settings: Mapping[str, str] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    stop_faults: Callable[[], None] = lambda: None
    """Stops injecting faults, so that the final checks test the table and not the network."""


class StoreStarter(Protocol):
    """Starts a store for the duration of one soak."""

    def __call__(
        self, settings: Mapping[str, str], *, faulty: bool, seed: int
    ) -> AbstractContextManager[SoakStore]:
        """Start the store, with faults in its network if `faulty`."""
        ...


STORE_STARTERS: Final[dict[str, StoreStarter]] = {}
"""Stores that a soak can start by name. The test kit of a source checkout adds its own."""


@contextmanager
def open_store(
    store: str, folder: Path, settings: Mapping[str, str], *, faulty: bool, seed: int
) -> Iterator[SoakStore]:
    """Yield the location of the table: below `folder` unless `store` names another one.

    Raises: `InvalidInput` if `folder` has a soak whose table ended with its server, or if the
    server that `store` names is not available.
    """
    if store in STORE_STARTERS:
        if has_earlier_run(folder):
            raise InvalidInput(
                f"the soak in {folder} cannot continue: its table ended with its server",
                hint="use another --folder",
            )
        with STORE_STARTERS[store](settings, faulty=faulty, seed=seed) as started:
            yield started
    elif store == "seaweedfs":
        raise InvalidInput(
            "--store seaweedfs: the server is part of the test kit, which is not installed",
            hint='run it in a source checkout: make soak ARGS="--store seaweedfs"',
        )
    elif store:
        uri = f"{store.rstrip('/')}/orders"
        yield SoakStore(uri, uri, settings)
    else:
        yield SoakStore(str(folder / "orders"), "local disk", settings)


def load(folder: Path, scenario: str) -> tuple[float, Measurements]:
    """Return the seconds and the measurements of an earlier run.

    Raises: `InvalidInput` if that run had another scenario.
    """
    state = json.loads((folder / _STATE).read_text())
    if state["scenario"] != scenario:
        raise InvalidInput(
            f"--folder {folder}: contains a soak of scenario {state['scenario']}, not {scenario}",
            hint="use that scenario or another folder",
        )
    fields: dict[str, list[Any]] = json.loads((folder / _MEASUREMENTS).read_text())
    return state["elapsed_s"], Measurements(
        [ResourceSample(**each) for each in fields["samples"]],
        [WriteSample(*each) for each in fields["writes"]],
        [(float(at), str(what)) for at, what in fields["harms"]],
        {(int(at), str(role)): Counter(sent) for at, role, sent in fields["requests"]},
    )


def _write(path: Path, value: object) -> None:
    """Replace a file atomically."""
    temporary = path.with_suffix(".fresh")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


_INTERVAL_MS: Final = 200
_SAMPLE_EVERY_S: Final = 5.0
_SAVE_EVERY_S: Final = 30.0
_SUSPENDED_S: Final = 6.0
"""Longer than the heartbeats of a fleet may be missing."""

_START_MS_MAX: Final = 120_000
_END_MS_MAX: Final = 120_000
_MESSAGES_MAX: Final = 3


class Soak(FleetRun[TableFleetSpec, Role]):
    """One soak with one fleet, possibly the continuation of an earlier run."""

    def __init__(
        self,
        scenario: Scenario,
        pool: TablePool,
        programs: dict[str, Role],
        clock: Clock,
        *,
        ids: SeededIds,
        on_progress: Callable[[str], None],
    ) -> None:
        super().__init__(pool, clock, interval_ms=_INTERVAL_MS)
        self.record = FleetRecord()
        self.measurements = Measurements()
        self.elapsed_s = 0.0
        self.commits_min = 0
        """The soak fails with fewer commits than this."""
        self.stop_store_faults: Callable[[], None] = lambda: None
        """Called after the programs have ended, before the table is checked."""
        self._scenario = scenario
        self._programs = programs
        self._ids = ids
        self._on_progress = on_progress
        self._earlier_starts = 0
        self._began_ms = 0
        self._earlier_s = 0.0
        self._sampled_s = -_SAMPLE_EVERY_S
        self._fault_s = 0.0
        self._saved_s = 0.0
        self._suspended: dict[str, float] = {}
        self._crashed: list[str] = []

    def resume(self) -> None:
        """Load the state of an earlier run from the folder, if there is one.

        Raises: `InvalidInput` if that run had another scenario.
        """
        if not has_earlier_run(self.pool.folder):
            return
        self.elapsed_s, self.measurements = load(self.pool.folder, self._scenario.name)
        self._earlier_starts = max((each.life for each in self.measurements.samples), default=0)
        self._earlier_s = self._sampled_s = self._fault_s = self._saved_s = self.elapsed_s

    def run(self, minutes: float) -> None:
        """Write for `minutes`, earlier runs included, then check everything."""
        self._start()
        self._began_ms = self._now_ms()
        try:
            self._poller.until(lambda: self.elapsed_s >= minutes * 60, float("inf"))
        finally:
            self._save()
        self._finish()

    def _start(self) -> None:
        """Start the programs, and wait until each has begun: a JVM takes a while."""
        began_ms = self._now_ms()
        for name, role in self._programs.items():
            self.pool.start(name, role)
        silent = set(self._programs)
        while silent and self._now_ms() < began_ms + _START_MS_MAX:
            for event in self.pool.read_journals():
                # Events of an earlier run come first; its measurements were loaded.
                self.record.add(event)
                silent -= {event.name} if event.at_ms >= began_ms else set()
            silent -= {name for name in silent if not self.pool.programs[name].is_running}
            self.clock.sleep_ms(_INTERVAL_MS)

    def _poll(self) -> None:
        self.elapsed_s = self._earlier_s + (self._now_ms() - self._began_ms) / 1000
        self._read_journals()
        self._restart_ended()
        if self.elapsed_s - self._sampled_s >= _SAMPLE_EVERY_S:
            self._sampled_s = self.elapsed_s
            self._sample()
        faults, every_s = self._scenario.process_faults, self._scenario.fault_every_s
        if faults and self.elapsed_s - self._fault_s >= every_s:
            self._fault_s = self.elapsed_s
            self._inject_fault()
        if self.elapsed_s - self._saved_s >= _SAVE_EVERY_S:
            self._saved_s = self.elapsed_s
            self._save()
            failures, count = self.record.failures, len(self.record.committed)
            failed = f", {len(failures)} attempts failed" if failures else ""
            self._on_progress(f"{self.elapsed_s / 60:6.1f} min  {count} writes{failed}")

    def _read_journals(self) -> None:
        for event in self.pool.read_journals():
            self.record.add(event)
            self._measure(event)

    def _measure(self, event: ProgramEvent) -> None:
        at_s = round(self.elapsed_s, 1)
        if event.kind == "wrote":
            times = (event.facts[name] for name in WriteSample._fields[1:])
            self.measurements.writes.append(WriteSample(at_s, *times))
        elif event.kind == "asked":
            role = self._programs[event.name].value
            self.measurements.add_requests(at_s, role, event.facts)

    def _restart_ended(self) -> None:
        """Resume programs that were suspended long enough, and restart those that ended."""
        for name, since_s in list(self._suspended.items()):
            if self.elapsed_s - since_s >= _SUSPENDED_S:
                del self._suspended[name]
                self.pool.resume(name)
        for name, program in list(self.pool.programs.items()):
            if not program.is_running:
                output = self.pool.last_output(name)
                self._crashed.append(f"{name}: {output}")
                self._on_progress(f"{name} ended unexpectedly: {output}")
                self.pool.start(name, program.role)

    def _inject_fault(self) -> None:
        """Kill or suspend one of the programs, but never the first of its role.

        So one program of each role runs through the whole soak, and its memory can be checked.
        """
        spared = {
            next(n for n, has in self._programs.items() if has is role)
            for role in Role
            if role in self._programs.values()
        }
        victims = [n for n in self._programs if n not in spared and n not in self._suspended]
        if not victims:
            return
        faults = self._scenario.process_faults
        name = victims[int(self._ids.jitter() * len(victims))]
        fault = faults[int(self._ids.jitter() * len(faults))]
        self.measurements.faults.append((round(self.elapsed_s, 1), f"{fault.value} {name}"))
        match fault:
            case ProcessFault.KILL:
                self.pool.kill(name)
                self.pool.start(name, self._programs[name])
            case ProcessFault.SUSPEND:
                self._suspended[name] = self.elapsed_s
                self.pool.suspend(name)

    def _sample(self) -> None:
        found = usages(program.process.pid for program in self.pool.programs.values())
        at_s = round(self.elapsed_s, 1)
        for program in self.pool.programs.values():
            if (usage := found.get(program.process.pid)) is not None:
                start = self._earlier_starts + program.starts
                sample = ResourceSample(at_s, program.name, start, *usage)
                self.measurements.samples.append(sample)

    def _finish(self) -> None:
        for name in self._suspended:
            self.pool.resume(name)
        self.pool.stop()
        until_ms = self._now_ms() + _END_MS_MAX
        programs = self.pool.programs.values()
        while any(p.is_running for p in programs) and self._now_ms() < until_ms:
            self._read_journals()
            self.clock.sleep_ms(_INTERVAL_MS)
        self._read_journals()
        late = [program.name for program in programs if program.is_running]
        self._expect(late, f"did not end when asked to: {', '.join(late)}", "every program ended")
        crashed = "; ".join(self._crashed[:_MESSAGES_MAX])
        self._expect(self._crashed, crashed, "no program ended unexpectedly")
        self._check_failures()
        self.stop_store_faults()
        self.checks.extend(check_table(self.pool, self.record))
        if self.commits_min:
            committed = len(self.record.committed)
            message = f"{committed:,} writes committed; {self.commits_min:,} were required"
            self._check(committed >= self.commits_min, message)
        self.checks.extend(resource_checks(self.measurements))
        self._save()

    def _check_failures(self) -> None:
        failures = self.record.failures
        if self._scenario.store_faults:
            # After an unknown outcome a program asks the table and continues.
            message = f"{len(failures)} attempts ended with an error and were resolved"
            self._check(passed=True, message=message)
            return
        first = f"{failures[0].name}: {failures[0].facts['says']}" if failures else ""
        self._expect(failures, f"{len(failures)} attempts failed; {first}", "no write failed")

    def _expect(self, wrong: object, failed: str, passed: str) -> None:
        self._check(not wrong, failed if wrong else passed)

    def _save(self) -> None:
        save(self.pool.folder, self._scenario.name, self.elapsed_s, self.measurements)
