"""Ingestion, and beside it a compactor and a clusterer: three processes, one table, no lock server.

    python examples/separate_services.py [--batches 60]

The writers do nothing but write: their inline services are off. The services run wherever you like,
as often as you like, and may die at any moment; a plan that one leaves behind is taken up by the
next. Nobody waits for anybody, and no row is lost or doubled.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import tidelock as tl

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("city", pa.string())])
CITIES = ("Lima", "Oslo", "Pune")
KEYS = 2_000

# What `df.write.format("tidelock").options(...)` and a streamer's properties file take, too.
INGEST = {
    "hoodie.compact.inline": "false",
    "hoodie.clustering.inline": "false",
    "hoodie.clean.automatic": "false",
}


def ingest(uri: str, batches: int, over: Path) -> None:
    """Upsert batch after batch; most keys were there before."""
    with tl.Table.open(uri, options=INGEST) as table:
        for batch in range(batches):
            ids = [(batch * 331 + each * 7) % KEYS for each in range(300)]
            rows = {"id": ids, "ts": [batch] * 300, "city": [CITIES[n % 3] for n in ids]}
            # The mark makes the batch repeatable: whoever sends it again changes nothing.
            table.upsert(pa.table(rows, SCHEMA), mark=tl.Mark("ingest", batch))
    over.touch()
    print(f"ingestion: {batches} batches")


def compact(uri: str, _: int, over: Path) -> None:
    """Merge log files into base files whenever there are enough of them."""
    options = {"hoodie.compact.inline.max.delta.commits": "4"}
    with tl.Table.open(uri, options=options) as table:
        done = 0
        while not over.exists():
            done += len(table.compact().executed)
            time.sleep(0.2)
    print(f"compactor: {done} compactions")


def cluster(uri: str, _: int, over: Path) -> None:
    """Sort the rows of each city by time; gives way where a writer is faster."""
    options = {
        "hoodie.clustering.plan.strategy.sort.columns": "ts",
        "hoodie.clustering.plan.strategy.small.file.limit": str(100 * 1024 * 1024),
    }
    with tl.Table.open(uri, options=options) as table:
        done = gave_way = 0
        while not over.exists():
            ran = table.cluster()
            done, gave_way = done + len(ran.executed), gave_way + len(ran.left)
            time.sleep(1.0)
        table.clean()
    print(f"clusterer: {done} clusterings, gave way {gave_way} times")


ROLES: dict[str, Callable[[str, int, Path], None]] = {
    "ingest": ingest,
    "compact": compact,
    "cluster": cluster,
}


def run(batches: int) -> None:
    """Start the three, wait for them, and compare the table with what was written."""
    with tempfile.TemporaryDirectory(prefix="tidelock-example-") as folder:
        uri = str(Path(folder) / "orders")
        created = tl.Table.create(
            uri, SCHEMA, key="id", ordering="ts", partition_by="city", type="MERGE_ON_READ"
        )
        created.close()
        command = [sys.executable, __file__, "--uri", uri, "--batches", str(batches), "--role"]
        processes = [subprocess.Popen([*command, role]) for role in ROLES]
        assert [process.wait() for process in processes] == [0, 0, 0]
        check(uri)


def check(uri: str) -> None:
    """Compute what the table must hold from the last mark, and compare every row."""
    with tl.Table.open(uri) as table:
        last = table.mark("ingest")
        rows = {row["id"]: row["ts"] for row in table.read().to_pylist()}
        actions = {str(entry.action) for entry in table.history()}
    assert last is not None
    expected = {
        (batch * 331 + each * 7) % KEYS: batch
        for batch in range(last.version + 1)
        for each in range(300)
    }
    assert rows == expected
    print(f"{len(rows)} rows, each as its last batch wrote it; on the timeline: {sorted(actions)}")


def main() -> None:
    """Run all, or one of the three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--role", choices=ROLES)
    parser.add_argument("--uri", default="")
    given = parser.parse_args()
    if given.role:
        ROLES[given.role](given.uri, given.batches, Path(f"{given.uri}.over"))
    else:
        run(given.batches)


if __name__ == "__main__":
    main()
