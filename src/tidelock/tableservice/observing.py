"""What table services tell whoever watches: metrics, events and spans, by name."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelock.base.metrics import PROCESS
from tidelock.base.telemetry import EventName, MetricKind, MetricName, SpanName, span, tell
from tidelock.txn.transactions import Transactions

logger = logging.getLogger(__name__)

_C, _T = MetricKind.COUNTER, MetricKind.TIMER


def _ours(name: str, kind: MetricKind, doc: str) -> MetricName:
    return MetricName(name, kind, doc, is_hudis=False)


METRICS: Final = (
    _ours("service.scheduled", _C, "a plan of a table service was put on the timeline"),
    _ours("service.executed", _C, "a plan was carried out"),
    _ours("service.failed", _C, "a plan was begun and not carried out"),
    _ours("service.refused", _C, "a plan was not claimed: somebody else is at it, or it is over"),
    _ours("service.duration", _T, "how long the execution of a plan took, in ms"),
)

SCHEDULED = EventName("service.scheduled", logging.INFO, "a plan was made", ("service",))
EXECUTED = EventName(
    "service.executed", logging.INFO, "a plan was carried out", ("service", "took_ms")
)
FAILED = EventName("service.failed", logging.INFO, "a plan was not carried out", ("service", "why"))
EVENTS: Final = (SCHEDULED, EXECUTED, FAILED)

SERVICE_SPAN = SpanName("tidelock.service", "the execution of a table service's plan")
SPANS: Final = (SERVICE_SPAN,)


def told_scheduled(transactions: Transactions, service: str, instant: str) -> None:
    """Tell that a plan was made."""
    PROCESS.count("service.scheduled")
    _tell(SCHEDULED, transactions, instant, "the %s %s is planned", service, service=service)


def told_refused(transactions: Transactions, service: str, instant: str, why: str) -> None:
    """Tell that a plan was left to others."""
    PROCESS.count("service.refused")
    _tell(FAILED, transactions, instant, "the %s %s was left", service, service=service, why=why)


@contextmanager
def executing(transactions: Transactions, service: str, instant: str) -> Iterator[None]:
    """Watch over the execution of a plan."""
    clock = transactions.clock
    started_ms = clock.now().monotonic_ms
    about = {"table": transactions.store.uri, "writer": transactions.owner}
    try:
        with span(SERVICE_SPAN, **about, service=service, instant=instant):
            yield
    except BaseException as error:
        PROCESS.count("service.failed")
        why = f"{type(error).__name__}: {error}"
        said = "the %s %s failed"
        _tell(FAILED, transactions, instant, said, service, service=service, why=why)
        raise
    took_ms = clock.now().monotonic_ms - started_ms
    PROCESS.count("service.executed")
    PROCESS.time("service.duration", took_ms)
    said = "the %s %s is done"
    _tell(EXECUTED, transactions, instant, said, service, service=service, took_ms=took_ms)


def _tell(
    event: EventName,
    transactions: Transactions,
    instant: str,
    message: str,
    name: str,
    **fields: object,
) -> None:
    told = {"table": transactions.store.uri, "writer": transactions.owner, "instant": instant}
    tell(logger, event, message, name, instant, **told, **fields)
