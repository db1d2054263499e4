"""Watching a command from outside: its metrics, its log as JSON, its spans."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from tidelock.ops.cli.output import Output
from tidelock.ops.telemetry.logs import JsonLines

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        help="Serve /metrics for Prometheus on this machine while the command runs; 0: any free.",
        show_default=False,
    ),
]
MetricsPush = Annotated[
    str | None,
    typer.Option(
        "--metrics-push",
        metavar="URL",
        help="Send metrics to a Prometheus push gateway every 15 s, and at the end.",
        show_default=False,
    ),
]
LogJson = Annotated[
    bool, typer.Option("--log-json", help="Write events to standard error as lines of JSON.")
]
Trace = Annotated[
    bool,
    typer.Option(
        "--trace", help="Send spans to the OpenTelemetry provider that this process is set up with."
    ),
]


@dataclass(frozen=True, slots=True)
class Observed:
    """How one command is watched."""

    port: int | None
    gateway: str | None
    trace: bool = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch for as long as the block lasts."""
        from tidelock.ops.telemetry.exporting import pushed, served
        from tidelock.ops.telemetry.tracing import tracing

        with ExitStack() as stack:
            if self.port is not None:
                url = stack.enter_context(served(self.port))
                Output.console(stderr=True).print(f"metrics: {url}", style="dim")
            if self.gateway is not None:
                stack.enter_context(pushed(self.gateway))
            if self.trace:
                stack.enter_context(tracing())
            yield


def log_as_json() -> None:
    """Write everything from information on to standard error as JSON, one object to a line."""
    root = logging.getLogger("tidelock")
    root.setLevel(logging.INFO)
    for handler in root.handlers:
        handler.filters.clear()
        handler.setFormatter(JsonLines())
