"""Finding what dead writers left, and undoing it (C54-C59)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidelock.base.clock import Now
from tidelock.store.contract import ObjectMeta, StoredObject
from tidelock.table.timeline.instant import Action, Instant, furthest, parse_instant
from tidelock.txn.appending import Appended, Doubtful
from tidelock.txn.effects import Delete, Get, List, ReadClock, Steps
from tidelock.txn.entry import Rollback
from tidelock.txn.fold import Evidence
from tidelock.txn.heartbeat import HEARTBEAT_FOLDER, Pulse, heartbeat_key, pulse_of
from tidelock.txn.undoing import Undone, decide, remove_announcement, remove_files
from tidelock.txn.view import View

WRITES: Final = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


@dataclass(frozen=True, slots=True)
class Survey:
    """Who has begun something and not ended it, and whose heart beats."""

    pending: tuple[Instant, ...]
    pulses: dict[str, Pulse]
    now_epoch_ms: int

    def is_alive(self, instant: str, *, otherwise_ms: int) -> bool:
        """Tell whether the writer of an instant counts as alive."""
        pulse = self.pulses.get(instant)
        return pulse is not None and pulse.is_alive(self.now_epoch_ms, otherwise_ms=otherwise_ms)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was undone, and which live writers were left alone."""

    undone: tuple[Undone, ...] = ()
    alive: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = field(default=())


def survey(folder: str) -> Steps[Survey]:
    """List the timeline and the heartbeats."""
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/")
    found = [parse_instant(meta.key.removeprefix(f"{folder}/")) for meta in listed]
    instants = furthest(instant for instant in found if instant is not None)
    beats: tuple[ObjectMeta, ...] = yield List(f"{HEARTBEAT_FOLDER}/")
    pulses: dict[str, Pulse] = {}
    for meta in beats:
        instant = meta.key.rpartition("/")[2]
        held: StoredObject | None = yield Get(meta.key)
        if held is not None:
            pulses[instant] = pulse_of(instant, held)
    now: Now = yield ReadClock()
    pending = tuple(instant for instant in instants if not instant.is_completed)
    return Survey(pending, pulses, now.wall_epoch_ms)


def recover(
    view: View, *, folder: str, owner: str, running: frozenset[str], otherwise_ms: int, undo: bool
) -> Steps[tuple[View, Recovered]]:
    """Roll back the writes of dead writers, and finish roll-backs that were cut short.

    `running` are this process's own writes. An instant that the ledger has committed is never
    touched: its file is published, or about to be.
    """
    seen = yield from survey(folder)
    undone: list[Undone] = []
    alive: list[str] = []
    doubtful: list[str] = []
    for instant in seen.pending if undo else ():
        requested = instant.requested
        is_void = requested in view.fold.void
        if not is_void and (view.fold.is_settled(requested) or requested in view.fold.plans):
            continue
        if instant.action not in WRITES and not is_void:
            continue
        if not is_void and (
            requested in running or seen.is_alive(requested, otherwise_ms=otherwise_ms)
        ):
            alive.append(requested)
            continue
        if not is_void:
            fact = Rollback(requested, "its writer is dead")
            result = yield from decide(view, fact, seen=Evidence(), owner=owner)
            view = result.view
            if isinstance(result, Doubtful):
                doubtful.append(requested)
                continue
            if not isinstance(result, Appended) and requested not in view.fold.void:
                continue  # it was committed at the last moment
        undone.append((yield from _remove(instant, seen, folder)))
    yield from _forget_heartbeats(view, seen, running, otherwise_ms)
    return view, Recovered(tuple(undone), tuple(alive), tuple(doubtful))


def _remove(instant: Instant, seen: Survey, folder: str) -> Steps[Undone]:
    pulse = seen.pulses.get(instant.requested)
    marked = pulse is not None and pulse.says is not None and pulse.says.markers
    undone = yield from remove_files(instant.requested, marked=marked)
    yield from remove_announcement(instant.requested, instant.action, folder=folder)
    return undone


def _forget_heartbeats(
    view: View, seen: Survey, running: frozenset[str], otherwise_ms: int
) -> Steps[None]:
    """Delete heartbeats of which nothing is left but themselves."""
    waiting = {instant.requested for instant in seen.pending} | set(view.fold.plans) | running
    for instant in seen.pulses:
        if instant not in waiting and not seen.is_alive(instant, otherwise_ms=otherwise_ms):
            yield Delete(heartbeat_key(instant))
