"""What a program of a fleet asks of its store, and what it waits for, from one note to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelock.base.metrics import PROCESS, Metrics, Snapshot, Timer
from tidelock.store.metric_names import VERBS

_LOCK, _LINE = "txn.lock.wait", "store.line.wait"
"""Waiting for others: for the table's lock, or in line with those on the same machine."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What one write spent in its commits, and waiting for others."""

    commit_ms: int
    wait_ms: int
    lock_ms: int
    """The part of the waiting that was for the table's lock."""


@dataclass(slots=True)
class Tally:
    """Reads the numbers of this process, and remembers what it has told."""

    metrics: Metrics = field(default_factory=lambda: PROCESS)
    _sent: dict[str, int] = field(default_factory=dict)
    _timed: dict[str, float] = field(default_factory=dict)

    def sent(self) -> dict[str, int]:
        """Return how many requests of each verb were sent since the last call."""
        counted = {verb: self.metrics.counter(f"store.{verb}") for verb in VERBS}
        fresh = {verb: count - self._sent.get(verb, 0) for verb, count in counted.items()}
        self._sent = counted
        return {verb: count for verb, count in fresh.items() if count}

    def spent(self) -> Spent:
        """Return how long commits and waits took since the last call."""
        seen = self.metrics.snapshot()
        commit_ms = self._more(seen, "txn.commit.duration")
        lock_ms = self._more(seen, _LOCK)
        return Spent(commit_ms, lock_ms + self._more(seen, _LINE), lock_ms)

    def _more(self, seen: Snapshot, name: str) -> int:
        total_ms = seen.timers.get(name, Timer()).total_ms
        more_ms = total_ms - self._timed.get(name, 0.0)
        self._timed[name] = total_ms
        return round(more_ms)
