"""A streamer is killed again and again while records flow; in the end each is there once.

    python -m tidelock.testing.streamerchaos --source files --records 1000000 --kills 50

The streamer is the program `tidelock streamer`, a process with a Spark session of its own, killed
with SIGKILL at moments drawn between its start and the end of a batch or two. It inserts, so that a
record taken twice would be two rows. The last one runs until nothing is left and is ended by
SIGTERM, as an operator would.
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

from tidelock.tableservice.table import Table
from tidelock.testing.streamers import (
    kept_or_not,
    next_event,
    running_streamer,
    streamer_command,
)

TOPIC = "chaos"
_FILES_PER_BATCH = 4
BATCHES_PER_LIFE = 6
"""So many batches for each kill: a life takes a few of them, and the last one the rest."""


@dataclass(frozen=True, slots=True)
class Chaos:
    """One run: what flows, and how often the streamer dies."""

    source: str
    records: int
    kills: int
    seed: int
    kill_minutes: float = 24 * 60.0
    """Longer than this nobody is killed, however few they were."""
    batches_per_life: int = BATCHES_PER_LIFE

    @property
    def batch_records(self) -> int:
        """Records of one batch."""
        return max(1, self.records // (self.batches_per_life * max(self.kills, 1)))


@dataclass(slots=True)
class Found:
    """What a run came to."""

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
    """The end of what the streamers wrote to standard error."""


def run(chaos: Chaos, folder: Path) -> Found:
    """Let the streamer die and live until all records were taken, then look at the table."""
    draw, found, begun = random.Random(chaos.seed), Found(), time.monotonic()
    with ExitStack() as stack:
        command = stack.enter_context(_flow(chaos, folder))
        until = begun + chaos.kill_minutes * 60
        while found.kills < chaos.kills and time.monotonic() < until:
            with running_streamer(command, folder / "streamer.log") as streamer:
                if not _one_life(streamer, draw, found):
                    break
            _note(f"kill {found.kills} after {time.monotonic() - begun:.0f} s")
        with running_streamer(command, folder / "streamer.log") as streamer:
            found.exit_code = _last_life(streamer, found)
    found.ended_s = round(time.monotonic() - begun, 1)
    found.log = (folder / "streamer.log").read_text(errors="replace")[-3_000:]
    _look(folder / "table", chaos.records, found)
    return found


def _one_life(streamer: subprocess.Popen[str], draw: random.Random, found: Found) -> bool:
    """Kill the streamer at some moment; return whether it still had something to do."""
    if draw.random() < 0.1:
        time.sleep(draw.uniform(0, 8))  # before it has done anything
    else:
        event = next_event(streamer)
        if event is None:
            found.problems.append(f"the streamer ended with {streamer.wait()}")
            return False
        if event["event"] == "idle":
            return False
        found.batches += event["event"] == "batch"
        # The first batch of a session is the slowest by far; the next ones are what is met.
        time.sleep(draw.uniform(0, 2.5) * min(event.get("duration_ms", 1_000), 1_500) / 1_000)
        found.in_batch += 1
    os.killpg(streamer.pid, signal.SIGKILL)
    found.kills += 1
    streamer.wait()
    return True


def _last_life(streamer: subprocess.Popen[str], found: Found) -> int:
    """Let the streamer take what is left, end it as an operator would; return its exit code."""
    while (event := next_event(streamer)) is not None:
        found.batches += event["event"] == "batch"
        if event["event"] == "idle":
            streamer.send_signal(signal.SIGTERM)
        if event["event"] == "end":
            break
    return streamer.wait(60)


def _look(place: Path, records: int, found: Found) -> None:
    with Table.open(str(place)) as table:
        ids = table.read(columns=["id"]).column("id").to_numpy()
        found.commits = sum(1 for instant in table.timeline if instant.is_completed)
    found.rows, found.distinct = len(ids), len(set(ids.tolist()))
    if found.rows != records or found.distinct != records:
        found.problems.append(
            f"{records} records flowed; the table has {found.rows} rows, {found.distinct} distinct"
        )
    if found.exit_code != 0:
        found.problems.append(f"the streamer ended with {found.exit_code} after SIGTERM")


@contextmanager
def _flow(chaos: Chaos, folder: Path) -> Iterator[list[str]]:
    """Make the records flow; yield the command of the streamer that takes them."""
    command = streamer_command(folder / "table", folder, operation="INSERT", confs={})
    if chaos.source == "files":
        source = folder / "in"
        source.mkdir()
        _write_files(source, chaos)
        limit = max(path.stat().st_size for path in source.iterdir()) * _FILES_PER_BATCH
        root = f"hoodie.streamer.source.dfs.root={source}"
        taken = ["--source-class", "JsonDFSSource", "--source-limit", str(limit)]
        yield [*command, *taken, "--hoodie-conf", root]
        return
    from tidelock.testing.servers.kafka import connector_jars, kafka

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
    """Fill the topic, in a process of its own: its Spark session must not stay."""
    from tidelock.testing.servers.kafka import connector_jars

    settings = {
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.local.dir": str(folder / "spark-producer"),
    }
    program = (
        "from tidelock.engine.spark.session import local_session\n"
        f"spark = local_session('producer', memory='1g', settings={settings!r})\n"
        "value = \"to_json(struct(id, concat('n', id) as name, id as ts)) as value\"\n"
        f"rows = spark.range({records}).selectExpr(value, 'cast(id % 4 as int) as partition')\n"
        "writer = rows.write.format('kafka').option('topic', " + repr(TOPIC) + ")\n"
        f"writer.option('kafka.bootstrap.servers', {servers!r}).save()\n"
        "spark.stop()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    """Run it, print what came of it, and say by the exit code whether it was right."""
    parser = argparse.ArgumentParser(prog="python -m tidelock.testing.streamerchaos")
    parser.add_argument("--source", choices=("files", "kafka"), default="files")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill-minutes", type=float, default=24 * 60.0)
    parser.add_argument("--batches-per-life", type=int, default=BATCHES_PER_LIFE)
    parser.add_argument("--folder", type=Path, help="keep everything in this folder")
    given = parser.parse_args()
    chaos = Chaos(
        given.source,
        given.records,
        given.kills,
        given.seed,
        kill_minutes=given.kill_minutes,
        batches_per_life=given.batches_per_life,
    )
    with kept_or_not(given.folder, "tidelock-chaos-") as folder:
        found = run(chaos, folder)
    sys.stdout.write(
        f"{given.source}: {found.rows:,} rows of {given.records:,} records, {found.distinct:,}"
        f" distinct; killed {found.kills} times, {found.in_batch} of them at work;"
        f" {found.commits} commits; {found.ended_s:.0f} s\n"
    )
    for problem in found.problems:
        sys.stdout.write(f"WRONG (seed {given.seed}): {problem}\n{found.log}\n")
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
