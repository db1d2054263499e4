"""Our contender processes. Hudi's counterpart is `HudiWriter.java`."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from multiprocessing.synchronize import Event
from pathlib import Path

from tidelock.lock.client import Lock
from tidelock.lock.config import LockSettings
from tidelock.storage.uri import open_store

SHORTEST = {
    "hoodie.write.lock.storage.validity.timeout.secs": 10,
    "hoodie.write.lock.storage.renew.interval.secs": 1,
}
"""The shortest lease that Hudi allows; both sides use it."""


def our_lock(uri: str, settings: Mapping[str, object]) -> Lock:
    """Return our lock of a table.

    The contract suite has probed this type of server; a probe per table would take seconds.
    """
    return Lock(open_store(uri, settings), LockSettings.read(SHORTEST).lease, probe=False)


def hold(uri: str, settings: Mapping[str, object], holding: Event) -> None:
    """Acquire the lock, report it, and hold it until killed."""
    held = our_lock(uri, settings)
    held.acquire(120)
    holding.set()
    while True:
        time.sleep(60)


def sections(
    uri: str,
    settings: Mapping[str, object],
    *,
    name: str,
    count: int,
    journal: str,
    marker: str,
    ready: Event,
    start: Event,
) -> None:
    """Run `count` critical sections, each under the lock, once all contenders are ready."""
    ours = our_lock(uri, settings)
    ready.set()
    start.wait(240)
    for _ in range(count):
        token = ours.acquire(240)
        section(name, token, Path(journal), Path(marker))
        ours.release()
        # Hudi needs three requests where we need one; pauses let it acquire the lock in between.
        time.sleep(random.uniform(0, 0.2))
    ours.close()


def section(name: str, token: int, journal: Path, marker: Path) -> None:
    """Record the beginning and the end; a marker that already exists is an overlap."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        append(journal, "overlap", name, token)
    append(journal, "begin", name, token)
    time.sleep(random.uniform(0.001, 0.006))  # the critical section
    append(journal, "end", name, token)
    marker.unlink(missing_ok=True)


def append(journal: Path, event: str, name: str, token: int) -> None:
    """Append one line in one write, so that lines of several processes do not interleave."""
    line = f"{time.monotonic_ns()} {event} {name} {token}\n"
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
