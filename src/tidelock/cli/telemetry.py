"""Telemetry of commands: metrics, JSON logs and traces; and `tidelock metrics`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated

from tidelock.cli import options, server_options
from tidelock.cli.options import argument, flag, option
from tidelock.cli.output import Output
from tidelock.telemetry.tracing import JsonLines, tracing


@dataclass(frozen=True, kw_only=True)
class TelemetryOptions:
    """The telemetry of one command."""

    metrics_port: Annotated[
        int | None,
        option(
            "--metrics-port PORT",
            "Serve /metrics for Prometheus on localhost during the command; 0 picks a free port.",
        ),
    ] = None
    metrics_push: Annotated[
        str | None,
        option(
            "--metrics-push URL",
            "Push metrics to a Prometheus Pushgateway every 15 s and at the end.",
        ),
    ] = None
    log_json: Annotated[
        bool, flag("--log-json", "Write events to standard error as JSON lines.")
    ] = False
    trace: Annotated[
        bool, flag("--trace", "Send spans to the OpenTelemetry provider of this process.")
    ] = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Export telemetry while the block runs."""
        if self.log_json:
            log_as_json()
        with ExitStack() as stack:
            if self.metrics_port is not None or self.metrics_push is not None:
                from tidelock.telemetry.prometheus import metrics_server, pushed

                if self.metrics_port is not None:
                    url = stack.enter_context(metrics_server(self.metrics_port))
                    Output.console(stderr=True).print(f"metrics: {url}", style="dim")
                if self.metrics_push is not None:
                    stack.enter_context(pushed(self.metrics_push))
            if self.trace:
                stack.enter_context(tracing())
            yield


def log_as_json() -> None:
    """Log to standard error as JSON lines, from level INFO on."""
    root = logging.getLogger("tidelock")
    root.setLevel(logging.INFO)
    for handler in root.handlers:
        handler.filters.clear()
        handler.setFormatter(JsonLines())


def metrics(
    tables: Annotated[
        list[str],
        argument("URI...", "The base paths of tables: paths, or URIs with file, s3, gs or abfss."),
    ],
    *,
    port: Annotated[
        int, option("--port PORT", "The port; 0 picks a free port.", show_default=True)
    ] = 9410,
    host: Annotated[
        str, option("--host ADDRESS", "The address to listen on.", show_default=True)
    ] = "127.0.0.1",
    once: Annotated[bool, flag("--once", "Print the metrics once and exit.")] = False,
    given: options.CommonOptions,
) -> None:
    """Serve metrics of tables for Prometheus at /metrics.

    Metrics of the ledger, active and dead writers, pending plans and their age, the lock, and the
    age of the last commit. Each scrape reads the tables and changes nothing. Writers export their
    own metrics with `tidelock --metrics-port`.

        tidelock metrics s3://lake/orders s3://lake/customers --port 9410
    """
    from tidelock.telemetry.prometheus import gauges, metrics_server, table_metrics

    with ExitStack() as stack:
        watches = server_options.opened_watches(stack, tables, given.settings())
        if once:
            values = {watch.store.uri: gauges(watch) for watch in watches}
            given.output.result(values, table_metrics(watches).decode().rstrip())
            return
        url = stack.enter_context(
            metrics_server(port, host=host, render=lambda: table_metrics(watches))
        )
        server_options.serve_until_stopped(
            given.output,
            {"event": "serving", "url": url},
            f"{url}  serves metrics of {len(watches)} tables; stop with Ctrl-C",
        )
