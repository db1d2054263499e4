"""A process that runs table services, or writes, again and again until it is told to stop or dies.

Run as `python -m tidelock.testing.servicechaos.serving ROLE URI NUMBER STOP`: it ends once the file
STOP is there. It says when it is ready; a writer prints each batch before and after it is written.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from pathlib import Path

import tidelock as tl
from tidelock.base.errors import Conflict

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
"""Keys of each writer."""


def serve(table: tl.Table, number: int, stop: Path) -> None:
    """Run one service after the other; what somebody else is at is left to them."""
    for name in itertools.cycle(SERVICES[number % 4 :] + SERVICES[: number % 4]):
        if stop.exists():
            return
        try:
            getattr(table, name)()
        except Conflict:
            continue


def write(table: tl.Table, writer: int, stop: Path) -> None:
    """Upsert a few keys of its own with larger and larger values."""
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
    """Do what the role says."""
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
