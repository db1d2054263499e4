"""Alerts: what triggers each kind, and delivery to the log, callbacks and a webhook."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import tidelock as tl
from tests.cli import telemetry_scenes
from tests.cli.program import eventually
from tests.cli.scene import OPTIONS, Interrupted, create_table, rows
from tests.cli.test_telemetry import gateway
from tests.unit.txn.bench import Bench, draft
from tests.unit.txn.test_external_commits import Provider, java_commit
from tidelock.core.errors import HoldingLost
from tidelock.core.telemetry import PROCESS
from tidelock.lock.alerts import Alert, AlertKind, Alerts
from tidelock.txn.conflicts import Conflicted
from tidelock.txn.transaction_manager import TransactionManager

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}


@pytest.fixture
def alerts() -> Iterator[list[Alert]]:
    found: list[Alert] = []
    leave = tl.on_alert(found.append)
    yield found
    leave()


def kinds(alerts: list[Alert]) -> list[AlertKind]:
    return [alert.kind for alert in alerts]


def test_lost_lock_raises_alert(alerts: list[Alert], tmp_path: Path) -> None:
    held = tl.lock(str(tmp_path / "t"))
    held.acquire()
    path = tmp_path / "t/.hoodie/.locks/table_lock.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**record, "owner": "thief", "nonce": "thief:1"}))
    held.renew()
    eventually(lambda: len(alerts) == 1)
    with suppress(HoldingLost):
        held.close()
    assert kinds(alerts) == [AlertKind.LOCK_LOST]
    assert alerts[0].about.endswith("table_lock.json")
    assert alerts[0].writer == held.owner


def test_commit_without_lock_raises_alert(alerts: list[Alert]) -> None:
    bench = Bench(OCC)
    txns, provider = bench.writer(), Provider()
    txns.lock.provider = provider  # type: ignore[assignment]
    transaction = bench.begin(txns)
    provider.lost = True
    with pytest.raises(HoldingLost):
        transaction.commit(draft(touched=("a",)))
    assert kinds(alerts) == [AlertKind.LOCK_LOST]
    assert alerts[0].instant == transaction.instant


def test_zombie_with_older_token_raises_alert(alerts: list[Alert]) -> None:
    bench = Bench(OCC)
    each_txns, providers = [bench.writer(), bench.writer()], [Provider(), Provider()]
    for txns, provider in zip(each_txns, providers, strict=True):
        txns.lock.provider = provider  # type: ignore[assignment]
    zombie, other = (bench.begin(txns) for txns in each_txns)
    providers[1].token = 2
    other.commit(draft(touched=("b",)))
    with pytest.raises(HoldingLost):
        zombie.commit(draft(touched=("a",)))
    assert kinds(alerts) == [AlertKind.FENCED]


def test_writer_rolled_back_as_dead_raises_alert_when_it_resumes(alerts: list[Alert]) -> None:
    bench = Bench(OCC)
    suspended, other = bench.writer(), bench.writer()
    transaction = bench.begin(suspended)
    bench.clock.advance(10**8)
    other.recover()
    assert isinstance(transaction.commit(draft(touched=("a",))), Conflicted)
    assert kinds(alerts) == [AlertKind.FENCED]
    assert alerts[0].writer == suspended.owner


def test_java_commit_without_a_lock_provider_raises_alert(alerts: list[Alert]) -> None:
    bench = Bench(OCC)
    txns = bench.writer(settings={**OCC, "tidelock.write.mixed": "true"})
    bench.commit_one(txns, "a")
    java_commit(bench, "20990101000000000", "20990101000000001", "b")
    bench.begin(txns)
    assert kinds(alerts) == [AlertKind.EXTERNAL_UNLOCKED]
    assert "uses no lock" in alerts[0].message


@pytest.mark.parametrize(("later_ms", "fired"), [(10_000, 1), (-10_000, 0)])
def test_java_commit_while_we_hold_the_lock_raises_alert(
    alerts: list[Alert], later_ms: int, fired: int
) -> None:
    from tidelock.hudi.timeline.instant import format_time

    bench = Bench(OCC)
    locked = {**OCC, "hoodie.write.lock.provider": "tidelock.lock.providers.inprocess."
              "InProcessLockProvider"}  # fmt: skip
    txns = bench.writer(settings=locked)
    bench.commit_one(txns, "a")
    bench.clock.advance(60_000)
    done = format_time(bench.clock.now().wall_epoch_ms + later_ms)
    java_commit(bench, format_time(bench.clock.now().wall_epoch_ms - 20_000), done, "b")
    bench.begin(txns).rollback()
    txns.close()
    assert kinds(alerts) == [AlertKind.EXTERNAL_UNLOCKED] * fired


def test_stale_heartbeat_raises_alert(alerts: list[Alert]) -> None:
    telemetry_scenes.heartbeats()
    assert kinds(alerts) == [AlertKind.STARVED, AlertKind.FENCED]


def test_repeated_conflicts_raise_alert(alerts: list[Alert], tmp_path: Path) -> None:
    options = {**OPTIONS, "tidelock.alerts.commit.retries": "0"}
    with create_table(tmp_path / "t") as other, tl.Table.open(other.uri, options=options) as slow:
        other.upsert(rows(1, ts=1, day="d"))
        engine = slow.writer().engine
        slow.writer().engine = Interrupted(engine, lambda: other.upsert(rows(1, ts=2, day="d")))
        assert slow.upsert(rows(1, ts=3, day="d")).rebases == 1
    assert kinds(alerts) == [AlertKind.RETRIES]
    assert "conflicted once and is being retried; last conflict: upsert" in alerts[0].message


def test_normal_operation_raises_no_alert(alerts: list[Alert], tmp_path: Path) -> None:
    with create_table(tmp_path / "t") as table:
        table.upsert(rows(1, ts=1, day="d"))
        table.compact()
        table.clean()
    with tl.lock(table.uri):
        pass
    assert alerts == []


ALERT = Alert(AlertKind.FENCED, "s3://lake/orders", "it came back", 7, "me", "20260101000000000")


def webhook(url: str) -> dict[str, str]:
    return {"tidelock.alerts.webhook.url": url, "tidelock.alerts.webhook.token": "secret"}


def test_webhook_receives_alert_with_its_token() -> None:
    with gateway() as (url, got):
        Alerts.read(webhook(f"{url}/hook")).fire(ALERT)
        eventually(lambda: len(got) == 1)
    ((verb, path, body, authorization),) = got
    assert (verb, path, authorization) == ("POST", "/hook", "Bearer secret")
    payload = json.loads(body)
    assert payload["kind"] == "writer.fenced"
    assert payload["message"] == "it came back"
    assert payload["instant"] == "20260101000000000"
    assert payload["meaning"]


def test_webhook_failure_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    before = PROCESS.counter("alerts.undelivered")
    with gateway(500) as (url, _):
        Alerts.read(webhook(url)).fire(ALERT)
        eventually(lambda: PROCESS.counter("alerts.undelivered") == before + 1)
    eventually(lambda: "was not delivered to the webhook" in caplog.text)
    assert "secret" not in caplog.text


def test_alerts_are_logged_unless_disabled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Alerts.read({"tidelock.alerts.log": "false"}).fire(ALERT)
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        Alerts.read({}).fire(ALERT)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "it came back" in record.getMessage()


def test_failing_callback_does_not_affect_other_callbacks(alerts: list[Alert]) -> None:
    def failing(alert: Alert) -> None:
        raise KeyError(alert.kind)

    leave = tl.on_alert(failing)
    Alerts.read({}).fire(ALERT)
    leave()
    leave()
    assert alerts == [ALERT]


def test_alert_settings_reach_transactions(tmp_path: Path) -> None:
    with create_table(tmp_path / "t") as table:
        txns = TransactionManager(table._store, {"tidelock.alerts.webhook.url": "http://hook"})
        assert txns.telemetry.alerts.webhook == "http://hook"
        txns.close()
