"""Kills streaming queries at random times, and checks that each record is stored once.

    python -m testkit.sinkchaos --records 1000000 --kills 50

One process runs two queries: files into a table, and that table's changes into a second table. Both
only insert, so a batch that is written twice results in duplicate rows. The process, its JVM and
workers are killed with SIGKILL repeatedly, and resume from their checkpoints. Some records are held
back until the kills are over, so that every kill hits unfinished streams even on a fast machine. In
the end, both tables are compared with the input.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from testkit.streamers import run_folder

FILES_PER_BATCH = 2
FLOWING = "flowing"
DONE = "done"
INBOX = "inbox"
HELD_BACK = "held-back"
TABLES = ("landed", "copied")

_AFTER_PROGRESS = 0.6
"""The share of kills that wait for a commit of the process first, so that streams progress."""

_PROGRESS_S = 60.0
_ENDED_MAX = 20


def write_files(folder: Path, records: int, batches: int) -> None:
    """Write the records, numbered from 0, into files for this many micro-batches."""
    folder.mkdir()
    per_file = -(-records // (batches * FILES_PER_BATCH))
    for number in range(0, records, per_file):
        ids = pa.array(range(number, min(records, number + per_file)), pa.int64())
        message = pc.binary_join_element_wise("record", ids.cast(pa.string()), " ")
        table = pa.table({"id": ids, "text": message})
        pq.write_table(table, folder / f"{number:012}.parquet")


def release(folder: Path, share: float) -> None:
    """Move held-back files into the inbox until it has this share of all files, at least one."""
    inbox, held_back = folder / INBOX, sorted((folder / HELD_BACK).glob("*.parquet"))
    arrived = len(list(inbox.glob("*.parquet")))
    target = max(1, int((arrived + len(held_back)) * share))
    for file in held_back[: max(0, target - arrived)]:
        file.rename(inbox / file.name)


def stream(folder: Path, records: int) -> None:
    """Run the queries until all records have arrived; print when both have started."""
    import tidelock as tl
    from tidelock.execution.spark.session import local_session

    settings = {
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.shuffle.partitions": "2",
        # The processes are short-lived, so full JIT compilation would not pay off.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = tl.enable(local_session("sink chaos", cores=2, memory="1g", settings=settings))
    spark.sparkContext.setLogLevel("OFF")
    files = spark.readStream.schema("id bigint, text string")
    files = files.option("maxFilesPerTrigger", FILES_PER_BATCH)
    landing = _query(files.parquet(str(folder / INBOX)), folder, "landed")
    while not (folder / "landed" / ".hoodie" / "hoodie.properties").exists():
        landing.awaitTermination(1)
    changes = spark.readStream.format("tidelock")
    changes = changes.option("tidelock.stream.commits.per.trigger.max", 8)
    copying = _query(changes.load(str(folder / "landed")), folder, "copied")
    _print(FLOWING)
    with tl.Table.open(str(folder / "landed")) as landed:
        while _rows(landed) < records:
            landing.awaitTermination(1)
    copying.processAllAvailable()
    _print(DONE)
    for query in (landing, copying):
        query.stop()
    spark.stop()


def _query(frame: Any, folder: Path, name: str) -> Any:
    options = {
        "hoodie.table.name": name,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.operation": "insert",
        "hoodie.parquet.small.file.limit": "0",
        "checkpointLocation": str(folder / f"{name}-checkpoint"),
    }
    return frame.writeStream.format("tidelock").options(**options).start(str(folder / name))


def _rows(table: Any) -> int:
    table.refresh()
    return sum(entry.rows_inserted or 0 for entry in table.history())


@dataclass(slots=True)
class SinkChaosResult:
    """The result of a run."""

    records: int
    kills: int = 0
    runs: int = 0
    failed: int = 0
    """Processes that exited by themselves, with an error of Spark."""
    batches: int = 0
    missing: int = 0
    twice: int = 0
    unexpected: int = 0
    seconds: int = 0

    @property
    def is_good(self) -> bool:
        """Return whether every record is stored exactly once."""
        return not (self.missing or self.twice or self.unexpected)


def run(
    records: int,
    kills_max: int,
    folder: Path,
    *,
    batches: int,
    seed: int,
    spread_s: float = 8.0,
    kill_minutes: float = 24 * 60.0,
) -> SinkChaosResult:
    """Kill the streams up to `spread_s` after they start, let them finish, and compare.

    All files are in `folder`; an interrupted run there is continued. No process is killed after
    `kill_minutes`.
    """
    rng = random.Random(seed)
    result = SinkChaosResult(records)
    started = time.monotonic()
    if not (folder / INBOX).exists():
        write_files(folder / HELD_BACK, records, batches)
        (folder / INBOX).mkdir()
    arrived = False
    while not arrived:
        in_time = time.monotonic() < started + kill_minutes * 60
        kills = in_time and result.kills < kills_max
        # The last files are released to the last process, so no process finishes before its kill.
        release(folder, (result.kills + 1) / (kills_max + 1) if kills else 1.0)
        arrived = _run_streams(folder, result, rng, spread_s=spread_s if kills else None)
        _log(f"{result.kills} kills, {result.failed} ended, {time.monotonic() - started:.0f} s")
    for name in TABLES:
        _compare(folder / name, result)
    result.seconds = int(time.monotonic() - started)
    return result


def _run_streams(
    folder: Path, result: SinkChaosResult, rng: random.Random, *, spread_s: float | None
) -> bool:
    """Run the streams, kill them unless `spread_s` is None; return whether all has arrived."""
    result.runs += 1
    for name in TABLES:
        _remove_unfinished_offset(folder / f"{name}-checkpoint")
    before = {name: _newest(folder / name) for name in TABLES}
    with _child(folder, result.records) as child:
        message = _await(child, FLOWING)
        if message == FLOWING and spread_s is not None:
            if rng.random() < _AFTER_PROGRESS:
                name = rng.choice(TABLES)
                _await_progress(child, folder / name, before[name])
            time.sleep(rng.random() * spread_s)
            if child.poll() is None:
                result.kills += 1
                return False
        if message == DONE or _await(child, DONE) == DONE:
            return True
    # Spark fails a query if its own processes do not respond in time.
    result.failed += 1
    if result.failed > _ENDED_MAX:
        raise RuntimeError(f"the streams keep failing: {_last_lines(folder)}")
    return False


def _remove_unfinished_offset(checkpoint: Path) -> None:
    """Delete the temporary file of a query that was killed while it wrote its first offset.

    Spark 4.1 starts a query only if its offsets are empty or have a first batch, and this file
    makes them neither. It does not clean it up either, so an operator has to.
    """
    offsets = checkpoint / "offsets"
    if not (offsets / "0").exists():
        for left in offsets.glob(".*.tmp*"):
            left.unlink()


@contextmanager
def _child(folder: Path, records: int) -> Iterator[subprocess.Popen[str]]:
    """Run the streams in their own process group, which is killed at the end."""
    command = [sys.executable, "-m", __spec__.name, "--streams-in", str(folder), "--records"]
    log = (folder / "streams.log").open("a")
    child = subprocess.Popen(
        [*command, str(records)],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        log.close()
        if child.stdout is not None:
            child.stdout.close()


def _await(child: subprocess.Popen[str], word: str) -> str:
    """Return the word once the streams print it, or their last line."""
    assert child.stdout is not None
    message = ""
    for line in _lines(child.stdout):
        message = line
        if line in (word, DONE):
            return line
    return message


def _lines(stream: IO[str]) -> Iterator[str]:
    for line in stream:
        yield line.strip()


def _last_lines(folder: Path) -> str:
    return (folder / "streams.log").read_text()[-2_000:]


def _await_progress(child: subprocess.Popen[str], table: Path, before: str) -> None:
    """Wait until a table has a commit after `before`, or for a timeout."""
    until = time.monotonic() + _PROGRESS_S
    while child.poll() is None and _newest(table) == before and time.monotonic() < until:
        time.sleep(0.05)


def _newest(table: Path) -> str:
    ledger = table / ".hoodie" / ".tidelock" / "ledger"
    return max((file.name for file in ledger.glob("*.json")), default="")


def _compare(folder: Path, result: SinkChaosResult) -> None:
    import tidelock as tl

    with tl.Table.open(str(folder)) as table:
        ids = table.read(["id"]).column("id")
        result.batches += len([i for i in table.history() if i.rows_written])
    distinct = pc.count_distinct(ids).as_py()
    known = pc.and_(pc.greater_equal(ids, 0), pc.less(ids, result.records))
    result.unexpected += len(ids) - pc.sum(known).as_py()
    result.twice += len(ids) - distinct
    result.missing += result.records - distinct


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    """Run the test, or its streams in a child process; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--batches", type=int, default=100, help="number of input files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kill-minutes", type=float, default=24 * 60.0, help="stop killing after this time"
    )
    parser.add_argument(
        "--spread-s", type=float, default=8.0, help="kill at most this long after the start"
    )
    parser.add_argument("--folder", type=Path, help="keep everything in this folder")
    parser.add_argument("--streams-in", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.streams_in is not None:
        stream(args.streams_in, args.records)
        return 0
    with run_folder(args.folder, "tidelock-sink-") as folder:
        result = run(
            args.records,
            args.kills,
            folder,
            batches=args.batches,
            seed=args.seed,
            spread_s=args.spread_s,
            kill_minutes=args.kill_minutes,
        )
    _print(json.dumps(asdict(result), indent=1))
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
