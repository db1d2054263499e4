"""Providers by name: Hudi's Java names and ours, and clear words for any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.base.errors import ConfigInvalid
from tidelock.base.metrics import Metrics
from tidelock.lockproviders.registry import PROVIDERS, open_provider
from tidelock.lockproviders.storage import StorageLockProvider

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
