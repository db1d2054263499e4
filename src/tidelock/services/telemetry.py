"""Metrics, events and spans of table services."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelock.core.telemetry import (
    PROCESS,
    EventName,
    MetricKind,
    MetricName,
    SpanName,
    log_event,
    span,
)
from tidelock.txn.transaction_manager import TransactionManager

logger = logging.getLogger(__name__)

_C, _T = MetricKind.COUNTER, MetricKind.TIMER


METRICS: Final = (
    MetricName("service.scheduled", _C, "a plan of a table service was scheduled"),
    MetricName("service.executed", _C, "a plan was executed"),
    MetricName("service.failed", _C, "the execution of a plan failed"),
    MetricName(
        "service.refused",
        _C,
        "a plan was not claimed: another process executes it, or it is completed",
    ),
    MetricName("service.duration", _T, "how long the execution of a plan took, in ms"),
)

SCHEDULED = EventName("service.scheduled", logging.INFO, "a plan was scheduled", ("service",))
EXECUTED = EventName(
    "service.executed", logging.INFO, "a plan was executed", ("service", "took_ms")
)
FAILED = EventName("service.failed", logging.INFO, "a plan was not executed", ("service", "why"))
EVENTS: Final = (SCHEDULED, EXECUTED, FAILED)

SERVICE_SPAN = SpanName("tidelock.service", "the execution of a table service's plan")
SPANS: Final = (SERVICE_SPAN,)


def report_scheduled(transactions: TransactionManager, service: str, instant: str) -> None:
    """Report a scheduled plan."""
    PROCESS.count("service.scheduled")
    _report(SCHEDULED, transactions, service, instant, "the %s %s is scheduled")


def report_refused(transactions: TransactionManager, service: str, instant: str, why: str) -> None:
    """Report a plan that could not be claimed."""
    PROCESS.count("service.refused")
    _report(FAILED, transactions, service, instant, "the %s %s was not claimed", why=why)


@contextmanager
def observe_execution(
    transactions: TransactionManager, service: str, instant: str
) -> Iterator[None]:
    """Record the execution of a plan: its span, duration and outcome."""
    clock = transactions.clock
    started_ms = clock.now().monotonic_ms
    try:
        with span(SERVICE_SPAN, **_context(transactions), service=service, instant=instant):
            yield
    except BaseException as error:
        PROCESS.count("service.failed")
        why = f"{type(error).__name__}: {error}"
        _report(FAILED, transactions, service, instant, "the %s %s failed", why=why)
        raise
    took_ms = clock.now().monotonic_ms - started_ms
    PROCESS.count("service.executed")
    PROCESS.time("service.duration", took_ms)
    _report(EXECUTED, transactions, service, instant, "the %s %s is done", took_ms=took_ms)


def _context(transactions: TransactionManager) -> dict[str, str]:
    return {"table": transactions.store.uri, "writer": transactions.owner}


def _report(
    event: EventName,
    transactions: TransactionManager,
    service: str,
    instant: str,
    message: str,
    **fields: object,
) -> None:
    context = {**_context(transactions), "instant": instant, "service": service}
    log_event(logger, event, message, service, instant, **context, **fields)
