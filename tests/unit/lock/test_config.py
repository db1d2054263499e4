"""Settings of the lock: Hudi's keys, defaults, aliases and checks, in Hudi's order."""

from __future__ import annotations

import logging

import pytest

from tidelock.core.errors import ConfigInvalid
from tidelock.lock.client import reject_unknown_keys
from tidelock.lock.config import (
    BASE_PATH,
    CLIENT_NUM_RETRIES,
    CLIENT_WAIT_BETWEEN_RETRIES_MS,
    HIVE_HEARTBEAT_INTERVAL_MS,
    NUM_RETRIES,
    PROVIDER,
    RENEW_S,
    VALIDITY_S,
    WAIT_BETWEEN_RETRIES_MAX_MS,
    WAIT_BETWEEN_RETRIES_MS,
    WAIT_TIME_MS,
    LockSettings,
)
from tidelock.lock.lease import Lease

VALIDITY = "hoodie.write.lock.storage.validity.timeout.secs"
RENEW = "hoodie.write.lock.storage.renew.interval.secs"
OLD_RENEW = "hoodie.write.lock.storage.heartbeat.poll.secs"
DRIFT = "tidelock.lock.clock.drift.ms"


@pytest.mark.parametrize(
    ("key", "name", "default"),
    [
        (PROVIDER, "hoodie.write.lock.provider", None),
        (BASE_PATH, "hoodie.base.path", None),
        (WAIT_TIME_MS, "hoodie.write.lock.wait_time_ms", 60_000),
        (WAIT_BETWEEN_RETRIES_MS, "hoodie.write.lock.wait_time_ms_between_retry", 1_000),
        (WAIT_BETWEEN_RETRIES_MAX_MS, "hoodie.write.lock.max_wait_time_ms_between_retry", 16_000),
        (NUM_RETRIES, "hoodie.write.lock.num_retries", 15),
        (CLIENT_NUM_RETRIES, "hoodie.write.lock.client.num_retries", 50),
        (
            CLIENT_WAIT_BETWEEN_RETRIES_MS,
            "hoodie.write.lock.client.wait_time_ms_between_retry",
            5_000,
        ),
        (HIVE_HEARTBEAT_INTERVAL_MS, "hoodie.write.lock.heartbeat_interval_ms", 60_000),
        (VALIDITY_S, VALIDITY, 300),
        (RENEW_S, RENEW, 30),
    ],
)
def test_key_has_the_name_and_default_of_hudi(key: object, name: str, default: object) -> None:
    assert getattr(key, "key", None) == name
    assert getattr(key, "default", None) == default


def test_defaults_are_five_minutes_and_half_a_minute() -> None:
    read = LockSettings.read({})
    assert read.lease == Lease(validity_ms=300_000, renew_ms=30_000, drift_ms=500)
    assert read.wait_time_ms == 60_000
    assert read.metrics_prefix == ""


@pytest.mark.parametrize("value", [20, "20", " 20 "])
def test_values_can_be_typed_or_text(value: object) -> None:
    assert LockSettings.read({VALIDITY: value, RENEW: "2"}).lease.validity_ms == 20_000


def test_smallest_pair_of_hudi_is_accepted() -> None:
    assert LockSettings.read({VALIDITY: 10, RENEW: 1}).lease.validity_ms == 10_000


def test_old_name_of_the_renewal_interval_works_and_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert LockSettings.read({OLD_RENEW: 5}).lease.renew_ms == 5_000
    assert f"{OLD_RENEW} is the old name of {RENEW}" in caplog.text


def test_current_name_wins_over_the_old_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert LockSettings.read({OLD_RENEW: 5, RENEW: 7}).lease.renew_ms == 7_000
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("validity", "renew", "message"),
    [
        # Each pair breaks the named check and as many later ones as possible: the order is Hudi's.
        (5, 1, "at least 10 times"),
        (0, 1, "at least 10 times"),
        (299, 30, "at least 10 times"),
        (9, 0, "at least 10 seconds"),
        (0, 0, "at least 10 seconds"),
        (10, 0, "at least 1 second"),
        (10, -1, "at least 1 second"),
    ],
)
def test_three_checks_run_in_the_order_of_hudi(validity: int, renew: int, message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message) as raised:
        LockSettings.read({VALIDITY: validity, RENEW: renew})
    assert VALIDITY in str(raised.value) or RENEW in str(raised.value)


@pytest.mark.parametrize("value", ["soon", "1.5", "", "1e3"])
def test_non_numeric_value_is_reported(value: str) -> None:
    with pytest.raises(ConfigInvalid, match="expected an integer") as raised:
        LockSettings.read({VALIDITY: value})
    assert VALIDITY in str(raised.value)


def test_drift_can_be_raised_and_never_lowered() -> None:
    assert LockSettings.read({DRIFT: 2_000}).lease.drift_ms == 2_000
    with pytest.raises(ConfigInvalid, match="499 ms"):
        LockSettings.read({DRIFT: 499})


def test_misspelt_key_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigInvalid, match="unknown setting") as raised:
        reject_unknown_keys({"hoodie.write.lock.storage.validity.timeout.sec": 20})
    assert VALIDITY in raised.value.hint


def test_unknown_key_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigInvalid, match="unknown setting") as raised:
        reject_unknown_keys({"tidelock.zzz": 1})
    assert "configuration" in raised.value.hint


def test_keys_of_other_parts_of_hudi_are_accepted() -> None:
    hudi = {"hoodie.table.name": "orders", "hoodie.datasource.write.operation": "upsert"}
    reject_unknown_keys(hudi)  # does not raise
    with pytest.raises(ConfigInvalid):
        reject_unknown_keys({**hudi, "hoodie.write.lock.misspelt": "1"})
