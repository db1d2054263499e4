"""Every documented metric, event and span is emitted; and the exporters."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest

from scripts.generate_docs import events_page, metrics_page
from tests.cli import telemetry_scenes
from tests.cli.program import Program, end, start
from tests.cli.scene import create_table, rows
from tests.cli.telemetry_scenes import Telemetry, collecting
from tidelock.core.exposition import prometheus_name as prometheus
from tidelock.core.telemetry import PROCESS, MetricKind, MetricName, Metrics, log_event, span
from tidelock.lock.alerts import Alert, AlertKind, Alerts, on_alert
from tidelock.lock.server.telemetry import METRICS as OF_LOCK_SERVICES
from tidelock.lock.telemetry import METRICS as OF_LOCKS
from tidelock.telemetry.prometheus import (
    EVENTS,
    METRICS,
    SPANS,
    TABLES,
    metrics_server,
    push,
    pushed,
)
from tidelock.telemetry.tracing import JsonLines
from tidelock.txn.telemetry import BEGIN_SPAN, COMMITTED

NAMES = [metric.name for _, metrics in METRICS for metric in metrics]


@pytest.fixture(scope="module")
def telemetry(tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    """Return everything emitted while all scenes run."""
    with collecting() as found:
        telemetry_scenes.a_table_at_work(tmp_path_factory.mktemp("watched") / "t")
        telemetry_scenes.waits(tmp_path_factory.mktemp("watched") / "waits")
        telemetry_scenes.a_streamer_at_work()
        telemetry_scenes.locks()
        telemetry_scenes.failing_transactions()

        def failing(alert: Alert) -> None:
            raise KeyError(alert.kind)

        leave = on_alert(failing)
        Alerts.read({}).fire(Alert(AlertKind.LOCK_LOST, "memory://t", "lost", 0))
        leave()
    return found


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(("lockservice.", "table."))])
def test_every_documented_metric_is_emitted(telemetry: Telemetry, name: str) -> None:
    assert name in telemetry.metrics
    assert f"| `{name}` |" in metrics_page()


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_every_documented_event_is_emitted(telemetry: Telemetry, event: object) -> None:
    name, fields = event.name, event.fields  # type: ignore[attr-defined]
    assert name in telemetry.events
    assert set(fields) <= set(telemetry.events[name])
    assert {"writer", "instant"} <= set(telemetry.events[name])
    assert f"| `{name}` |" in events_page()


@pytest.mark.parametrize("name", [each.name for each in SPANS if each.name != "tidelock.lock"])
def test_every_documented_span_is_emitted(telemetry: Telemetry, name: str) -> None:
    assert name in telemetry.spans


def test_every_emitted_event_and_span_is_documented(telemetry: Telemetry) -> None:
    assert set(telemetry.events) <= {event.name for event in EVENTS}
    assert telemetry.spans <= {each.name for each in SPANS}


def test_lock_wait_has_its_own_span(tmp_path: Path) -> None:
    provider = "tidelock.lock.providers.storage.StorageLockProvider"
    with (
        collecting() as telemetry,
        create_table(tmp_path / "t", **{"hoodie.write.lock.provider": provider}),
    ):
        pass
    assert "tidelock.lock" in telemetry.spans


@pytest.fixture(scope="module")
def served_locks() -> dict[str, float]:
    """Return the metrics of a busy lock service, as Prometheus receives them."""
    return asyncio.run(telemetry_scenes.a_lock_service_at_work())


@pytest.mark.parametrize("metric", OF_LOCK_SERVICES, ids=lambda metric: metric.name)
def test_every_documented_lock_service_metric_is_emitted(
    served_locks: dict[str, float], metric: MetricName
) -> None:
    ending = {MetricKind.COUNTER: "_total", MetricKind.TIMER: "_ms_count", MetricKind.GAUGE: ""}
    assert served_locks[f"{prometheus(metric.name)}{ending[metric.kind]}"] >= 1
    assert f"| `{metric.name}` |" in metrics_page()


def test_every_emitted_lock_service_metric_is_documented(
    served_locks: dict[str, float],
) -> None:
    exported = {prometheus(metric.name) for metric in OF_LOCK_SERVICES}
    ours = [name for name in served_locks if name.startswith("tidelock_lockservice_")]
    assert {re.sub(r"_total$|_ms_(count|sum)$", "", name) for name in ours} <= exported


def test_component_metrics_are_added_to_the_process_metrics() -> None:
    before = PROCESS.counter("orders.lock.ghost")
    metrics = Metrics("orders")
    metrics.count("lock.ghost")
    assert metrics.counter("lock.ghost") == 1
    assert PROCESS.counter("orders.lock.ghost") == before + 1


def test_span_without_a_tracer_does_nothing() -> None:
    with span(BEGIN_SPAN, table="t") as nothing:
        assert nothing is None


def test_log_line_is_one_json_object() -> None:
    record = logging.LogRecord("tidelock.txn", logging.INFO, "f", 1, "%s is done", ("7",), None)
    record.event, record.fields = "txn.committed", {"writer": "me", "instant": "7", "took_ms": 3}
    line = json.loads(JsonLines().format(record))
    assert line["message"] == "7 is done"
    assert (line["event"], line["writer"], line["instant"]) == ("txn.committed", "me", "7")
    assert line["time"].endswith("Z")


def test_event_below_the_log_level_is_not_formatted(caplog: pytest.LogCaptureFixture) -> None:
    quiet = logging.getLogger("quiet-one")
    quiet.setLevel(logging.ERROR)
    log_event(quiet, COMMITTED, "%s", "x")
    assert caplog.records == []


def test_endpoint_serves_prometheus_format() -> None:
    PROCESS.count("lock.ghost")
    with metrics_server(0) as url:
        with urlopen(url) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = answer.read().decode()
        assert f"tidelock_lock_ghost_total {float(PROCESS.counter('lock.ghost'))}\n" in text
        assert "# TYPE tidelock_lock_ghost_total counter\n" in text
        with pytest.raises(OSError, match="404"):
            urlopen(url.replace("/metrics", "/"))


class _Gateway(BaseHTTPRequestHandler):
    got: list[tuple[str, str, bytes, str]]
    status = 200

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.command, self.path, body, self.headers.get("Authorization", "")))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.do_PUT()

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@contextmanager
def gateway(status: int = 200) -> Iterator[tuple[str, list[tuple[str, str, bytes, str]]]]:
    got: list[tuple[str, str, bytes, str]] = []
    server = HTTPServer(("127.0.0.1", 0), type("G", (_Gateway,), {"got": got, "status": status}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_metrics_are_pushed_at_exit() -> None:
    PROCESS.count("lock.ghost")
    with gateway() as (url, got), pushed(f"{url}/", job="a b"):
        pass
    ((verb, path, body, _),) = got
    assert verb == "PUT"
    assert path.startswith("/metrics/job/a%20b/instance/")
    assert b"tidelock_lock_ghost_total" in body


def test_failing_push_gateway_is_harmless(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with gateway(500) as (url, _):
        assert not push(url)
    assert not push(url)
    assert "not pushed" in caplog.text


def test_any_command_can_export_metrics(tmp_path: Path) -> None:
    create_table(tmp_path / "t", name="t").close()
    with gateway() as (url, got):
        args = ("--metrics-push", url, "--log-json", "clean", str(tmp_path / "t"), "run")
        ended = end(start(*args))
    assert ended.code == 0
    assert b"tidelock_store_get_total" in got[-1][2]


def test_table_metrics_are_exported_from_outside(tidelock: Program, tmp_path: Path) -> None:
    with create_table(tmp_path / "t", name="t") as table:
        table.upsert(rows(1, ts=1, day="d"))
        exported = tidelock("metrics", table.uri, "--once", "--json").facts[table.uri]
        assert set(exported) == {metric.name for metric in TABLES}
        assert exported["table.ledger.position"] == 2
        assert exported["table.commit.age"] < 600_000
        text = tidelock("metrics", table.uri, "--once").out
    for metric in TABLES:
        assert f"tidelock_{metric.name.replace('.', '_')}{{table=" in text


def test_lock_metric_names_are_the_ones_of_hudi() -> None:
    hudis = {metric.name for metric in OF_LOCKS if metric.is_hudi_metric}
    assert {"lock.acquire.attempts", "lock.request.latency", "lock.dangling"} <= hudis
