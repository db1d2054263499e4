"""Streams that are killed at random moments: every record is in the table once, none is missing.

    python -m tidelock.testing.sinkchaos --records 1000000 --kills 50

One process runs two queries: files into a table, and that table's changes into a second one. Both
only insert, so a batch that is written twice shows as rows that are there twice. The process is
killed (SIGKILL, its JVM and workers too) again and again while records flow, and goes on from its
checkpoints each time. Part of the records is held back until the kills are over, so that every kill
meets streams that are not done, however fast the machine is. In the end both tables are compared
with what was put in.
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

from tidelock.testing.streamers import kept_or_not

FILES_PER_BATCH = 2
FLOWING = "flowing"
DONE = "done"
INBOX = "inbox"
HELD_BACK = "held-back"
TABLES = ("landed", "copied")

_AFTER_PROGRESS = 0.6
"""So many of the kills come after a commit of that life, so that records flow between them."""

_PROGRESS_S = 60.0
_ENDED_MAX = 20


def fill(folder: Path, records: int, batches: int) -> None:
    """Put the records into files for so many micro-batches, numbered from 0."""
    folder.mkdir()
    per_file = -(-records // (batches * FILES_PER_BATCH))
    for number in range(0, records, per_file):
        ids = pa.array(range(number, min(records, number + per_file)), pa.int64())
        said = pc.binary_join_element_wise("record", ids.cast(pa.string()), " ")
        table = pa.table({"id": ids, "said": said})
        pq.write_table(table, folder / f"{number:012}.parquet")


def release(place: Path, share: float) -> None:
    """Move held-back files into the inbox until it has at least this share of all, one or more."""
    inbox, held_back = place / INBOX, sorted((place / HELD_BACK).glob("*.parquet"))
    arrived = len(list(inbox.glob("*.parquet")))
    wanted = max(1, int((arrived + len(held_back)) * share))
    for file in held_back[: max(0, wanted - arrived)]:
        file.rename(inbox / file.name)


def stream(place: Path, records: int) -> None:
    """Let the records flow until all have arrived; say when they begin to."""
    import tidelock as tl
    from tidelock.engine.spark.session import local_session

    settings = {
        "spark.local.dir": str(place / "scratch"),
        "spark.sql.shuffle.partitions": "2",
        # Lives are short: what is compiled thoroughly would not pay.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = tl.enable(local_session("sink chaos", cores=2, memory="1g", settings=settings))
    spark.sparkContext.setLogLevel("OFF")
    files = spark.readStream.schema("id bigint, said string")
    files = files.option("maxFilesPerTrigger", FILES_PER_BATCH)
    landing = _query(files.parquet(str(place / INBOX)), place, "landed")
    while not (place / "landed" / ".hoodie" / "hoodie.properties").exists():
        landing.awaitTermination(1)
    changes = spark.readStream.format("tidelock")
    changes = changes.option("tidelock.stream.commits.per.trigger.max", 8)
    copying = _query(changes.load(str(place / "landed")), place, "copied")
    _say(FLOWING)
    with tl.Table.open(str(place / "landed")) as landed:
        while _rows(landed) < records:
            landing.awaitTermination(1)
    copying.processAllAvailable()
    _say(DONE)
    for query in (landing, copying):
        query.stop()
    spark.stop()


def _query(frame: Any, place: Path, name: str) -> Any:
    options = {
        "hoodie.table.name": name,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.operation": "insert",
        "hoodie.parquet.small.file.limit": "0",
        "checkpointLocation": str(place / f"{name}-checkpoint"),
    }
    return frame.writeStream.format("tidelock").options(**options).start(str(place / name))


def _rows(table: Any) -> int:
    table.refresh()
    return sum(entry.rows_inserted or 0 for entry in table.history())


@dataclass(slots=True)
class Found:
    """What a run came to."""

    records: int
    kills: int = 0
    lives: int = 0
    ended: int = 0
    """Lives that ended by themselves, with an error of Spark's."""
    batches: int = 0
    missing: int = 0
    twice: int = 0
    strange: int = 0
    seconds: int = 0

    @property
    def is_good(self) -> bool:
        """Tell whether every record is there once."""
        return not (self.missing or self.twice or self.strange)


