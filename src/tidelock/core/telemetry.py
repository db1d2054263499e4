"""Metrics, log events and trace spans: their names, and how they are recorded.

Each layer lists its names in one place, and the documentation is generated from those lists. Spans
cost nothing without a tracer.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class MetricKind(Enum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class MetricName:
    """The name, type and meaning of a metric."""

    name: str
    kind: MetricKind
    doc: str
    is_hudi_metric: bool = False


@dataclass(frozen=True, slots=True)
class EventName:
    """A log event, with its fields besides the common ones."""

    name: str
    level: int
    doc: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpanName:
    """A trace span."""

    name: str
    doc: str


class Tracer(Protocol):
    """Opens spans; `tidelock.telemetry.tracing` implements it with OpenTelemetry."""

    def span(
        self, name: str, attributes: dict[str, str | int]
    ) -> AbstractContextManager[object]: ...


_tracers: list[Tracer] = []


@contextmanager
def use_tracer(tracer: Tracer) -> Iterator[None]:
    """Send the spans of this process to a tracer inside the block."""
    _tracers.append(tracer)
    try:
        yield
    finally:
        _tracers.remove(tracer)


def span(name: SpanName, **attributes: str | int) -> AbstractContextManager[object]:
    """Return a span as a context manager; it does nothing without a tracer."""
    if not _tracers:
        return nullcontext()
    return _tracers[-1].span(name.name, attributes)


def log_event(
    logger: logging.Logger, event: EventName, message: str, *args: object, **fields: object
) -> None:
    """Log an event: a message for people, its name and fields for programs."""
    if logger.isEnabledFor(event.level):
        logger.log(event.level, message, *args, extra={"event": event.name, "fields": fields})


TIMER_SAMPLES_MAX = 100
"""The samples that a timer retains, as in Hudi."""


@dataclass(slots=True)
class Timer:
    """The number of samples, their sum, and the latest samples."""

    count: int = 0
    total_ms: float = 0.0
    latest_ms: deque[float] = field(default_factory=lambda: deque(maxlen=TIMER_SAMPLES_MAX))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of all metrics, by full name."""

    counters: dict[str, int]
    gauges: dict[str, float]
    timers: dict[str, Timer]


class Metrics:
    """The metrics of a component; thread-safe."""

    def __init__(self, prefix: str = "", *, is_process: bool = False) -> None:
        """Put `prefix` and a dot before every name, as Hudi's reporters do.

        Every value is recorded in `PROCESS` as well.
        """
        self._prefix = f"{prefix}." if prefix else ""
        self._process = None if is_process else PROCESS
        self._mutex = threading.Lock()
        self._counters: dict[str, int] = {}
        self._gauges: dict[str, float] = {}
        self._timers: dict[str, Timer] = {}

    def count(self, name: str, amount: int = 1) -> None:
        with self._mutex:
            full = self._prefix + name
            self._counters[full] = self._counters.get(full, 0) + amount
        if self._process is not None:
            self._process.count(full, amount)

    def gauge(self, name: str, value: float) -> None:
        with self._mutex:
            self._gauges[self._prefix + name] = value
        if self._process is not None:
            self._process.gauge(self._prefix + name, value)

    def time(self, name: str, duration_ms: float) -> None:
        with self._mutex:
            timer = self._timers.setdefault(self._prefix + name, Timer())
            timer.count += 1
            timer.total_ms += duration_ms
            timer.latest_ms.append(duration_ms)
        if self._process is not None:
            self._process.time(self._prefix + name, duration_ms)

    def counter(self, name: str) -> int:
        """Return the value of a counter; 0 if it does not exist."""
        with self._mutex:
            return self._counters.get(self._prefix + name, 0)

    def snapshot(self) -> Snapshot:
        with self._mutex:
            timers = {
                name: Timer(timer.count, timer.total_ms, timer.latest_ms.copy())
                for name, timer in self._timers.items()
            }
            return Snapshot(dict(self._counters), dict(self._gauges), timers)


PROCESS: Metrics = Metrics(is_process=True)
"""The metrics of this process, which exporters read."""
