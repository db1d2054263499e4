"""Providers by name: Hudi's Java names, Tidelock's, and errors for other names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.core.errors import ConfigInvalid
from tidelock.core.telemetry import Metrics
from tidelock.lock.providers import registry
from tidelock.lock.providers.registry import (
    BEYOND_HUDI,
    HUDI,
    class_path_of,
    open_provider,
    provider_name,
    short_name,
)
from tidelock.lock.providers.storage import StorageLockProvider
from tidelock.lock.providers.zookeeper import ZookeeperLockProvider

JAVA = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
OURS = "tidelock.lock.providers.storage.StorageLockProvider"


def settings(tmp_path: Path, name: str = JAVA) -> dict[str, object]:
    return {"hoodie.write.lock.provider": name, "hoodie.base.path": str(tmp_path)}


@pytest.mark.parametrize("name", [JAVA, OURS])
def test_java_name_and_ours_open_the_storage_lock(tmp_path: Path, name: str) -> None:
    provider = open_provider(settings(tmp_path, name))
    assert isinstance(provider, StorageLockProvider)
    assert provider.try_lock(0)
    provider.close()
    assert (tmp_path / ".hoodie/.locks/table_lock.json").exists()


def test_unknown_provider_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="NoSuchProvider") as raised:
        open_provider(settings(tmp_path, "org.apache.hudi.NoSuchProvider"))
    assert all(short_name(name) in raised.value.hint for name in (*HUDI, *BEYOND_HUDI))
    assert len(raised.value.hint) < 600


def test_missing_provider_is_a_configuration_error() -> None:
    with pytest.raises(ConfigInvalid, match=r"hoodie\.write\.lock\.provider: required, not set"):
        open_provider({})


def test_missing_base_path_is_a_configuration_error() -> None:
    with pytest.raises(ConfigInvalid, match=r"hoodie\.base\.path: required, not set"):
        open_provider({"hoodie.write.lock.provider": JAVA})


def test_given_metrics_are_used(tmp_path: Path) -> None:
    metrics = Metrics("orders")
    provider = open_provider(settings(tmp_path), metrics)
    assert provider.try_lock(0)
    provider.unlock()
    provider.close()
    assert metrics.counter("lock.acquire.success") == 1


OWN = "tests.unit.lock.providers.custom_provider:FolderLock"


def test_custom_class_can_be_a_provider(tmp_path: Path) -> None:
    settings = {
        "hoodie.write.lock.provider": OWN,
        "hoodie.table.name": "orders",
        "tidelock.lock.provider.folder": str(tmp_path),
    }
    one, two = open_provider(settings), open_provider(settings)
    assert one.try_lock(0)
    assert not two.try_lock(0)
    assert (tmp_path / "orders").exists()
    other = open_provider(settings, resource="nightly")
    assert other.try_lock(0)
    for provider in (one, two, other):
        provider.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.unit.lockproviders.nowhere:FolderLock", "nowhere"),
        ("tests.unit.lock.providers.custom_provider:Nobody", "Nobody"),
        (
            "tests.unit.lock.providers.custom_provider:HalfALock",
            "lacks features, unlock, check, state",
        ),
        ("tests.unit.lock.providers.custom_provider:HalfALock", "a constructor"),
        ("tests.unit.lock.providers.custom_provider.FolderLock", "module:Class"),
        ("os;system:x", "module:Class"),
        (":FolderLock", "module:Class"),
    ],
)
def test_class_that_is_not_a_provider_is_refused_with_its_missing_methods(
    name: str, message: str
) -> None:
    with pytest.raises(ConfigInvalid) as error:
        open_provider({"hoodie.write.lock.provider": name})
    assert name in str(error.value)
    assert message in f"{error.value} {error.value.hint}"


ZOOKEEPER = {
    "hoodie.base.path": "/tmp/hudi/table",
    "hoodie.table.name": "orders",
    "hoodie.write.lock.zookeeper.url": "zk1:2181",
    "hoodie.write.lock.zookeeper.base_path": "/locks",
}


def test_zookeeper_settings_alone_select_zookeeper_as_in_hudi(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_warned", set())
    for _ in range(3):
        provider = open_provider(ZOOKEEPER)
        assert isinstance(provider, ZookeeperLockProvider)
        assert provider.uri == "zookeeper://zk1:2181/locks/orders"
        provider.close()
    (logged,) = [record.getMessage() for record in caplog.records]
    assert "the ZooKeeper lock is used" in logged


def test_zookeeper_settings_without_an_address_are_reported_and_select_no_lock(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_warned", set())
    assert provider_name({"hoodie.write.lock.zookeeper.base_path": "/locks"}) is None
    assert "no lock is taken" in caplog.text
    caplog.clear()
    assert provider_name({"hoodie.write.lock.wait_time_ms": "5"}) is None
    assert caplog.text == ""


def test_explicit_provider_wins_over_zookeeper_settings() -> None:
    chosen = {**ZOOKEEPER, "hoodie.write.lock.provider": OWN}
    assert provider_name(chosen) == OWN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "tidelock.lockproviders.redis.RedisLockProvider",
            "tidelock.lock.providers.redis:RedisLockProvider",
        ),
        (
            "tidelock.lockservice.client.ServiceLockProvider",
            "tidelock.lock.server.client:ServiceLockProvider",
        ),
    ],
)
def test_former_provider_name_still_works(old: str, new: str) -> None:
    assert class_path_of(old) == new