def run(
    records: int,
    kills_max: int,
    place: Path,
    *,
    batches: int,
    seed: int,
    spread_s: float = 8.0,
    kill_minutes: float = 24 * 60.0,
) -> Found:
    """Kill the streams so often, up to `spread_s` after they began, let them end, and compare.

    All of it lies in the folder `place`; a run that was broken off there is gone on with. Longer
    than `kill_minutes` nobody is killed, however few they were.
    """
    rng = random.Random(seed)
    found = Found(records)
    began = time.monotonic()
    if not (place / INBOX).exists():
        fill(place / HELD_BACK, records, batches)
        (place / INBOX).mkdir()
    arrived = False
    while not arrived:
        in_time = time.monotonic() < began + kill_minutes * 60
        kills = in_time and found.kills < kills_max
        # The last share comes with the last life: no life that is to be killed can be done before.
        release(place, (found.kills + 1) / (kills_max + 1) if kills else 1.0)
        arrived = _life(place, found, rng, spread_s=spread_s if kills else None)
        _note(f"{found.kills} kills, {found.ended} ended, {time.monotonic() - began:.0f} s")
    for name in TABLES:
        _judge(place / name, found)
    found.seconds = int(time.monotonic() - began)
    return found


def _life(place: Path, found: Found, rng: random.Random, *, spread_s: float | None) -> bool:
    """Let the streams run, and kill them unless `spread_s` is None; tell if all has arrived."""
    found.lives += 1
    before = {name: _newest(place / name) for name in TABLES}
    with _child(place, found.records) as child:
        said = _await(child, FLOWING)
        if said == FLOWING and spread_s is not None:
            if rng.random() < _AFTER_PROGRESS:
                name = rng.choice(TABLES)
                _await_progress(child, place / name, before[name])
            time.sleep(rng.random() * spread_s)
            if child.poll() is None:
                found.kills += 1
                return False
        if said == DONE or _await(child, DONE) == DONE:
            return True
    # Spark gives up on a query when its own processes do not answer in time.
    found.ended += 1
    if found.ended > _ENDED_MAX:
        raise RuntimeError(f"the streams end by themselves: {_last_lines(place)}")
    return False


@contextmanager
def _child(place: Path, records: int) -> Iterator[subprocess.Popen[str]]:
    """Run the streams in a process group of their own, which is killed in the end."""
    command = [sys.executable, "-m", __spec__.name, "--place", str(place), "--records"]
    log = (place / "streams.log").open("a")
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
    """Return the word once the streams say it, or another last one."""
    assert child.stdout is not None
    said = ""
    for line in _lines(child.stdout):
        said = line
        if line in (word, DONE):
            return line
    return said


def _lines(stream: IO[str]) -> Iterator[str]:
    for line in stream:
        yield line.strip()


def _last_lines(place: Path) -> str:
    return (place / "streams.log").read_text()[-2_000:]


def _await_progress(child: subprocess.Popen[str], table: Path, before: str) -> None:
    """Return once a table has got on since `before`, or it is not going to for a while."""
    until = time.monotonic() + _PROGRESS_S
    while child.poll() is None and _newest(table) == before and time.monotonic() < until:
        time.sleep(0.05)


def _newest(table: Path) -> str:
    ledger = table / ".hoodie" / ".tidelock" / "ledger"
    return max((file.name for file in ledger.glob("*.json")), default="")


def _judge(place: Path, found: Found) -> None:
    import tidelock as tl

    with tl.Table.open(str(place)) as table:
        ids = table.read(["id"]).column("id")
        found.batches += len([i for i in table.history() if i.rows_written])
    distinct = pc.count_distinct(ids).as_py()
    known = pc.and_(pc.greater_equal(ids, 0), pc.less(ids, found.records))
    found.strange += len(ids) - pc.sum(known).as_py()
    found.twice += len(ids) - distinct
    found.missing += found.records - distinct


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    """Run the chaos, or be its streams; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill-minutes", type=float, default=24 * 60.0)
    parser.add_argument("--spread-s", type=float, default=8.0)
    parser.add_argument("--folder", type=Path, help="keep everything in this folder")
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.place is not None:
        stream(given.place, given.records)
        return 0
    with kept_or_not(given.folder, "tidelock-sink-") as place:
        found = run(
            given.records,
            given.kills,
            place,
            batches=given.batches,
            seed=given.seed,
            spread_s=given.spread_s,
            kill_minutes=given.kill_minutes,
        )
    _say(json.dumps(asdict(found), indent=1))
    return 0 if found.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
