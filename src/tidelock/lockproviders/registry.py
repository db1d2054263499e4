"""Providers by class name: Hudi's Java names and ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelock.base.errors import ConfigInvalid
from tidelock.base.metrics import Metrics
from tidelock.lock.config import PROVIDER
from tidelock.lock.provider import LockProvider


def _storage(settings: Mapping[str, object], metrics: Metrics | None) -> LockProvider:
    from tidelock.lockproviders.storage import StorageLockProvider  # loads on use

    return StorageLockProvider(settings, metrics)


PROVIDERS: dict[str, Callable[[Mapping[str, object], Metrics | None], LockProvider]] = {
    "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider": _storage,
    "tidelock.lockproviders.storage.StorageLockProvider": _storage,
}


def open_provider(settings: Mapping[str, object], metrics: Metrics | None = None) -> LockProvider:
    """Return the provider that `hoodie.write.lock.provider` names.

    Raises: `ConfigInvalid` when it is missing or unknown.
    """
    name = PROVIDER.required(settings)
    maker = PROVIDERS.get(name)
    if maker is None:
        raise ConfigInvalid(
            f"{PROVIDER.key} = {name!r} is not a lock provider",
            hint=f"use one of: {', '.join(sorted(PROVIDERS))}",
        )
    return maker(settings, metrics)
