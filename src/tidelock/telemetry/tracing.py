"""OpenTelemetry spans of transactions, writes, locks and table services; logs as JSON.

    with tracing():
        table.upsert(rows)

Spans go to the tracer provider that the program has configured; without one they are dropped.
Needs `pip install 'tidelock[telemetry]'`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidelock.core.errors import MissingExtra
from tidelock.core.telemetry import use_tracer


@dataclass(frozen=True, slots=True)
class _OpenTelemetry:
    tracer: Any

    def span(self, name: str, attributes: dict[str, str | int]) -> AbstractContextManager[object]:
        named = {f"tidelock.{key}": value for key, value in attributes.items()}
        found: AbstractContextManager[object]
        found = self.tracer.start_as_current_span(name, attributes=named)
        return found


@contextmanager
def tracing(provider: object = None) -> Iterator[None]:
    """Send the spans of this process to a tracer provider, by default the global one.

    Raises: `MissingExtra`.
    """
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise MissingExtra(
            "spans need OpenTelemetry", hint="pip install 'tidelock[telemetry]'"
        ) from error
    chosen: Any = provider or trace.get_tracer_provider()
    with use_tracer(_OpenTelemetry(chosen.get_tracer("tidelock"))):
        yield


class JsonLines(logging.Formatter):
    """Formats log records as JSON, one object per line.

    Every line has `time`, `level`, `logger` and `message`. An event of this package also has
    `event`, `table`, `writer` and `instant`, and the fields listed in docs/events.md.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = getattr(record, "event", None)
        if event is not None:
            line["event"] = event
            line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
