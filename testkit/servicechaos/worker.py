"""A process that runs table services, or writes, in a loop.

`python -m testkit.servicechaos.worker ROLE URI NUMBER STOP` ends when the file STOP exists. It
prints `ready` after its start; a writer prints each batch before and after it is written.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from pathlib import Path

import tidelock as tl
from tidelock.core.errors import Conflict

HEARTBEAT_MS = 1_000
MISSES = 2
OPTIONS = {
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.client.heartbeat.interval_in_ms": str(HEARTBEAT_MS),
    "hoodie.client.heartbeat.tolerable.misses": str(MISSES),
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.clean.commits.retained": "3",
    "hoodie.keep.min.commits": "5",
    "hoodie.keep.max.commits": "7",
}
SERVICES = ("compact", "cluster", "clean", "archive")
KEYS = 200
"""The number of keys per writer."""


def serve(table: tl.Table, number: int, stop: Path) -> None:
    """Run one service after the other; skip plans that another process executes."""
    for name in itertools.cycle(SERVICES[number % 4 :] + SERVICES[: number % 4]):
        if stop.exists():
            return
        try:
            getattr(table, name)()
        except Conflict:
            continue


def write(table: tl.Table, writer: int, stop: Path) -> None:
    """Upsert a few keys of this writer with increasing values."""
    while not stop.exists():
        value = time.time_ns()
        keys = [writer * KEYS + key for key in random.sample(range(KEYS), 3)]
        line = " ".join(map(str, [value, *keys]))
        sys.stdout.write(f"begins {line}\n")
        sys.stdout.flush()
        table.upsert([{"id": key, "value": value} for key in keys])
        sys.stdout.write(f"wrote {line}\n")
        sys.stdout.flush()


def main() -> None:
    """Run the role."""
    role, uri, number, stop = sys.argv[1:]
    with tl.Table.open(uri, options=OPTIONS) as table:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        if role == "service":
            serve(table, int(number), Path(stop))
        else:
            write(table, int(number), Path(stop))


if __name__ == "__main__":
    main()
