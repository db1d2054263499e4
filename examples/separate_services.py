"""Ingestion, a compactor and a clusterer: three processes, one table, no lock server.

    python examples/separate_services.py [--batches 60]

The writer only writes: its inline services are disabled. The services can run anywhere, at any
interval, and may crash at any time; the next one executes a plan that was left behind. No process
waits for another, and no row is lost or duplicated.
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

# The same options work with `df.write.format("tidelock").options(...)` and with the streamer.
INGEST = {
    "hoodie.compact.inline": "false",
    "hoodie.clustering.inline": "false",
    "hoodie.clean.automatic": "false",
}


def ingest(uri: str, batches: int, over: Path) -> None:
    """Upsert batches; most keys exist already."""
    with tl.Table.open(uri, options=INGEST) as table:
        for batch in range(batches):
            ids = [(batch * 331 + each * 7) % KEYS for each in range(300)]
            rows = {"id": ids, "ts": [batch] * 300, "city": [CITIES[n % 3] for n in ids]}
            # With an application transaction, writing the same batch again has no effect.
            table.upsert(pa.table(rows, SCHEMA), app_transaction=tl.AppTransaction("ingest", batch))
    over.touch()
    print(f"ingestion: {batches} batches")


def compact(uri: str, _: int, over: Path) -> None:
    """Compact log files into base files whenever there are enough of them."""
    options = {"hoodie.compact.inline.max.delta.commits": "4"}
    with tl.Table.open(uri, options=options) as table:
        executed = 0
        while not over.exists():
            executed += len(table.compact().executed)
            time.sleep(0.2)
    print(f"compactor: {executed} compactions")


def cluster(uri: str, _: int, over: Path) -> None:
    """Sort the rows of each city by time; skips file groups that a writer has changed."""
    options = {
        "hoodie.clustering.plan.strategy.sort.columns": "ts",
        "hoodie.clustering.plan.strategy.small.file.limit": str(100 * 1024 * 1024),
    }
    with tl.Table.open(uri, options=options) as table:
        executed = skipped = 0
        while not over.exists():
            result = table.cluster()
            executed, skipped = executed + len(result.executed), skipped + len(result.skipped)
            time.sleep(1.0)
        table.clean()
    print(f"clusterer: {executed} clusterings, {skipped} skipped")


ROLES: dict[str, Callable[[str, int, Path], None]] = {
    "ingest": ingest,
    "compact": compact,
    "cluster": cluster,
}


def run(batches: int) -> None:
    """Start the three processes, wait for them, and check the table."""
    with tempfile.TemporaryDirectory(prefix="tidelock-example-") as folder:
        uri = str(Path(folder) / "orders")
        tl.Table.create(
            uri, SCHEMA, key="id", ordering="ts", partition_by="city", type="MERGE_ON_READ"
        ).close()
        command = [sys.executable, __file__, "--uri", uri, "--batches", str(batches), "--role"]
        processes = [subprocess.Popen([*command, role]) for role in ROLES]
        assert [process.wait() for process in processes] == [0, 0, 0]
        check(uri)


def check(uri: str) -> None:
    """Compute the expected rows from the last application transaction, and compare."""
    with tl.Table.open(uri) as table:
        last = table.app_transaction("ingest")
        rows = {row["id"]: row["ts"] for row in table.read().to_pylist()}
        actions = {str(entry.action) for entry in table.history()}
    assert last is not None
    expected = {
        (batch * 331 + each * 7) % KEYS: batch
        for batch in range(last.version + 1)
        for each in range(300)
    }
    assert rows == expected
    print(f"{len(rows)} rows, each from its last batch; actions on the timeline: {sorted(actions)}")


def main() -> None:
    """Run all processes, or one role in a child process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--role", choices=ROLES)
    parser.add_argument("--uri", default="")
    args = parser.parse_args()
    if args.role:
        ROLES[args.role](args.uri, args.batches, Path(f"{args.uri}.over"))
    else:
        run(args.batches)


if __name__ == "__main__":
    main()
