"""What transactions tell whoever watches: metrics, events, spans and alerts, by name.

Every name is in a list here; the documentation is generated from them, and a test sees each one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from tidelock.base.clock import Clock
from tidelock.base.errors import Fenced, HoldingLost
from tidelock.base.metrics import PROCESS, Metrics
from tidelock.base.outcome import Unknown
from tidelock.base.telemetry import EventName, MetricKind, MetricName, SpanName, span, tell
from tidelock.lock.alerting import Alert, AlertKind, Alerts
from tidelock.table.timeline.instant import parse_time
from tidelock.txn.draft import CommitResult, Committed, Overtaken
from tidelock.txn.entry import Entry, Foreign
from tidelock.txn.verdict import Yield

logger = logging.getLogger(__name__)

_C, _G, _T = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.TIMER


def _ours(name: str, kind: MetricKind, doc: str) -> MetricName:
    return MetricName(name, kind, doc, is_hudis=False)


METRICS: Final = (
    _ours("txn.begin.duration", _T, "how long it took to begin a write, its lock included, in ms"),
    _ours("txn.commit.duration", _T, "how long one try to commit took, its lock included, in ms"),
    _ours("txn.lock.wait", _T, "how long a begin or commit waited for the table's lock, in ms"),
    _ours("txn.commit.success", _C, "a write was committed"),
    _ours("txn.commit.rebased", _C, "a write was committed that had been overtaken before"),
    _ours("txn.commit.unknown", _C, "nobody can tell whether a commit happened"),
    _ours("txn.conflict.rebase", _C, "a write was overtaken and is to be merged again"),
    _ours(
        "txn.conflict.checkkeys", _C, "two writes inserted into one partition; keys are compared"
    ),
    _ours("txn.conflict.replanreplaced", _C, "an overwrite has to take other file groups away"),
    _ours("txn.conflict.yield", _C, "a table service gave way to a writer"),
    _ours("txn.conflict.refuse", _C, "a write met another, and there is no safe merge"),
    _ours("txn.conflict.repeated", _C, "a write was found to have been committed before"),
    _ours("txn.rollback", _C, "a write was undone by its own writer"),
    _ours("txn.recovered", _C, "the write of a dead writer was undone"),
    _ours("txn.foreign", _C, "a commit of somebody who keeps no ledger was taken into the order"),
    _ours("txn.heartbeat.failed", _C, "a heartbeat was not refreshed"),
    _ours("txn.heartbeat.lost", _C, "a heartbeat was removed by somebody else"),
    _ours("txn.ledger.position", _G, "the last entry of the ledger that was read"),
)

BEGUN = EventName("txn.begun", logging.INFO, "a write began", ("operation",))
COMMITTED = EventName(
    "txn.committed", logging.INFO, "a write was committed", ("completion", "position", "took_ms")
)
OVERTAKEN = EventName(
    "txn.overtaken", logging.INFO, "somebody came between", ("verdict", "overtaken_by")
)
UNKNOWN = EventName(
    "txn.unknown", logging.WARNING, "nobody can tell whether it was committed", ("cause",)
)
ROLLED_BACK = EventName("txn.rolledback", logging.INFO, "a write was undone", ("reason",))
RECOVERED = EventName("txn.recovered", logging.INFO, "the write of a dead writer was undone")
FOREIGN = EventName(
    "txn.foreign", logging.INFO, "a commit without a ledger was taken into the order"
)
STARVED = EventName("txn.heartbeat.failed", logging.WARNING, "a heartbeat was not refreshed")
EVENTS: Final = (BEGUN, COMMITTED, OVERTAKEN, UNKNOWN, ROLLED_BACK, RECOVERED, FOREIGN, STARVED)

BEGIN_SPAN = SpanName("tidelock.begin", "beginning a write: lock, request time, announcement")
COMMIT_SPAN = SpanName("tidelock.commit", "one try to commit: lock, judgement, ledger, timeline")
LOCK_SPAN = SpanName("tidelock.lock", "waiting for the table's lock")
SPANS: Final = (BEGIN_SPAN, COMMIT_SPAN, LOCK_SPAN)

_STARVED_AFTER: Final = 2
"""Failed refreshes in a row that are an alert: one may be a lost answer."""


@dataclass(slots=True)
class Try:
    """One try to commit, and what came of it once it is over."""

    result: CommitResult | None = None


@dataclass(slots=True)
class Observing:
    """Tells of the transactions of one process on one table."""

    uri: str
    owner: str
    clock: Clock
    alerts: Alerts = field(default_factory=Alerts)
    metrics: Metrics = field(default_factory=lambda: PROCESS)
    drift_ms: int = 200

    @contextmanager
    def begin(self, operation: str) -> Iterator[None]:
        """Watch over a beginning."""
        started_ms = self.clock.now().monotonic_ms
        with span(BEGIN_SPAN, table=self.uri, writer=self.owner, operation=operation):
            yield
        took_ms = self.clock.now().monotonic_ms - started_ms
        self.metrics.time("txn.begin.duration", took_ms)

    def begun(self, instant: str, operation: str) -> None:
        """Tell that a write has begun."""
        self._tell(BEGUN, instant, "%s began: %s", instant, operation, operation=operation)

    @contextmanager
    def commit(self, instant: str, *, rebased: int) -> Iterator[Try]:
        """Watch over one try to commit."""
        tried, started_ms = Try(), self.clock.now().monotonic_ms
        try:
            with span(COMMIT_SPAN, table=self.uri, writer=self.owner, instant=instant):
                yield tried
        except HoldingLost as error:
            kind = AlertKind.FENCED if isinstance(error, Fenced) else AlertKind.LOCK_LOST
            self.alarm(kind, str(error), instant)
            raise
        finally:
            took_ms = self.clock.now().monotonic_ms - started_ms
            self.metrics.time("txn.commit.duration", took_ms)
        self._ended(instant, tried.result, took_ms, rebased)

    def _ended(self, instant: str, result: CommitResult | None, took_ms: int, rebased: int) -> None:
        match result:
            case Committed(completion=completion, position=position):
                self.metrics.count("txn.commit.success")
                if rebased:
                    self.metrics.count("txn.commit.rebased")
                self.metrics.gauge("txn.ledger.position", position)
                told = {"completion": completion, "position": position, "took_ms": took_ms}
                self._tell(COMMITTED, instant, "%s is committed", instant, **told)
            case Overtaken(verdict=verdict):
                name = type(verdict).__name__.lower()
                self.metrics.count(f"txn.conflict.{name}")
                others = [] if isinstance(verdict, Yield) else verdict.report.others
                by = [other.instant for other in others]
                told_by = {"verdict": name, "overtaken_by": by}
                reason = result.reason or str(verdict.report)
                self._tell(OVERTAKEN, instant, "%s: %s", instant, reason, **told_by)
            case Unknown(cause):
                self.metrics.count("txn.commit.unknown")
                self._tell(UNKNOWN, instant, "%s: %s", instant, cause, cause=cause)
            case None:
                pass

    def fenced(self, instant: str, why: str) -> None:
        """Tell that a writer came back after others had given it up for dead."""
        self.alarm(AlertKind.FENCED, f"{instant} was not committed: {why}", instant)

    def rolled_back(self, instant: str, reason: str) -> None:
        """Tell that a write was undone by its own writer."""
        self.metrics.count("txn.rollback")
        self._tell(ROLLED_BACK, instant, "%s is undone: %s", instant, reason, reason=reason)

    def recovered(self, instants: Sequence[str]) -> None:
        """Tell that writes of dead writers were undone."""
        for instant in instants:
            self.metrics.count("txn.recovered")
            self._tell(RECOVERED, instant, "%s of a dead writer is undone", instant)

    def foreign(self, entries: Sequence[Entry], *, held_since_epoch_ms: int | None) -> None:
        """Tell of commits without a ledger; an alarm unless they may have had the lock.

        `held_since_epoch_ms` is since when this process has held the table's lock: who completed
        meanwhile did not have it. None says that no lock is taken here at all.
        """
        for entry in entries:
            fact = entry.fact
            if not isinstance(fact, Foreign):
                continue
            self.metrics.count("txn.foreign")
            self._tell(FOREIGN, fact.instant, "%s has no ledger entry of its own", fact.instant)
            if held_since_epoch_ms is None:
                why = "and no lock is taken here that could keep it apart from ours"
            elif parse_time(fact.completion) > held_since_epoch_ms + self.drift_ms:
                why = "while this process held the table's lock"
            else:
                continue
            said = f"{fact.action} {fact.instant} was completed by somebody else, {why}"
            self.alarm(AlertKind.FOREIGN, said, fact.instant)

    def not_refreshed(self, instant: str, why: str, *, failed: int) -> None:
        """Tell that a heartbeat was not refreshed, for the `failed`th time in a row."""
        self.metrics.count("txn.heartbeat.failed")
        said = ("the heartbeat of %s was not refreshed: %s", instant, why)
        self._tell(STARVED, instant, *said)
        if failed == _STARVED_AFTER:
            message = f"the heartbeat of {instant} was not refreshed {failed} times: {why}"
            self.alarm(AlertKind.STARVED, message, instant)

    def heart_lost(self, instant: str, why: str) -> None:
        """Tell that somebody else removed a heartbeat: its write was given up for dead."""
        self.metrics.count("txn.heartbeat.lost")
        self.alarm(AlertKind.FENCED, why, instant)

    def overtaken_often(self, rounds: int, why: str) -> None:
        """Tell that a write is overtaken again and again; an alarm once it is too often."""
        if rounds == self.alerts.retries_max + 1:
            self.alarm(AlertKind.RETRIES, f"a write was overtaken {rounds} times, last: {why}")

    def alarm(self, kind: AlertKind, message: str, instant: str = "") -> None:
        """Raise an alert."""
        now_ms = self.clock.now().wall_epoch_ms
        self.alerts.fire(Alert(kind, self.uri, message, now_ms, self.owner, instant))

    def _tell(
        self, event: EventName, instant: str, message: str, *args: object, **fields: object
    ) -> None:
        told = {"table": self.uri, "writer": self.owner, "instant": instant, **fields}
        tell(logger, event, message, *args, **told)
