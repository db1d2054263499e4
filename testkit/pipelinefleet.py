"""Two streamers, an SQL loop and a compactor on one table: nothing fails, every row is correct.

    python -m testkit.pipelinefleet --minutes 5

Each is a process: two `tidelock streamer` that read folders which are filled meanwhile; a program
that runs UPDATE, DELETE and MERGE in turn; repeated `tidelock compact`; and a reader. They change
the same keys of a merge-on-read table without an ordering field, so the later commit in the ledger
wins. A batch is one file, and its number determines what it does, as with the statements. So the
committed batches and statements, in order, determine every row of the table.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from testkit.streamers import next_event, run_folder, running_streamer, streamer_command
from tidelock.core.system import SystemClock
from tidelock.workload.fleet import Poller
from tidelock.workload.journal import FleetRecord, ProgramEvent
from tidelock.workload.oracle import check_table
from tidelock.workload.report import Check
from tidelock.workload.steps import StepGenerator
from tidelock.workload.table_program import Role, TableFleetSpec, TablePool, table_pool

STREAMERS = ("east", "west")
SQL = "sql"
READER = "reader"

_FILES_AHEAD = 3
"""Files that are ready in advance, so that a streamer never waits."""

_STARTING_MS = 420_000
_ENDING_S = 180
_COMPACT_EVERY_S = 2.0
_OPTIONS = {"hoodie.compact.inline.max.delta.commits": "5"}
"""All other options have Hudi's defaults, so every writer cleans and archives after commits."""


@dataclass(slots=True)
class Inbox:
    """The source folder of a streamer; its files are numbered from 0."""

    folder: Path
    generator: StepGenerator
    streamer: str
    written: int = 0

    @property
    def program(self) -> str:
        """The name of the streamer for the oracle: the application id of its transactions."""
        return f"streamer:{self.streamer}"

    def add_file(self) -> None:
        """Add the next file atomically."""
        rows = self.generator.rows_of(self.program, self.written)
        hidden = self.folder / f".{self.written}"
        hidden.write_text("".join(f"{json.dumps(row._asdict())}\n" for row in rows))
        hidden.rename(self.folder / f"{self.written:06}.json")
        self.written += 1


@dataclass(slots=True)
class FleetRun:
    """The state that the threads of a run share."""

    pool: TablePool
    record: FleetRecord = field(default_factory=FleetRecord)
    over: threading.Event = field(default_factory=threading.Event)
    streamers: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    compactions: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def collect(self) -> None:
        """Read the new journal lines of the programs."""
        for event in self.pool.read_journals():
            self.record.add(event)

    def all_started(self) -> bool:
        """Return whether every writer has written, or there is a problem."""
        names = (*(f"streamer:{name}" for name in STREAMERS), SQL)
        return bool(self.problems) or all(self.record.steps_of(name) for name in names)


def follow(
    streamer: subprocess.Popen[str], inbox: Inbox, is_over: Callable[[], bool]
) -> Iterator[ProgramEvent]:
    """Yield the batches of a streamer, and add a file for each; stop the streamer at the end."""
    batches = 0
    for _ in range(_FILES_AHEAD):
        inbox.add_file()
    while (event := next_event(streamer)) is not None:
        if event["event"] == "batch":
            batches += 1
            report = event["report"]
            facts = {
                "step": event["version"],
                "completion": report["completion"],
                "took_ms": event["duration_ms"],
                "rebases": report["rebases"],
            }
            yield ProgramEvent(inbox.program, "wrote", 0, facts)
            if not is_over():
                inbox.add_file()
        elif event["event"] == "idle" and batches == inbox.written and is_over():
            streamer.send_signal(signal.SIGTERM)


def _stream(fleet_run: FleetRun, name: str) -> None:
    """Run one streamer from its first file to its end; record problems."""
    folder, spec = fleet_run.pool.folder, fleet_run.pool.spec
    inbox = Inbox(folder / f"{name}-in", spec.generator, name)
    inbox.folder.mkdir()
    confs = {
        **spec.options,
        "hoodie.streamer.source.dfs.root": str(inbox.folder),
        "hoodie.datasource.write.partitionpath.field": "region",
    }
    command = [
        *streamer_command(Path(spec.uri), folder / name, operation="UPSERT", confs=confs),
        *("--source-class", "JsonDFSSource", "--writer-id", name, "--disable-compaction"),
        # A file is never split, so this is one file per batch.
        *("--source-limit", "1", "--spark-conf", "spark.master=local[1]"),
    ]
    try:
        with running_streamer(command, folder / f"{name}.log") as streamer:
            fleet_run.streamers[name] = streamer
            for event in follow(streamer, inbox, fleet_run.over.is_set):
                fleet_run.record.add(event)
            code = streamer.wait(_ENDING_S)
            if code:
                fleet_run.problems.append(f"streamer {name} exited with {code}")
    except Exception as error:
        fleet_run.problems.append(f"streamer {name}: {error}")


