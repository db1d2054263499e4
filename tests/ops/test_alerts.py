"""Alerts: each kind is fired by what it is about, and told to the log, callbacks and a webhook."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import tidelock as tl
from tests.ops import watched
from tests.ops.program import eventually
from tests.ops.scene import OPTIONS, Interrupted, made, rows
from tests.ops.test_telemetry import gateway
from tests.unit.txn.bench import Bench, draft
from tests.unit.txn.test_foreign import Provider, java_commit
from tidelock.base.errors import HoldingLost
from tidelock.base.metrics import PROCESS
from tidelock.lock.alerting import Alert, AlertKind, Alerts
from tidelock.txn.draft import Overtaken
from tidelock.txn.transactions import Transactions

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}


@pytest.fixture
def heard() -> Iterator[list[Alert]]:
    found: list[Alert] = []
    leave = tl.on_alert(found.append)
    yield found
    leave()


def kinds(heard: list[Alert]) -> list[AlertKind]:
    return [alert.kind for alert in heard]


def test_a_lock_that_is_lost_is_an_alert(heard: list[Alert], tmp_path: Path) -> None:
    held = tl.lock(str(tmp_path / "t"))
    held.acquire()
    path = tmp_path / "t/.hoodie/.locks/table_lock.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**record, "owner": "thief", "nonce": "thief:1"}))
    held.renew()
    eventually(lambda: len(heard) == 1)
    with suppress(HoldingLost):
        held.close()
    assert kinds(heard) == [AlertKind.LOCK_LOST]
    assert heard[0].about.endswith("table_lock.json")
    assert heard[0].writer == held.owner


def test_a_commit_without_its_lock_is_an_alert(heard: list[Alert]) -> None:
    bench = Bench(OCC)
    home, provider = bench.writer(), Provider()
    home.lock.provider = provider  # type: ignore[assignment]
    transaction = bench.begin(home)
    provider.lost = True
    with pytest.raises(HoldingLost):
        transaction.commit(draft(touched=("a",)))
    assert kinds(heard) == [AlertKind.LOCK_LOST]
    assert heard[0].instant == transaction.instant


def test_a_zombie_under_an_older_token_is_an_alert(heard: list[Alert]) -> None:
    bench = Bench(OCC)
    homes, providers = [bench.writer(), bench.writer()], [Provider(), Provider()]
    for home, provider in zip(homes, providers, strict=True):
        home.lock.provider = provider  # type: ignore[assignment]
    zombie, other = (bench.begin(home) for home in homes)
    providers[1].token = 2
    other.commit(draft(touched=("b",)))
    with pytest.raises(HoldingLost):
        zombie.commit(draft(touched=("a",)))
    assert kinds(heard) == [AlertKind.FENCED]


def test_a_writer_that_was_given_up_for_dead_and_wakes_is_an_alert(heard: list[Alert]) -> None:
    bench = Bench(OCC)
    sleeper, other = bench.writer(), bench.writer()
    transaction = bench.begin(sleeper)
    bench.clock.advance(10**8)
    other.recover()
    assert isinstance(transaction.commit(draft(touched=("a",))), Overtaken)
    assert kinds(heard) == [AlertKind.FENCED]
    assert heard[0].writer == sleeper.owner


def test_a_java_commit_where_no_lock_is_taken_is_an_alert(heard: list[Alert]) -> None:
    bench = Bench(OCC)
    home = bench.writer(settings={**OCC, "tidelock.write.mixed": "true"})
    bench.commit_one(home, "a")
    java_commit(bench, "20990101000000000", "20990101000000001", "b")
    bench.begin(home)
    assert kinds(heard) == [AlertKind.FOREIGN]
    assert "no lock is taken here" in heard[0].message


@pytest.mark.parametrize(("later_ms", "fired"), [(10_000, 1), (-10_000, 0)])
def test_a_java_commit_is_an_alert_if_it_came_while_the_lock_was_ours(
    heard: list[Alert], later_ms: int, fired: int
) -> None:
    from tidelock.table.timeline.instant import format_time

    bench = Bench(OCC)
    locked = {**OCC, "hoodie.write.lock.provider": "tidelock.lockproviders.inprocess."
              "InProcessLockProvider"}  # fmt: skip
    home = bench.writer(settings=locked)
    bench.commit_one(home, "a")
    bench.clock.advance(60_000)
    done = format_time(bench.clock.now().wall_epoch_ms + later_ms)
    java_commit(bench, format_time(bench.clock.now().wall_epoch_ms - 20_000), done, "b")
    bench.begin(home).rollback()
    home.close()
    assert kinds(heard) == [AlertKind.FOREIGN] * fired


def test_a_heartbeat_that_is_not_refreshed_is_an_alert(heard: list[Alert]) -> None:
    watched.heartbeats()
    assert kinds(heard) == [AlertKind.STARVED, AlertKind.FENCED]


def test_a_write_that_is_overtaken_too_often_is_an_alert(
    heard: list[Alert], tmp_path: Path
) -> None:
    options = {**OPTIONS, "tidelock.alerts.commit.retries": "0"}
    with made(tmp_path / "t") as other, tl.Table.open(other.uri, options=options) as slow:
        other.upsert(rows(1, ts=1, day="d"))
        engine = slow.writer().engine
        slow.writer().engine = Interrupted(engine, lambda: other.upsert(rows(1, ts=2, day="d")))
        assert slow.upsert(rows(1, ts=3, day="d")).rebases == 1
    assert kinds(heard) == [AlertKind.RETRIES]
    assert "overtaken 1 times" in heard[0].message


def test_a_calm_table_raises_no_alert(heard: list[Alert], tmp_path: Path) -> None:
    with made(tmp_path / "t") as table:
        table.upsert(rows(1, ts=1, day="d"))
        table.compact()
        table.clean()
    with tl.lock(table.uri):
        pass
    assert heard == []


ALERT = Alert(AlertKind.FENCED, "s3://lake/orders", "it came back", 7, "me", "20260101000000000")


def test_an_alert_is_sent_to_the_webhook_with_its_token() -> None:
    with gateway() as (url, got):
        Alerts(webhook=f"{url}/hook", token="secret").fire(ALERT)
        eventually(lambda: len(got) == 1)
    ((verb, path, body, authorization),) = got
    assert (verb, path, authorization) == ("POST", "/hook", "Bearer secret")
    told = json.loads(body)
    assert told["kind"] == "writer.fenced"
    assert told["message"] == "it came back"
    assert told["instant"] == "20260101000000000"
    assert told["meaning"]


def test_a_webhook_that_refuses_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    before = PROCESS.counter("alerts.undelivered")
    with gateway(500) as (url, _):
        Alerts(webhook=url, token="secret").fire(ALERT)
        eventually(lambda: PROCESS.counter("alerts.undelivered") == before + 1)
    eventually(lambda: "did not take one" in caplog.text)
    assert "secret" not in caplog.text


def test_an_alert_is_a_line_of_the_log_unless_it_is_switched_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Alerts.read({"tidelock.alerts.log": "false"}).fire(ALERT)
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        Alerts.read({}).fire(ALERT)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "it came back" in record.getMessage()


def test_a_callback_that_fails_keeps_the_others_from_nothing(heard: list[Alert]) -> None:
    def failing(alert: Alert) -> None:
        raise KeyError(alert.kind)

    leave = tl.on_alert(failing)
    Alerts().fire(ALERT)
    leave()
    leave()
    assert heard == [ALERT]


def test_the_settings_of_alerts_reach_transactions(tmp_path: Path) -> None:
    with made(tmp_path / "t") as table:
        home = Transactions(table._store, {"tidelock.alerts.webhook.url": "http://hook"})
        assert home.observing.alerts.webhook == "http://hook"
        home.close()
