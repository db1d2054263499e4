"""Kills a streamer repeatedly during ingestion, and checks that each record is stored once.

    python -m testkit.streamerchaos --source files --records 1000000 --kills 50

The streamer is the command `tidelock streamer`, a process with its own Spark session, killed with
SIGKILL at random times between its start and the end of a batch or two. It inserts, so a record
that is read twice appears in two rows. The last process runs until the source is empty, and is
stopped by SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from testkit.streamers import next_event, run_folder, running_streamer, streamer_command
from tidelock.table import Table

TOPIC = "chaos"
_FILES_PER_BATCH = 4
BATCHES_PER_LIFE = 6
"""Batches per kill: each process writes a few of them, and the last one the rest."""


@dataclass(frozen=True, slots=True)
class Chaos:
    """The parameters of a run."""

    source: str
    records: int
    kills: int
    seed: int
    kill_minutes: float = 24 * 60.0
    """No process is killed after this time."""
    batches_per_life: int = BATCHES_PER_LIFE

    @property
    def batch_records(self) -> int:
        """The number of records per batch."""
        return max(1, self.records // (self.batches_per_life * max(self.kills, 1)))


@dataclass(slots=True)
class ChaosResult:
    """The result of a run."""

    kills: int = 0
    in_batch: int = 0
    batches: int = 0
    commits: int = 0
    rows: int = 0
    distinct: int = 0
    ended_s: float = 0.0
    exit_code: int | None = None
    problems: list[str] = field(default_factory=list)
    log: str = ""
    """The last lines of the streamers' standard error."""


def run(chaos: Chaos, folder: Path) -> ChaosResult:
    """Kill and restart the streamer until all records are read, then check the table."""
    rng, result, started = random.Random(chaos.seed), ChaosResult(), time.monotonic()
    with ExitStack() as stack:
        command = stack.enter_context(_source(chaos, folder))
        until = started + chaos.kill_minutes * 60
        while result.kills < chaos.kills and time.monotonic() < until:
            with running_streamer(command, folder / "streamer.log") as streamer:
                if not _run_until_killed(streamer, rng, result):
                    break
            _log(f"kill {result.kills} after {time.monotonic() - started:.0f} s")
        with running_streamer(command, folder / "streamer.log") as streamer:
            result.exit_code = _run_to_end(streamer, result)
    result.ended_s = round(time.monotonic() - started, 1)
    result.log = (folder / "streamer.log").read_text(errors="replace")[-3_000:]
    _check_table(folder / "table", chaos.records, result)
    return result


def _run_until_killed(
    streamer: subprocess.Popen[str], rng: random.Random, result: ChaosResult
) -> bool:
    """Kill the streamer at a random time; return whether the source was not empty yet."""
    if rng.random() < 0.1:
        time.sleep(rng.uniform(0, 8))  # before the first batch
    else:
        event = next_event(streamer)
        if event is None:
            result.problems.append(f"the streamer exited with {streamer.wait()}")
            return False
        if event["event"] == "idle":
            return False
        result.batches += event["event"] == "batch"
        # The first batch of a session is by far the slowest; the kill hits one of the next.
        time.sleep(rng.uniform(0, 2.5) * min(event.get("duration_ms", 1_000), 1_500) / 1_000)
        result.in_batch += 1
    os.killpg(streamer.pid, signal.SIGKILL)
    result.kills += 1
    streamer.wait()
    return True


def _run_to_end(streamer: subprocess.Popen[str], result: ChaosResult) -> int:
    """Let the streamer read the rest, stop it with SIGTERM; return its exit code."""
    while (event := next_event(streamer)) is not None:
        result.batches += event["event"] == "batch"
        if event["event"] == "idle":
            streamer.send_signal(signal.SIGTERM)
        if event["event"] == "end":
            break
    return streamer.wait(240)