def _compact(fleet_run: FleetRun) -> None:
    """Run `tidelock compact` repeatedly until the end of the run."""
    spec = fleet_run.pool.spec
    command = [sys.executable, "-m", "tidelock.cli.submit", "compact", spec.uri, "run"]
    for name, value in spec.options.items():
        command += ["-O", f"{name}={value}"]
    while not fleet_run.over.wait(_COMPACT_EVERY_S):
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
        if done.returncode:
            fleet_run.problems.append(
                f"compact exited with {done.returncode}: {done.stdout.strip()}"
            )
            return
        report = json.loads(done.stdout)
        fleet_run.compactions["executed"] += len(report["executed"])
        fleet_run.compactions["left to others"] += len(report["left"])


def run(minutes: float, folder: Path, *, seed: int = 1) -> tuple[FleetRun, list[Check]]:
    """Run all processes for `minutes` after each has written, then check the table."""
    generator = StepGenerator(seed=seed, keys=20_000, rows=200)
    spec = TableFleetSpec(
        str(folder / "orders"),
        generator,
        options=_OPTIONS,
        pause_ms=0,
        reader_pause_ms=2_000,
        deletes=True,
    )
    with ExitStack() as stack:
        pool = stack.enter_context(table_pool(folder, spec))
        fleet_run = FleetRun(pool)
        threads = stack.enter_context(ThreadPoolExecutor(len(STREAMERS) + 1))
        stack.callback(fleet_run.over.set)
        pool.start(SQL, Role.SQL)
        pool.start(READER, Role.READER)
        futures = [threads.submit(_stream, fleet_run, name) for name in STREAMERS]
        futures.append(threads.submit(_compact, fleet_run))
        poller = Poller(SystemClock(), fleet_run.collect, 200)
        if not poller.until(fleet_run.all_started, _STARTING_MS):
            fleet_run.problems.append("not all writers have started")
        poller.until(lambda: _is_broken(fleet_run), minutes * 60_000)
        _end(fleet_run, futures)
        return fleet_run, [*checks_of(fleet_run), *check_table(pool, fleet_run.record)]


def _is_broken(fleet_run: FleetRun) -> bool:
    dead = [each.name for each in fleet_run.pool.programs.values() if not each.is_running]
    fleet_run.problems += [f"{name} died: {fleet_run.pool.last_output(name)}" for name in dead]
    return bool(fleet_run.problems)


def _end(fleet_run: FleetRun, futures: Sequence[Future[None]]) -> None:
    """Let all processes finish their current work."""
    fleet_run.over.set()
    fleet_run.pool.stop()
    if wait(futures, _ENDING_S).not_done:
        fleet_run.problems.append(f"a streamer or a compaction did not end within {_ENDING_S} s")
        for streamer in fleet_run.streamers.values():
            streamer.kill()
    for program in fleet_run.pool.programs.values():
        if (code := program.process.wait(_ENDING_S)) and not fleet_run.problems:
            output = fleet_run.pool.last_output(program.name)
            fleet_run.problems.append(f"{program.name} ended with {code}: {output}")
    fleet_run.collect()


def checks_of(fleet_run: FleetRun) -> Iterator[Check]:
    """Yield the checks that nothing failed, and that all processes did concurrent work."""
    record = fleet_run.record
    failed = [f"{each.name}: {each.facts.get('says', '')}" for each in record.failures]
    wrong = [*fleet_run.problems, *failed]
    says = "no batch, statement, compaction or read failed"
    yield Check(not wrong, "; ".join(wrong[:3]) if wrong else says)
    batches = [len(record.steps_of(f"streamer:{name}")) for name in STREAMERS]
    statements, compactions = len(record.steps_of(SQL)), fleet_run.compactions["executed"]
    yield Check(
        all(batches) and statements >= len(("UPDATE", "DELETE", "MERGE")) and compactions > 0,
        f"{' and '.join(map(str, batches))} batches of two streamers, {statements} statements,"
        f" {compactions} compactions; streamers merged again {record.rebases} times",
    )


def main() -> int:
    """Run the test and print its checks; the exit status is 0 if all passed."""
    parser = argparse.ArgumentParser(prog="python -m testkit.pipelinefleet", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep everything in this folder")
    options = parser.parse_args()
    started = time.monotonic()
    with run_folder(options.folder, "tidelock-pipeline-") as folder:
        _, checks = run(options.minutes, folder, seed=options.seed)
    labels = {True: "right", False: "WRONG", None: "-"}
    for check in checks:
        sys.stdout.write(f"{labels[check.passed]:>6}  {check.message}\n")
    sys.stdout.write(f"seed {options.seed}, {time.monotonic() - started:.0f} s\n")
    return 1 if any(check.passed is False for check in checks) else 0


if __name__ == "__main__":
    sys.exit(main())
