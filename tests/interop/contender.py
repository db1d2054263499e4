"""What our processes do in these tests. Hudi's do the same in `HudiWriter.java`."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from multiprocessing.synchronize import Event
from pathlib import Path

from tidelock.lock.config import LockSettings
from tidelock.lock.driver import Lock
from tidelock.store.uri import open_store

SHORTEST = {
    "hoodie.write.lock.storage.validity.timeout.secs": 10,
    "hoodie.write.lock.storage.renew.interval.secs": 1,
}
"""The shortest lease that Hudi allows; both sides use it."""


def our_lock(uri: str, settings: Mapping[str, object]) -> Lock:
    """Return our lock of a table.

    The contract suite has proven this kind of server; a proof per table would take seconds of it.
    """
    return Lock(open_store(uri, settings), LockSettings.read(SHORTEST).lease, probe=False)


def hold(uri: str, settings: Mapping[str, object], holding: Event) -> None:
    """Take the lock, say so, and keep it until killed."""
    held = our_lock(uri, settings)
    held.acquire(20)
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
    start: Event,
) -> None:
    """Do `count` critical sections, each under the lock, once everybody is there."""
    ours = our_lock(uri, settings)
    start.wait(60)
    for _ in range(count):
        token = ours.acquire(120)
        section(name, token, Path(journal), Path(marker))
        ours.release()
        # Hudi needs three requests where we need one; pauses let it come to its turn in between.
        time.sleep(random.uniform(0, 0.2))
    ours.close()


def section(name: str, token: int, journal: Path, marker: Path) -> None:
    """Note the beginning and the end; a marker that is there already is an overlap."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        append(journal, "overlap", name, token)
    append(journal, "begin", name, token)
    time.sleep(random.uniform(0.001, 0.006))
    append(journal, "end", name, token)
    marker.unlink(missing_ok=True)


def append(journal: Path, event: str, name: str, token: int) -> None:
    """Append one line in one write, so that lines of several processes do not mix."""
    line = f"{time.monotonic_ns()} {event} {name} {token}\n"
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
