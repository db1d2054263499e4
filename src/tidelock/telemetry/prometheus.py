"""Metrics for Prometheus: an HTTP endpoint to scrape, and a push gateway client."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import quote

import urllib3

from tidelock.core.errors import ConfigInvalid
from tidelock.core.exposition import CONTENT_TYPE, expose, labelled_gauge, snapshot_families
from tidelock.core.telemetry import PROCESS, EventName, MetricKind, MetricName, SpanName
from tidelock.core.threads import start_thread
from tidelock.dashboard.watch import TableWatch
from tidelock.hudi.timeline.instant import parse_time
from tidelock.lock import alerts, telemetry
from tidelock.lock.server import telemetry as of_lock_services
from tidelock.operations import report as of_operations
from tidelock.services import telemetry as of_services
from tidelock.storage import telemetry as of_stores
from tidelock.streamer import telemetry as of_streamers
from tidelock.txn import telemetry as of_transactions

_TABLES: Final = {
    "table.ledger.position": "the position of the last ledger entry",
    "table.instants": "instants on the active timeline",
    "table.writers.alive": "running writes with a fresh heartbeat",
    "table.writers.dead": "unfinished writes without a fresh heartbeat",
    "table.plans.pending": "pending plans of table services",
    "table.plans.oldest.age": "the age of the oldest pending plan, in ms; 0 without one",
    "table.conflicts": "conflicts, as far back as the ledger is retained",
    "table.lock.held": "1 while the storage lock is held",
    "table.lock.waiters": "writers waiting for the lock, as far as it is known",
    "table.commit.age": "the time since the last completed write, in ms",
    "table.readable": "1 if the last read of the table succeeded",
}

TABLES: Final = tuple(MetricName(name, MetricKind.GAUGE, doc) for name, doc in _TABLES.items())
"""The metrics of each table that `tidelock metrics` serves."""

METRICS: Final[tuple[tuple[str, tuple[MetricName, ...]], ...]] = (
    ("Locks", telemetry.METRICS),
    ("Lock service", of_lock_services.METRICS),
    ("Stores", of_stores.METRICS),
    ("Transactions", of_transactions.METRICS),
    ("Writes and reads", of_operations.METRICS),
    ("Table services", of_services.METRICS),
    ("Streamers", of_streamers.METRICS),
    ("Tables", TABLES),
)

EVENTS: Final[tuple[EventName, ...]] = (
    *of_transactions.EVENTS,
    *of_operations.EVENTS,
    *of_services.EVENTS,
    *alerts.EVENTS,
)

SPANS: Final[tuple[SpanName, ...]] = (
    *of_operations.SPANS,
    *of_transactions.SPANS,
    *of_services.SPANS,
)


logger = logging.getLogger(__name__)

Render = Callable[[], bytes]
"""Returns metrics in the text format."""


def process_metrics() -> bytes:
    """Return the metrics of this process."""
    return expose(snapshot_families(PROCESS.snapshot()))


@contextmanager
def metrics_server(
    port: int, *, host: str = "127.0.0.1", render: Render = process_metrics
) -> Iterator[str]:
    """Serve `GET /metrics` inside the block; yield the URL.

    Port 0 chooses a free port. Raises: `ConfigInvalid` if the port is in use.
    """
    handler = type("MetricsHandler", (_Handler,), {"render": staticmethod(render)})
    try:
        server = ThreadingHTTPServer((host, port), handler)
    except OSError as error:
        raise ConfigInvalid(
            f"cannot serve metrics on {host}:{port}: {error}", hint="choose another port"
        ) from error
    server.daemon_threads = True
    start_thread("tidelock-metrics", lambda: server.serve_forever(poll_interval=0.1))
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tidelock", ""
    timeout = 30
    render: Render

    def do_GET(self) -> None:
        """Respond with the current metrics."""
        known = self.path.partition("?")[0] == "/metrics"
        body = self.render() if known else b"see /metrics\n"
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log through the logger of this module."""
        logger.debug(format, *args)


@contextmanager
def pushed(
    gateway: str, *, job: str = "tidelock", every_s: float = 15.0, render: Render = process_metrics
) -> Iterator[None]:
    """Push metrics to a gateway at an interval inside the block, and once more at its end.

    A failed push is logged and has no other effect.
    """
    instance = quote(f"{socket.gethostname()}:{os.getpid()}", safe="")
    url = f"{gateway.rstrip('/')}/metrics/job/{quote(job, safe='')}/instance/{instance}"
    stopped = threading.Event()

    def run() -> None:
        while not stopped.wait(every_s):
            push(url, render)

    start_thread("tidelock-push", run)
    try:
        yield
    finally:
        stopped.set()
        push(url, render)


def push(url: str, render: Render = process_metrics) -> bool:
    """Push the metrics once; return whether the gateway accepted them."""
    headers = {"Content-Type": CONTENT_TYPE}
    try:
        with urllib3.PoolManager(timeout=urllib3.Timeout(5.0), retries=False) as http:
            response = http.request("PUT", url, body=render(), headers=headers)
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        logger.warning("metrics were not pushed to %s: %s", url, error)
        return False
    if response.status >= 300:
        logger.warning("metrics were not pushed to %s: status %s", url, response.status)
    return response.status < 300


def table_metrics(watches: Sequence[TableWatch]) -> bytes:
    """Read each table and return its gauges, labelled with the table's URI."""
    found = [(watch.store.uri, gauges(watch)) for watch in watches]
    return expose(
        labelled_gauge(metric, "table", values)
        for metric in TABLES
        if (values := [(uri, each[metric.name]) for uri, each in found if metric.name in each])
    )


def gauges(watch: TableWatch) -> dict[str, float]:
    """Read a table and return its gauges by name."""
    watch.refresh()
    now_ms = watch.clock.now().wall_epoch_ms
    found: dict[str, float] = {"table.readable": 0.0 if watch.problem else 1.0}
    parts: dict[str, Any] = {name: section.value for name, section in watch.sections.items()}
    if "table" not in parts:
        return found
    writers, plans = parts["writers"], parts["services"]
    alive = sum(w["beat"] is not None and now_ms - w["beat"] <= w["life"] for w in writers)
    ages = [now_ms - parse_time(plan["instant"]) for plan in plans]
    done = [row.completion for row in watch.rows.rows.values() if row.state == "completed"]
    found |= {
        "table.ledger.position": parts["table"]["position"],
        "table.instants": len(watch.rows.rows),
        "table.writers.alive": alive,
        "table.writers.dead": len(writers) - alive,
        "table.plans.pending": len(plans),
        "table.plans.oldest.age": max(ages, default=0),
        "table.conflicts": watch.ledger.conflict_count,
        "table.lock.held": float(parts["lock"]["condition"] == "held"),
        "table.lock.waiters": parts["lock"]["waiters"] or 0,
    }
    if done:
        found["table.commit.age"] = max(0, now_ms - parse_time(max(done)))
    return found
