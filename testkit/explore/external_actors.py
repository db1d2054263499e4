"""Writers that do not run the lock machine: earlier owners, a Hudi Java writer, an operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from testkit.explore.bounds import DRIFT_MS, EPOCH_MS, INSTANTS_MS, Bounds
from testkit.explore.values import Stored, StoredCounter
from tidelock.lock.record import LockRecord, TokenCounter

UNREADABLE = Stored("unreadable", None)


def start(name: str, bounds: Bounds) -> tuple[Stored | None, StoredCounter | None]:
    """Return the initial objects of a search."""
    counter = StoredCounter("Z:0", TokenCounter(bounds.token_range, "Z:0"))
    until = EPOCH_MS + bounds.validity_ms
    held = LockRecord(
        expired=False,
        valid_until_epoch_ms=until,
        owner="Z",
        token=1,
        token_ceiling=bounds.token_range,
        nonce="Z:1",
    )
    starts: dict[str, tuple[Stored | None, StoredCounter | None]] = {
        "absent": (None, None),
        "free": (Stored("Z:1", replace(held, expired=True)), counter),
        "held": (Stored("Z:1", held), counter),
        "java": (Stored("Z:1", _java(until, expired=True)), counter),
        "unreadable": (UNREADABLE, None),
    }
    return starts[name]


def java_writes(
    lock: Stored | None, time: int, nonce: int, bounds: Bounds
) -> Iterator[tuple[str, Stored]]:
    """Yield the possible writes of a Java writer: acquire, renew, release.

    It writes three fields. Its clock is ahead by the drift, which is the worst case.
    """
    wall = EPOCH_MS + INSTANTS_MS[time] + DRIFT_MS
    version = f"J:{nonce}"
    live = Stored(version, _java(wall + bounds.validity_ms))
    if lock is None:
        yield "Java: acquires", live
        return
    record = lock.record
    if record is None:
        return
    if record.expired or wall > record.valid_until_epoch_ms + DRIFT_MS:
        yield "Java: acquires", live
    elif record.owner == "J":
        yield "Java: renews", live
        yield "Java: releases", Stored(version, replace(record, expired=True))


def _java(until_epoch_ms: int, *, expired: bool = False) -> LockRecord:
    return LockRecord(expired=expired, valid_until_epoch_ms=until_epoch_ms, owner="J")


def operator_actions(lock: Stored | None, nonce: int) -> Iterator[tuple[str, Stored | None]]:
    """Yield the possible actions of an operator on the lock object."""
    if lock is None:
        return
    yield "operator: deletes the lock object", None
    if lock.record is None:
        return
    yield "operator: damages the lock object", UNREADABLE
    if not lock.record.expired:
        version = f"O:{nonce}"
        previous = lock.record.as_previous()
        freed = replace(lock.record, expired=True, nonce=version, previous=previous)
        yield "operator: releases by force", Stored(version, freed)
