"""Providers by class name: Hudi's Java names and ours."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from tidelock.base.errors import ConfigInvalid
from tidelock.base.metrics import Metrics
from tidelock.lock.config import BASE_PATH, PROVIDER
from tidelock.lock.provider import LockProvider
from tidelock.lockproviders import keys

_CLIENT = "org.apache.hudi.client.transaction.lock"
_AWS = "org.apache.hudi.aws.transaction.lock"

STORAGE = "tidelock.lockproviders.storage:StorageLockProvider"
_FILESYSTEM = "tidelock.lockproviders.filesystem:FileSystemLockProvider"
_ZOOKEEPER_IMPLICIT = "tidelock.lockproviders.zookeeper:ImplicitPathZookeeperLockProvider"
_DYNAMODB_IMPLICIT = "tidelock.lockproviders.dynamodb:ImplicitKeyDynamoDbLockProvider"
_INPROCESS = "tidelock.lockproviders.inprocess:InProcessLockProvider"
_HIVE = "tidelock.lockproviders.hive:HiveMetastoreLockProvider"

HUDI: dict[str, str] = {
    f"{_CLIENT}.StorageBasedLockProvider": STORAGE,
    f"{_CLIENT}.ZookeeperBasedLockProvider": (
        "tidelock.lockproviders.zookeeper:ZookeeperLockProvider"
    ),
    f"{_CLIENT}.ZookeeperBasedImplicitBasePathLockProvider": _ZOOKEEPER_IMPLICIT,
    f"{_CLIENT}.FileSystemBasedLockProvider": _FILESYSTEM,
    f"{_CLIENT}.InProcessLockProvider": _INPROCESS,
    "org.apache.hudi.core.transaction.lock.InProcessLockProvider": _INPROCESS,
    f"{_AWS}.DynamoDBBasedLockProvider": "tidelock.lockproviders.dynamodb:DynamoDbLockProvider",
    f"{_AWS}.DynamoDBBasedImplicitPartitionKeyLockProvider": _DYNAMODB_IMPLICIT,
    "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider": _HIVE,
    # The name before Hudi moved it.
    "org.apache.hudi.hive.HiveMetastoreBasedLockProvider": _HIVE,
}
"""Hudi's Java classes, and what stands for each of them here."""

BEYOND_HUDI = (
    "tidelock.lockproviders.redis:RedisLockProvider",
    "tidelock.lockproviders.etcd:EtcdLockProvider",
    "tidelock.lockproviders.kubernetes:KubernetesLockProvider",
    "tidelock.lockproviders.statestore:StateStoreLockProvider",
    "tidelock.lockservice.client:ServiceLockProvider",
)
"""Backends that Hudi has no provider for."""

PROVIDERS: dict[str, str] = {
    **HUDI,
    **{place.replace(":", "."): place for place in (*HUDI.values(), *BEYOND_HUDI)},
}
"""Every name that `hoodie.write.lock.provider` may have."""


_BY_BASE_PATH = frozenset({STORAGE, _FILESYSTEM, _ZOOKEEPER_IMPLICIT, _DYNAMODB_IMPLICIT})


SERVICE = "tidelock.lockservice.client.ServiceLockProvider"
"""The client of a lock service, as the command line's `--service` names it."""


class _Maker(Protocol):
    def __call__(
        self, settings: Mapping[str, object], metrics: Metrics | None, *, bind_thread: bool
    ) -> LockProvider: ...


def open_provider(
    settings: Mapping[str, object],
    metrics: Metrics | None = None,
    *,
    resource: str | None = None,
    bind_thread: bool = True,
) -> LockProvider:
    """Return the provider that `hoodie.write.lock.provider` names.

    `resource` names another lock of the same backend than the settings do; where a lock is known by
    its base path, it lies below that one under a digest, and never becomes a path (L13). With
    `bind_thread` a lock is kept only while the thread that acquired it lives.
    Raises: `ConfigInvalid` when the provider is missing or unknown; `MissingExtra`.
    """
    name = PROVIDER.required(settings)
    place = PROVIDERS.get(name)
    if place is None:
        raise ConfigInvalid(
            f"{PROVIDER.key} = {name!r} is not a lock provider",
            hint=f"use one of: {', '.join(sorted(PROVIDERS))}",
        )
    chosen = dict(settings)
    if resource is not None and place in _BY_BASE_PATH:
        digest = hashlib.sha256(resource.encode()).hexdigest()[:40]
        chosen[BASE_PATH.key] = f"{BASE_PATH.required(settings).rstrip('/')}/{digest}"
    elif resource is not None:
        chosen[keys.RESOURCE.key] = resource
    module, _, attribute = place.partition(":")
    # Each provider loads on use, with the client library it needs.
    maker = cast("_Maker", getattr(import_module(module), attribute))
    return maker(chosen, metrics, bind_thread=bind_thread)
