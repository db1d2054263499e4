"""Spans for OpenTelemetry: around beginning, writing, committing, locking and table services.

    with tracing():
        table.upsert(rows)

The spans go to the provider that the program has set up, as OpenTelemetry wants it; without one
they go nowhere. Needs `pip install 'tidelock[telemetry]'`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from tidelock.base.errors import MissingExtra
from tidelock.base.telemetry import traced_by


@dataclass(frozen=True, slots=True)
class _OpenTelemetry:
    tracer: Any

    def span(self, name: str, attributes: dict[str, str | int]) -> AbstractContextManager[object]:
        named = {f"tidelock.{key}": value for key, value in attributes.items()}
        span: AbstractContextManager[object] = self.tracer.start_as_current_span(
            name, attributes=named
        )
        return span


@contextmanager
def tracing(provider: object = None) -> Iterator[None]:
    """Send the spans of this process to a tracer provider, the global one unless given.

    Raises: `MissingExtra`.
    """
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise MissingExtra(
            "spans need OpenTelemetry", hint="pip install 'tidelock[telemetry]'"
        ) from error
    chosen: Any = provider or trace.get_tracer_provider()
    with traced_by(_OpenTelemetry(chosen.get_tracer("tidelock"))):
        yield
