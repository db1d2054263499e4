"""Letting overtaken writers go first (C70-C73). Courtesy only: it decides nothing.

Without it, a writer whose batches take long to merge may be overtaken again and again by others
whose batches are short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelock.base.clock import Now
from tidelock.store.contract import StoredObject
from tidelock.table.filegroup.view import GroupId
from tidelock.txn.appending import append
from tidelock.txn.effects import Get, Pause, ReadClock, Steps
from tidelock.txn.entry import Fact, Turn
from tidelock.txn.fold import Fold, Waiting
from tidelock.txn.heartbeat import heartbeat_key, pulse_of
from tidelock.txn.reading import forward
from tidelock.txn.view import View

_POLL_MS: Final = (2.0, 50.0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a writer is about to write."""

    owner: str
    groups: frozenset[GroupId] = frozenset()
    partitions: frozenset[str] = frozenset()

    def meets(self, turn: Waiting) -> bool:
        """Tell whether a turn is about the same file groups, or inserts into the same place."""
        return bool(self.groups & turn.groups or self.partitions & turn.partitions)


def before_me(fold: Fold, wanted: Wanted) -> tuple[Waiting, ...]:
    """Return the turns that go first, oldest first (pure)."""
    own = min((turn.position for turn in fold.turns if turn.owner == wanted.owner), default=None)
    return tuple(
        turn
        for turn in fold.turns
        if turn.owner != wanted.owner
        and wanted.meets(turn)
        and (own is None or turn.position < own)
    )


def ask(view: View, turn: Turn, *, owner: str) -> Steps[View]:
    """Ask for the next turn. Whether the entry lands is of no great matter."""

    def propose(seen: View) -> Fact:
        del seen
        return turn

    return (yield from append(view, propose, owner=owner)).view


def wait(
    view: View, wanted: Wanted, *, timeout_ms: int, otherwise_ms: int
) -> Steps[tuple[View, bool]]:
    """Wait while a live writer has the turn; return whether it came within `timeout_ms`."""
    now: Now = yield ReadClock()
    until_ms = now.monotonic_ms + timeout_ms
    pause_ms = _POLL_MS[0]
    while True:
        waiting = yield from _first_alive(before_me(view.fold, wanted), otherwise_ms)
        if waiting is None:
            return view, True
        now = yield ReadClock()
        if now.monotonic_ms >= until_ms:
            return view, False
        yield Pause(min(pause_ms, until_ms - now.monotonic_ms))
        pause_ms = min(_POLL_MS[1], pause_ms * 1.5)
        view = yield from forward(view)


def _first_alive(turns: tuple[Waiting, ...], otherwise_ms: int) -> Steps[Waiting | None]:
    for turn in turns:
        found: StoredObject | None = yield Get(heartbeat_key(turn.instant))
        now: Now = yield ReadClock()
        if found is None:
            continue
        if pulse_of(turn.instant, found).is_alive(now.wall_epoch_ms, otherwise_ms=otherwise_ms):
            return turn
    return None
