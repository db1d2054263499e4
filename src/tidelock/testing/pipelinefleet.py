"""Two streamers, an SQL loop and a compactor on one table: nothing fails, every row is right.

    python -m tidelock.testing.pipelinefleet --minutes 5

Each is a process: `tidelock streamer` twice, from folders that are filled meanwhile; a program that
says UPDATE, DELETE and MERGE in turn; `tidelock compact` again and again; and one that reads. They
change the same keys of a merge-on-read table without an ordering, so whoever is later in the ledger
has the say. A batch is one file, and what it or a statement does follows from its number: once it
is known which of them landed, and when, every row of the table is known.
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

from tidelock.base.clock import SystemClock
from tidelock.ops.fleet.articles import Articles
from tidelock.ops.fleet.crew import Crew
from tidelock.ops.fleet.journal import Noted
from tidelock.ops.fleet.member import Role
from tidelock.ops.fleet.pacing import Pacing
from tidelock.ops.fleet.record import Record
from tidelock.ops.fleet.steps import Terms
from tidelock.ops.fleet.verdict import Check, judge
from tidelock.testing.streamers import (
    kept_or_not,
    next_event,
    running_streamer,
    streamer_command,
)

STREAMERS = ("east", "west")
SQL = "sql"
READER = "reader"

_AHEAD = 3
"""So many files wait for a streamer, which never has to wait for them."""

_STARTING_MS = 420_000
_ENDING_S = 180
_COMPACT_EVERY_S = 2.0
_OPTIONS = {"hoodie.compact.inline.max.delta.commits": "5"}
"""Everything else is as Hudi has it, so every writer cleans and archives after its commits."""


@dataclass(slots=True)
class Inbox:
    """A folder that a streamer reads; its files are the steps of one program, from 0."""

    folder: Path
    terms: Terms
    streamer: str
    given: int = 0

    @property
    def program(self) -> str:
        """What the oracle calls the streamer: the name of its mark in the ledger."""
        return f"streamer:{self.streamer}"

    def give(self) -> None:
        """Put the next file there, whole."""
        rows = self.terms.rows_of(self.program, self.given)
        hidden = self.folder / f".{self.given}"
        hidden.write_text("".join(f"{json.dumps(row._asdict())}\n" for row in rows))
        hidden.rename(self.folder / f"{self.given:06}.json")
        self.given += 1


@dataclass(slots=True)
class Stage:
    """What the threads of a run share."""

    crew: Crew[Articles, Role]
    record: Record = field(default_factory=Record)
    over: threading.Event = field(default_factory=threading.Event)
    streamers: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    compactions: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def look(self) -> None:
        """Take what the programs have noted."""
        for noted in self.crew.fresh():
            self.record.take(noted)

    def has_begun(self) -> bool:
        """Tell whether every writer has written, or something is wrong already."""
        names = (*(f"streamer:{name}" for name in STREAMERS), SQL)
        return bool(self.problems) or all(self.record.steps_of(name) for name in names)


def follow(
    streamer: subprocess.Popen[str], inbox: Inbox, is_over: Callable[[], bool]
) -> Iterator[Noted]:
    """Yield the batches of a streamer, and give it a file for each; end it when all is over."""
    taken = 0
    for _ in range(_AHEAD):
        inbox.give()
    while (event := next_event(streamer)) is not None:
        if event["event"] == "batch":
            taken += 1
            report = event["report"]
            facts = {
                "step": event["version"],
                "completion": report["completion"],
                "took_ms": event["duration_ms"],
                "rebases": report["rebases"],
            }
            yield Noted(inbox.program, "wrote", 0, facts)
            if not is_over():
                inbox.give()
        elif event["event"] == "idle" and taken == inbox.given and is_over():
            streamer.send_signal(signal.SIGTERM)


def _stream(stage: Stage, name: str) -> None:
    """Run one streamer from its first file to its end; tell what went wrong."""
    folder, articles = stage.crew.folder, stage.crew.articles
    inbox = Inbox(folder / f"{name}-in", articles.terms, name)
    inbox.folder.mkdir()
    confs = {
        **articles.options,
        "hoodie.streamer.source.dfs.root": str(inbox.folder),
        "hoodie.datasource.write.partitionpath.field": "region",
    }
    command = [
        *streamer_command(Path(articles.uri), folder / name, operation="UPSERT", confs=confs),
        *("--source-class", "JsonDFSSource", "--writer-id", name, "--disable-compaction"),
        # A file is never split, so this is one file a batch.
        *("--source-limit", "1", "--spark-conf", "spark.master=local[1]"),
    ]
    try:
        with running_streamer(command, folder / f"{name}.log") as streamer:
            stage.streamers[name] = streamer
            for noted in follow(streamer, inbox, stage.over.is_set):
                stage.record.take(noted)
            code = streamer.wait(_ENDING_S)
            if code:
                stage.problems.append(f"streamer {name} ended with {code}")
    except Exception as error:
        stage.problems.append(f"streamer {name}: {error}")


def _compact(stage: Stage) -> None:
    """Run `tidelock compact` again and again until all is over."""
    articles = stage.crew.articles
    command = [sys.executable, "-m", "tidelock.ops.submit", "compact", articles.uri, "run"]
    for name, value in articles.options.items():
        command += ["-O", f"{name}={value}"]
    while not stage.over.wait(_COMPACT_EVERY_S):
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
        if done.returncode:
            stage.problems.append(f"compact ended with {done.returncode}: {done.stdout.strip()}")
            return
        told = json.loads(done.stdout)
        stage.compactions["executed"] += len(told["executed"])
        stage.compactions["left to others"] += len(told["left"])


def run(minutes: float, folder: Path, *, seed: int = 1) -> tuple[Stage, list[Check]]:
    """Let all of them work for so long from when each has written, then judge."""
    terms = Terms(seed=seed, keys=20_000, rows=200)
    articles = Articles(
        str(folder / "orders"),
        terms,
        options=_OPTIONS,
        pause_ms=0,
        reader_pause_ms=2_000,
        deletes=True,
    )
    with ExitStack() as held:
        crew = held.enter_context(Crew[Articles, Role](folder, articles))
        stage = Stage(crew)
        pool = held.enter_context(ThreadPoolExecutor(len(STREAMERS) + 1))
        held.callback(stage.over.set)
        crew.start(SQL, Role.SQL)
        crew.start(READER, Role.READER)
        works = [pool.submit(_stream, stage, name) for name in STREAMERS]
        works.append(pool.submit(_compact, stage))
        pacing = Pacing(SystemClock(), stage.look, 200)
        if not pacing.until(stage.has_begun, _STARTING_MS):
            stage.problems.append("not everybody has begun to write")
        pacing.until(lambda: _is_broken(stage), minutes * 60_000)
        _end(stage, works)
        return stage, [*verdict(stage), *judge(crew, stage.record)]


def _is_broken(stage: Stage) -> bool:
    dead = [each.name for each in stage.crew.programs.values() if not each.is_running]
    stage.problems += [f"{name} died: {stage.crew.last_words(name)}" for name in dead]
    return bool(stage.problems)


def _end(stage: Stage, works: Sequence[Future[None]]) -> None:
    """Let everybody finish what they are at."""
    stage.over.set()
    stage.crew.dismiss()
    if wait(works, _ENDING_S).not_done:
        stage.problems.append(f"a streamer or a compaction did not end within {_ENDING_S} s")
        for streamer in stage.streamers.values():
            streamer.kill()
    for program in stage.crew.programs.values():
        if (code := program.process.wait(_ENDING_S)) and not stage.problems:
            said = stage.crew.last_words(program.name)
            stage.problems.append(f"{program.name} ended with {code}: {said}")
    stage.look()


def verdict(stage: Stage) -> Iterator[Check]:
    """Say whether nothing failed, and whether everybody had work that met the others'."""
    record = stage.record
    failed = [f"{each.name}: {each.facts.get('says', '')}" for each in record.failures]
    wrong = [*stage.problems, *failed]
    says = "no batch, statement, compaction or read failed"
    yield Check(not wrong, "; ".join(wrong[:3]) if wrong else says)
    batches = [len(record.steps_of(f"streamer:{name}")) for name in STREAMERS]
    statements, compactions = len(record.steps_of(SQL)), stage.compactions["executed"]
    yield Check(
        all(batches) and statements >= len(("UPDATE", "DELETE", "MERGE")) and compactions > 0,
        f"{' and '.join(map(str, batches))} batches of two streamers, {statements} statements,"
        f" {compactions} compactions; streamers merged again {record.rebases} times",
    )


def main() -> int:
    """Run it, print the verdict, and say by the exit code whether it was right."""
    parser = argparse.ArgumentParser(prog="python -m tidelock.testing.pipelinefleet")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep everything in this folder")
    given = parser.parse_args()
    began = time.monotonic()
    with kept_or_not(given.folder, "tidelock-pipeline-") as folder:
        _, checks = run(given.minutes, folder, seed=given.seed)
    marks = {True: "right", False: "WRONG", None: "-"}
    for check in checks:
        sys.stdout.write(f"{marks[check.passed]:>6}  {check.says}\n")
    sys.stdout.write(f"seed {given.seed}, {time.monotonic() - began:.0f} s\n")
    return 1 if any(check.passed is False for check in checks) else 0


if __name__ == "__main__":
    sys.exit(main())
