"""The seam to whoever watches: names of metrics, events of the log, and spans of a trace.

Each layer lists its names in one place, and the documentation is generated from those lists. Spans
cost nothing until somebody gives a tracer; this package knows nothing of where they go.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class MetricKind(Enum):
    """What a metric does with the numbers it is given."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class MetricName:
    """One metric."""

    name: str
    kind: MetricKind
    doc: str
    is_hudis: bool = True


@dataclass(frozen=True, slots=True)
class EventName:
    """One kind of line in the log, with the fields it has beside those of all."""

    name: str
    level: int
    doc: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpanName:
    """One kind of span."""

    name: str
    doc: str


class Tracer(Protocol):
    """What opens spans: OpenTelemetry's tracer, behind `tidelock.ops.tracing`."""

    def span(self, name: str, attributes: dict[str, str | int]) -> AbstractContextManager[object]:
        """Return a span that lasts as long as the block."""
        ...


_tracers: list[Tracer] = []


@contextmanager
def traced_by(tracer: Tracer) -> Iterator[None]:
    """Let a tracer see the spans of this process for as long as the block lasts."""
    _tracers.append(tracer)
    try:
        yield
    finally:
        _tracers.remove(tracer)


def span(name: SpanName, **attributes: str | int) -> AbstractContextManager[object]:
    """Return a span around what happens in the block; nothing without a tracer."""
    if not _tracers:
        return nullcontext()
    return _tracers[-1].span(name.name, attributes)


def tell(
    logger: logging.Logger, event: EventName, message: str, *args: object, **fields: object
) -> None:
    """Write an event to the log: a sentence for people, its name and fields for programs."""
    if logger.isEnabledFor(event.level):
        logger.log(event.level, message, *args, extra={"event": event.name, "fields": fields})
