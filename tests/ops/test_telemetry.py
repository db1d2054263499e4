"""Every name in the documentation is heard: metrics, events, spans; and where they go."""

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

from tests.ops import watched
from tests.ops.program import Program, end, start
from tests.ops.scene import made, rows
from tests.ops.watched import Heard, listening
from tidelock.base.exposition import metric as prometheus
from tidelock.base.metrics import PROCESS, Metrics
from tidelock.base.telemetry import MetricKind, MetricName, span, tell
from tidelock.lock.alerting import Alert, AlertKind, Alerts, on_alert
from tidelock.lock.metric_names import METRICS as OF_LOCKS
from tidelock.lockservice.metric_names import METRICS as OF_LOCK_SERVICES
from tidelock.ops.pages.events import events_page
from tidelock.ops.pages.metrics import metrics_page
from tidelock.ops.telemetry.exporting import push, pushed, served
from tidelock.ops.telemetry.logs import JsonLines
from tidelock.ops.telemetry.names import EVENTS, METRICS, SPANS, TABLES
from tidelock.txn.observing import BEGIN_SPAN, COMMITTED

NAMES = [metric.name for _, metrics in METRICS for metric in metrics]


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Heard:
    """Return what is told while everything happens that can."""
    with listening() as found:
        watched.a_table_at_work(tmp_path_factory.mktemp("watched") / "t")
        watched.waits(tmp_path_factory.mktemp("watched") / "waits")
        watched.a_streamer_at_work()
        watched.locks()
        watched.transactions_in_trouble()

        def failing(alert: Alert) -> None:
            raise KeyError(alert.kind)

        leave = on_alert(failing)
        Alerts().fire(Alert(AlertKind.LOCK_LOST, "memory://t", "lost", 0))
        leave()
    return found


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(("lockservice.", "table."))])
def test_every_metric_in_the_documentation_is_heard(heard: Heard, name: str) -> None:
    assert name in heard.metrics
    assert f"| `{name}` |" in metrics_page()


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_every_event_in_the_documentation_is_heard(heard: Heard, event: object) -> None:
    name, fields = event.name, event.fields  # type: ignore[attr-defined]
    assert name in heard.events
    assert set(fields) <= set(heard.events[name])
    assert {"writer", "instant"} <= set(heard.events[name])
    assert f"| `{name}` |" in events_page()


@pytest.mark.parametrize("name", [each.name for each in SPANS if each.name != "tidelock.lock"])
def test_every_span_in_the_documentation_is_heard(heard: Heard, name: str) -> None:
    assert name in heard.spans


def test_no_event_or_span_is_told_that_is_not_in_the_documentation(heard: Heard) -> None:
    assert set(heard.events) <= {event.name for event in EVENTS}
    assert heard.spans <= {each.name for each in SPANS}


def test_the_wait_for_the_lock_is_a_span_of_its_own(tmp_path: Path) -> None:
    provider = "tidelock.lockproviders.storage.StorageLockProvider"
    with listening() as heard, made(tmp_path / "t", **{"hoodie.write.lock.provider": provider}):
        pass
    assert "tidelock.lock" in heard.spans


@pytest.fixture(scope="module")
def served_locks() -> dict[str, float]:
    """Return the numbers of a lock service at work, as Prometheus is told them."""
    return asyncio.run(watched.a_lock_service_at_work())


@pytest.mark.parametrize("metric", OF_LOCK_SERVICES, ids=lambda metric: metric.name)
def test_every_metric_of_the_lock_service_is_heard(
    served_locks: dict[str, float], metric: MetricName
) -> None:
    ending = {MetricKind.COUNTER: "_total", MetricKind.TIMER: "_ms_count", MetricKind.GAUGE: ""}
    assert served_locks[f"{prometheus(metric.name)}{ending[metric.kind]}"] >= 1
    assert f"| `{metric.name}` |" in metrics_page()


def test_no_metric_of_the_lock_service_is_told_that_is_not_in_the_documentation(
    served_locks: dict[str, float],
) -> None:
    told = {prometheus(metric.name) for metric in OF_LOCK_SERVICES}
    ours = [name for name in served_locks if name.startswith("tidelock_lockservice_")]
    assert {re.sub(r"_total$|_ms_(count|sum)$", "", name) for name in ours} <= told


def test_what_one_component_counts_the_process_counts() -> None:
    before = PROCESS.counter("orders.lock.ghost")
    metrics = Metrics("orders")
    metrics.count("lock.ghost")
    assert metrics.counter("lock.ghost") == 1
    assert PROCESS.counter("orders.lock.ghost") == before + 1


def test_without_a_tracer_a_span_is_nothing() -> None:
    with span(BEGIN_SPAN, table="t") as nothing:
        assert nothing is None


def test_a_line_of_the_log_is_one_json_object() -> None:
    record = logging.LogRecord("tidelock.txn", logging.INFO, "f", 1, "%s is done", ("7",), None)
    record.event, record.fields = "txn.committed", {"writer": "me", "instant": "7", "took_ms": 3}
    line = json.loads(JsonLines().format(record))
    assert line["message"] == "7 is done"
    assert (line["event"], line["writer"], line["instant"]) == ("txn.committed", "me", "7")
    assert line["time"].endswith("Z")


def test_an_event_below_the_level_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    quiet = logging.getLogger("quiet-one")
    quiet.setLevel(logging.ERROR)
    tell(quiet, COMMITTED, "%s", "x")
    assert caplog.records == []


def test_the_endpoint_answers_in_prometheus_format() -> None:
    PROCESS.count("lock.ghost")
    with served(0) as url:
        with urlopen(url) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = answer.read().decode()
        assert f"tidelock_lock_ghost_total {PROCESS.counter('lock.ghost')}\n" in text
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
        """Say nothing."""


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


def test_metrics_are_pushed_at_the_end_at_the_latest() -> None:
    PROCESS.count("lock.ghost")
    with gateway() as (url, got), pushed(f"{url}/", job="a b"):
        pass
    ((verb, path, body, _),) = got
    assert verb == "PUT"
    assert path.startswith("/metrics/job/a%20b/instance/")
    assert b"tidelock_lock_ghost_total" in body


def test_a_gateway_that_refuses_or_is_not_there_harms_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with gateway(500) as (url, _):
        assert not push(url)
    assert not push(url)
    assert "not pushed" in caplog.text


def test_any_command_can_be_watched(tmp_path: Path) -> None:
    made(tmp_path / "t", name="t").close()
    with gateway() as (url, got):
        args = ("--metrics-push", url, "--log-json", "clean", str(tmp_path / "t"), "run")
        ended = end(start(*args), within_s=60)
    assert ended.code == 0
    assert b"tidelock_store_get_total" in got[-1][2]


def test_metrics_of_tables_are_told_from_outside(tidelock: Program, tmp_path: Path) -> None:
    with made(tmp_path / "t", name="t") as table:
        table.upsert(rows(1, ts=1, day="d"))
        told = tidelock("metrics", table.uri, "--once", "--json").facts[table.uri]
        assert set(told) == {metric.name for metric in TABLES}
        assert told["table.ledger.position"] == 2
        assert told["table.commit.age"] < 600_000
        text = tidelock("metrics", table.uri, "--once").out
    for metric in TABLES:
        assert f"tidelock_{metric.name.replace('.', '_')}{{table=" in text


def test_names_of_locks_are_still_hudis() -> None:
    hudis = {metric.name for metric in OF_LOCKS if metric.is_hudis}
    assert {"lock.acquire.attempts", "lock.request.latency", "lock.dangling"} <= hudis