def _check_table(uri: Path, records: int, result: ChaosResult) -> None:
    with Table.open(str(uri)) as table:
        ids = table.read(columns=["id"]).column("id").to_numpy()
        result.commits = sum(1 for instant in table.timeline if instant.is_completed)
    result.rows, result.distinct = len(ids), len(set(ids.tolist()))
    if result.rows != records or result.distinct != records:
        result.problems.append(
            f"expected {records} rows; the table has {result.rows} rows, {result.distinct} distinct"
        )
    if result.exit_code != 0:
        result.problems.append(f"the streamer exited with {result.exit_code} after SIGTERM")


@contextmanager
def _source(chaos: Chaos, folder: Path) -> Iterator[list[str]]:
    """Create the source with its records; yield the command of its streamer."""
    command = streamer_command(folder / "table", folder, operation="INSERT", confs={})
    if chaos.source == "files":
        source = folder / "in"
        source.mkdir()
        _write_files(source, chaos)
        limit = max(path.stat().st_size for path in source.iterdir()) * _FILES_PER_BATCH
        root = f"hoodie.streamer.source.dfs.root={source}"
        options = ["--source-class", "JsonDFSSource", "--source-limit", str(limit)]
        yield [*command, *options, "--hoodie-conf", root]
        return
    from testkit.servers.kafka import connector_jars, kafka

    with kafka() as broker:
        jars = f"spark.jars={','.join(map(str, connector_jars()))}"
        _produce(broker.endpoint, chaos.records, folder)
        yield [
            *(*command, "--source-class", "JsonKafkaSource", "--spark-conf", jars),
            *("--source-limit", str(chaos.batch_records)),
            *("--hoodie-conf", f"bootstrap.servers={broker.endpoint}"),
            *("--hoodie-conf", "auto.offset.reset=earliest"),
            *("--hoodie-conf", f"hoodie.streamer.source.kafka.topic={TOPIC}"),
        ]


def _write_files(folder: Path, chaos: Chaos) -> None:
    each = max(1, chaos.batch_records // _FILES_PER_BATCH)
    for first in range(0, chaos.records, each):
        last = min(first + each, chaos.records)
        lines = (f'{{"id":{i},"name":"n{i}","ts":{i}}}\n' for i in range(first, last))
        (folder / f"{first:09}.json").write_text("".join(lines))


def _produce(servers: str, records: int, folder: Path) -> None:
    """Fill the topic in a child process, so that its Spark session ends."""
    from testkit.servers.kafka import connector_jars

    settings = {
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.local.dir": str(folder / "spark-producer"),
    }
    program = (
        "from tidelock.execution.spark.session import local_session\n"
        f"spark = local_session('producer', memory='1g', settings={settings!r})\n"
        "value = \"to_json(struct(id, concat('n', id) as name, id as ts)) as value\"\n"
        f"rows = spark.range({records}).selectExpr(value, 'cast(id % 4 as int) as partition')\n"
        "writer = rows.write.format('kafka').option('topic', " + repr(TOPIC) + ")\n"
        f"writer.option('kafka.bootstrap.servers', {servers!r}).save()\n"
        "spark.stop()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    """Run the test and print the result; the exit status is 0 if it passed."""
    parser = argparse.ArgumentParser(prog="python -m testkit.streamerchaos", description=__doc__)
    parser.add_argument("--source", choices=("files", "kafka"), default="files")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kill-minutes", type=float, default=24 * 60.0, help="stop killing after this time"
    )
    parser.add_argument(
        "--batches-per-life", type=int, default=BATCHES_PER_LIFE, help="batches per killed process"
    )
    parser.add_argument("--folder", type=Path, help="keep everything in this folder")
    args = parser.parse_args()
    chaos = Chaos(
        args.source,
        args.records,
        args.kills,
        args.seed,
        kill_minutes=args.kill_minutes,
        batches_per_life=args.batches_per_life,
    )
    with run_folder(args.folder, "tidelock-chaos-") as folder:
        result = run(chaos, folder)
    sys.stdout.write(
        f"{args.source}: {result.rows:,} rows of {args.records:,} records, {result.distinct:,}"
        f" distinct; killed {result.kills} times, {result.in_batch} of them during a batch;"
        f" {result.commits} commits; {result.ended_s:.0f} s\n"
    )
    for problem in result.problems:
        sys.stdout.write(f"WRONG (seed {args.seed}): {problem}\n{result.log}\n")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
