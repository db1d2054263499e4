"""Metrics, events, spans and alerts of transactions.

The lists below contain every name. The documentation is generated from them, and a test checks that
each one is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from tidelock.core.clock import Clock
from tidelock.core.errors import Fenced, HoldingLost
from tidelock.core.outcome import Unknown
from tidelock.core.telemetry import (
    PROCESS,
    EventName,
    MetricKind,
    MetricName,
    Metrics,
    SpanName,
    log_event,
    span,
)
from tidelock.hudi.timeline.instant import parse_time
from tidelock.lock.alerts import Alert, AlertKind, Alerts
from tidelock.txn.conflicts import (
    Abort,
    CheckKeys,
    CommitResult,
    Committed,
    Conflicted,
    Preempted,
    Rebase,
    Repeated,
    ReplanReplaced,
)
from tidelock.txn.entries import ExternalCommit, LedgerEntry

logger = logging.getLogger(__name__)

_C, _G, _T = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.TIMER

METRICS: Final = (
    MetricName("txn.begin.duration", _T, "time to begin a write, including its lock, in ms"),
    MetricName("txn.commit.duration", _T, "time of one commit attempt, including its lock, in ms"),
    MetricName("txn.lock.wait", _T, "time a begin or commit waited for the table's lock, in ms"),
    MetricName("txn.commit.success", _C, "a write was committed"),
    MetricName("txn.commit.rebased", _C, "a write was committed after a conflict"),
    MetricName("txn.commit.unknown", _C, "the outcome of a commit is unknown"),
    MetricName("txn.conflict.rebase", _C, "a write conflicted and has to be merged again"),
    MetricName(
        "txn.conflict.checkkeys", _C, "two writes inserted into one partition; keys are compared"
    ),
    MetricName("txn.conflict.replanreplaced", _C, "an overwrite has to replace other file groups"),
    MetricName("txn.conflict.yield", _C, "a table service was preempted by a writer"),
    MetricName("txn.conflict.refuse", _C, "a write conflicted and cannot be merged safely"),
    MetricName("txn.conflict.repeated", _C, "a write was already committed before"),
    MetricName("txn.rollback", _C, "a write was rolled back by its own writer"),
    MetricName("txn.recovered", _C, "the write of a dead writer was rolled back"),
    MetricName("txn.foreign", _C, "a commit of an external writer was imported"),
    MetricName("txn.heartbeat.failed", _C, "a heartbeat was not refreshed"),
    MetricName("txn.heartbeat.lost", _C, "a heartbeat was removed by another process"),
    MetricName("txn.ledger.position", _G, "position of the last ledger entry that was read"),
)

_VERDICT_NAMES: Final = {
    Rebase: "rebase",
    CheckKeys: "checkkeys",
    ReplanReplaced: "replanreplaced",
    Preempted: "yield",
    Abort: "refuse",
    Repeated: "repeated",
}
"""The names in metrics and events: part of the public interface, independent of class names."""

BEGUN = EventName("txn.begun", logging.INFO, "a write began", ("operation",))
COMMITTED = EventName(
    "txn.committed", logging.INFO, "a write was committed", ("completion", "position", "took_ms")
)
CONFLICTED = EventName(
    "txn.overtaken",
    logging.INFO,
    "a write conflicted with another commit",
    ("verdict", "overtaken_by"),
)
UNKNOWN = EventName(
    "txn.unknown", logging.WARNING, "the outcome of a commit is unknown", ("cause",)
)
ROLLED_BACK = EventName("txn.rolledback", logging.INFO, "a write was rolled back", ("reason",))
RECOVERED = EventName("txn.recovered", logging.INFO, "the write of a dead writer was rolled back")
EXTERNAL = EventName("txn.foreign", logging.INFO, "a commit of an external writer was imported")
HEARTBEAT_FAILED = EventName(
    "txn.heartbeat.failed", logging.WARNING, "a heartbeat was not refreshed"
)
EVENTS: Final = (
    BEGUN,
    COMMITTED,
    CONFLICTED,
    UNKNOWN,
    ROLLED_BACK,
    RECOVERED,
    EXTERNAL,
    HEARTBEAT_FAILED,
)

BEGIN_SPAN = SpanName("tidelock.begin", "begin a write: lock, request time, pending instant")
COMMIT_SPAN = SpanName(
    "tidelock.commit", "one commit attempt: lock, conflict check, ledger, timeline"
)
LOCK_SPAN = SpanName("tidelock.lock", "wait for the table's lock")
SPANS: Final = (BEGIN_SPAN, COMMIT_SPAN, LOCK_SPAN)

_STARVED_AFTER: Final = 2
"""Consecutive failed refreshes that raise an alert. A single one may be a lost answer."""


@dataclass(slots=True)
class CommitAttempt:
    """One commit attempt and its result, None while it runs."""

    result: CommitResult | None = None


@dataclass(slots=True)
class TransactionTelemetry:
    """Reports the transactions of one process on one table."""

    uri: str
    owner: str
    clock: Clock
    alerts: Alerts = field(default_factory=lambda: Alerts.read({}))
    metrics: Metrics = field(default_factory=lambda: PROCESS)
    drift_ms: int = 200

    @contextmanager
    def begin(self, operation: str) -> Iterator[None]:
        """Measure the start of a write."""
        started_ms = self.clock.now().monotonic_ms
        with span(BEGIN_SPAN, table=self.uri, writer=self.owner, operation=operation):
            yield
        took_ms = self.clock.now().monotonic_ms - started_ms
        self.metrics.time("txn.begin.duration", took_ms)

    def begun(self, instant: str, operation: str) -> None:
        self._emit(BEGUN, instant, "%s began: %s", instant, operation, operation=operation)

    @contextmanager
    def commit(self, instant: str, *, rebased: int) -> Iterator[CommitAttempt]:
        """Measure and report one commit attempt."""
        tried, started_ms = CommitAttempt(), self.clock.now().monotonic_ms
        try:
            with span(COMMIT_SPAN, table=self.uri, writer=self.owner, instant=instant):
                yield tried
        except HoldingLost as error:
            kind = AlertKind.FENCED if isinstance(error, Fenced) else AlertKind.LOCK_LOST
            self.alert(kind, str(error), instant)
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
                fields = {"completion": completion, "position": position, "took_ms": took_ms}
                self._emit(COMMITTED, instant, "%s is committed", instant, **fields)
            case Conflicted(verdict=verdict):
                name = _VERDICT_NAMES[type(verdict)]
                self.metrics.count(f"txn.conflict.{name}")
                others = () if isinstance(verdict, Preempted) else verdict.report.others
                fields = {"verdict": name, "overtaken_by": [other.instant for other in others]}
                reason = result.reason or str(verdict.report)
                self._emit(CONFLICTED, instant, "%s: %s", instant, reason, **fields)
            case Unknown(cause):
                self.metrics.count("txn.commit.unknown")
                self._emit(UNKNOWN, instant, "%s: %s", instant, cause, cause=cause)
            case None:
                pass

    def fenced(self, instant: str, reason: str) -> None:
        """Report that a writer returned after others had rolled it back as dead."""
        self.alert(AlertKind.FENCED, f"{instant} was not committed: {reason}", instant)

    def rolled_back(self, instant: str, reason: str) -> None:
        """Report that a write was rolled back by its own writer."""
        self.metrics.count("txn.rollback")
        self._emit(ROLLED_BACK, instant, "%s is rolled back: %s", instant, reason, reason=reason)

    def recovered(self, instants: Sequence[str]) -> None:
        """Report that writes of dead writers were rolled back."""
        for instant in instants:
            self.metrics.count("txn.recovered")
            self._emit(RECOVERED, instant, "%s of a dead writer is rolled back", instant)

    def external(self, entries: Sequence[LedgerEntry], *, held_since_epoch_ms: int | None) -> None:
        """Report imported external commits; alert if they cannot have held the table's lock.

        `held_since_epoch_ms` is the time since which this process has held the lock: commits
        completed later did not hold it. None if no lock is configured.
        """
        for entry in entries:
            fact = entry.fact
            if not isinstance(fact, ExternalCommit):
                continue
            self.metrics.count("txn.foreign")
            self._emit(
                EXTERNAL, fact.instant, "%s was committed by an external writer", fact.instant
            )
            if held_since_epoch_ms is None:
                reason = "and this process uses no lock to keep it out"
            elif parse_time(fact.completion) > held_since_epoch_ms + self.drift_ms:
                reason = "while this process held the table's lock"
            else:
                continue
            message = f"{fact.action} {fact.instant} was completed by an external writer {reason}"
            self.alert(AlertKind.EXTERNAL_UNLOCKED, message, fact.instant)

    def not_refreshed(self, instant: str, reason: str, *, failed: int) -> None:
        """Report a heartbeat that was not refreshed for the `failed`th time in a row."""
        self.metrics.count("txn.heartbeat.failed")
        message = "the heartbeat of %s was not refreshed: %s"
        self._emit(HEARTBEAT_FAILED, instant, message, instant, reason)
        if failed == _STARVED_AFTER:
            alert = f"the heartbeat of {instant} was not refreshed {failed} times: {reason}"
            self.alert(AlertKind.STARVED, alert, instant)

    def heartbeat_lost(self, instant: str, reason: str) -> None:
        """Report that another process removed a heartbeat: its write was rolled back as dead."""
        self.metrics.count("txn.heartbeat.lost")
        self.alert(AlertKind.FENCED, reason, instant)

    def conflicted_again(self, rounds: int, conflict: Conflicted) -> None:
        """Alert once a write has conflicted more often than configured."""
        if rounds == self.alerts.retries_max + 1:
            report, times = conflict.verdict.report, "once" if rounds == 1 else f"{rounds} times"
            retried = f"{report.mine} conflicted {times} and is being retried"
            self.alert(AlertKind.RETRIES, f"{retried}; last conflict: {report.against}")

    def alert(self, kind: AlertKind, message: str, instant: str = "") -> None:
        now_ms = self.clock.now().wall_epoch_ms
        self.alerts.fire(Alert(kind, self.uri, message, now_ms, self.owner, instant))

    def _emit(
        self, event: EventName, instant: str, message: str, *args: object, **fields: object
    ) -> None:
        fields = {"table": self.uri, "writer": self.owner, "instant": instant, **fields}
        log_event(logger, event, message, *args, **fields)
