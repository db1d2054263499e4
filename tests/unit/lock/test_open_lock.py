"""Opening a lock by URI: settings and keyword arguments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tidelock
from tidelock.core.errors import ConfigInvalid, ResourceInvalid, Unsupported
from tidelock.lock.client import lock

VALIDITY = "hoodie.write.lock.storage.validity.timeout.secs"
RENEW = "hoodie.write.lock.storage.renew.interval.secs"


def fresh() -> str:
    return f"memory://opening/{os.urandom(8).hex()}"


def lease_of(**options: object) -> tuple[int, int]:
    opened = lock(fresh(), **options)  # type: ignore[arg-type]
    lease = opened._session.lease
    return lease.validity_ms // 1000, lease.renew_ms // 1000


def test_default_lease_is_the_one_of_hudi() -> None:
    assert lease_of() == (300, 30)


def test_keyword_arguments_win_over_settings() -> None:
    settings = {VALIDITY: 100, RENEW: 10}
    assert lease_of(settings=settings) == (100, 10)
    assert lease_of(settings=settings, validity_s=200) == (200, 10)
    assert lease_of(settings=settings, renew_s=5) == (100, 5)


@pytest.mark.parametrize(("validity_s", "renew_s"), [(10, 1), (60, 6), (600, 30)])
def test_validity_alone_implies_a_matching_renewal_interval(validity_s: int, renew_s: int) -> None:
    assert lease_of(validity_s=validity_s) == (validity_s, renew_s)


def test_terms_that_hudi_refuses_are_refused() -> None:
    with pytest.raises(ConfigInvalid, match="10 times"):
        lock(fresh(), validity_s=20, renew_s=3)


def test_misspelt_setting_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="unknown setting"):
        lock(fresh(), settings={"hoodie.write.lock.storage.validity": 5})


@pytest.mark.parametrize("uri", ["", "a/../b", "s3://", "a\0b"])
def test_invalid_resource_is_refused(uri: str) -> None:
    with pytest.raises(ResourceInvalid):
        lock(uri)


def test_unknown_scheme_is_refused() -> None:
    with pytest.raises(Unsupported):
        lock("hdfs://lake/orders")


def test_opening_sends_no_request(tmp_path: Path) -> None:
    lock(str(tmp_path / "table"))
    assert list(tmp_path.iterdir()) == []


def test_public_function_locks_a_folder(tmp_path: Path) -> None:
    with tidelock.lock(str(tmp_path / "table"), wait_s=5) as held:
        first = held.token
        assert (tmp_path / "table/.hoodie/.locks/table_lock.json").exists()
    with tidelock.lock(str(tmp_path / "table"), wait_s=5) as held:
        assert held.token > first


def test_metrics_prefix_is_the_setting_of_hudi(tmp_path: Path) -> None:
    settings = {"hoodie.metrics.reporter.metricsname.prefix": "orders"}
    with lock(str(tmp_path), settings=settings) as held:
        pass
    assert held.metrics.snapshot().counters["orders.lock.acquire.success"] == 1
