"""Providers by name: Hudi's Java names and ours, and clear words for any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.base.errors import ConfigInvalid
from tidelock.base.metrics import Metrics
from tidelock.lockproviders.registry import PROVIDERS, open_provider, provider_name
from tidelock.lockproviders.storage import StorageLockProvider
from tidelock.lockproviders.zookeeper import ZookeeperLockProvider

JAVA = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
OURS = "tidelock.lockproviders.storage.StorageLockProvider"


def settings(tmp_path: Path, name: str = JAVA) -> dict[str, object]:
    return {"hoodie.write.lock.provider": name, "hoodie.base.path": str(tmp_path)}


@pytest.mark.parametrize("name", [JAVA, OURS])
def test_the_java_name_and_ours_open_the_storage_lock(tmp_path: Path, name: str) -> None:
    provider = open_provider(settings(tmp_path, name))
    assert isinstance(provider, StorageLockProvider)
    assert provider.try_lock(0)
    provider.close()
    assert (tmp_path / ".hoodie/.locks/table_lock.json").exists()


def test_an_unknown_provider_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="NoSuchProvider") as raised:
        open_provider(settings(tmp_path, "org.apache.hudi.NoSuchProvider"))
    assert all(name in raised.value.hint for name in PROVIDERS)


def test_no_provider_is_an_error_of_the_setting() -> None:
    with pytest.raises(ConfigInvalid, match=r"hoodie\.write\.lock\.provider does not exist"):
        open_provider({})


def test_a_missing_base_path_is_hudi_s_error() -> None:
    with pytest.raises(ConfigInvalid, match=r"Property hoodie\.base\.path does not exist!"):
        open_provider({"hoodie.write.lock.provider": JAVA})


def test_the_metrics_given_are_the_ones_counted(tmp_path: Path) -> None:
    metrics = Metrics("orders")
    provider = open_provider(settings(tmp_path), metrics)
    assert provider.try_lock(0)
    provider.unlock()
    provider.close()
    assert metrics.counter("lock.acquire.success") == 1


OWN = "tests.unit.lockproviders.ownprovider:FolderLock"


def test_a_class_of_one_s_own_is_a_provider(tmp_path: Path) -> None:
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
    ("name", "says"),
    [
        ("tests.unit.lockproviders.nowhere:FolderLock", "nowhere"),
        ("tests.unit.lockproviders.ownprovider:Nobody", "Nobody"),
        ("tests.unit.lockproviders.ownprovider:HalfALock", "lacks features, unlock, check, state"),
        ("tests.unit.lockproviders.ownprovider:HalfALock", "a constructor"),
        ("tests.unit.lockproviders.ownprovider.FolderLock", "module:Class"),
        ("os;system:x", "module:Class"),
        (":FolderLock", "module:Class"),
    ],
)
def test_a_class_that_is_no_provider_is_refused_by_what_it_lacks(name: str, says: str) -> None:
    with pytest.raises(ConfigInvalid) as error:
        open_provider({"hoodie.write.lock.provider": name})
    assert name in str(error.value)
    assert says in f"{error.value} {error.value.hint}"


ZOOKEEPER = {
    "hoodie.base.path": "/tmp/hudi/table",
    "hoodie.table.name": "orders",
    "hoodie.write.lock.zookeeper.url": "zk1:2181",
    "hoodie.write.lock.zookeeper.base_path": "/locks",
}


def test_zookeeper_s_settings_alone_mean_zookeeper_as_in_hudi(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelock.lockproviders.registry._told", set())
    for _ in range(3):
        provider = open_provider(ZOOKEEPER)
        assert isinstance(provider, ZookeeperLockProvider)
        assert provider.uri == "zookeeper://zk1:2181/locks/orders"
        provider.close()
    (said,) = [record.getMessage() for record in caplog.records]
    assert "the ZooKeeper lock is used" in said


def test_zookeeper_s_settings_without_an_address_are_told_and_take_no_lock(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelock.lockproviders.registry._told", set())
    assert provider_name({"hoodie.write.lock.zookeeper.base_path": "/locks"}) is None
    assert "no lock is taken" in caplog.text
    caplog.clear()
    assert provider_name({"hoodie.write.lock.wait_time_ms": "5"}) is None
    assert caplog.text == ""


def test_a_provider_that_is_named_wins_over_zookeeper_s_settings() -> None:
    chosen = {**ZOOKEEPER, "hoodie.write.lock.provider": OWN}
    assert provider_name(chosen) == OWN
