"""Providers by class name: Hudi's Java names and ours."""

from __future__ import annotations

import hashlib
import inspect
import logging
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

logger = logging.getLogger(__name__)

STORAGE = "tidelock.lockproviders.storage:StorageLockProvider"
_FILESYSTEM = "tidelock.lockproviders.filesystem:FileSystemLockProvider"
_ZOOKEEPER = "tidelock.lockproviders.zookeeper:ZookeeperLockProvider"
_ZOOKEEPER_IMPLICIT = "tidelock.lockproviders.zookeeper:ImplicitPathZookeeperLockProvider"
_DYNAMODB_IMPLICIT = "tidelock.lockproviders.dynamodb:ImplicitKeyDynamoDbLockProvider"
_INPROCESS = "tidelock.lockproviders.inprocess:InProcessLockProvider"
_HIVE = "tidelock.lockproviders.hive:HiveMetastoreLockProvider"

HUDI: dict[str, str] = {
    f"{_CLIENT}.StorageBasedLockProvider": STORAGE,
    f"{_CLIENT}.ZookeeperBasedLockProvider": _ZOOKEEPER,
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
"""Every name that `hoodie.write.lock.provider` may have, beside `module:Class` of one's own."""

_ZOOKEEPER_KEYS = "hoodie.write.lock.zookeeper."
_told: set[str] = set()


_BY_BASE_PATH = frozenset({STORAGE, _FILESYSTEM, _ZOOKEEPER_IMPLICIT, _DYNAMODB_IMPLICIT})


SERVICE = "tidelock.lockservice.client.ServiceLockProvider"
"""The client of a lock service, as the command line's `--service` names it."""


class _Maker(Protocol):
    def __call__(
        self, settings: Mapping[str, object], metrics: Metrics | None, *, bind_thread: bool
    ) -> LockProvider: ...


def provider_name(settings: Mapping[str, object]) -> str | None:
    """Return the provider that the settings name, or None where nothing is to be locked.

    Hudi's documented default is ZooKeeper: settings that say where a ZooKeeper is and name no
    provider mean that one. Settings that say less than where it is take no lock, and are told so.
    """
    name = PROVIDER.value(settings)
    if name is not None:
        return name
    if keys.ZK_URL.value(settings):
        _tell_once(
            f"{keys.ZK_URL.key} is set and {PROVIDER.key} is not: the ZooKeeper lock is used"
        )
        return _ZOOKEEPER.replace(":", ".")
    if any(key.startswith(_ZOOKEEPER_KEYS) for key in settings):
        _tell_once(
            f"{_ZOOKEEPER_KEYS}* is set, {keys.ZK_URL.key} and {PROVIDER.key} are not:"
            " no lock is taken"
        )
    return None


def place_of(name: str) -> str:
    """Return the `module:Class` behind a provider's name: one of ours, or a user's own.

    Raises: `ConfigInvalid` for a name that is neither.
    """
    place = PROVIDERS.get(name)
    if place is not None:
        return place
    module, _, attribute = name.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ConfigInvalid(
            f"{PROVIDER.key} = {name!r} is not a lock provider",
            hint=f"use module:Class of your own, or one of: {', '.join(sorted(PROVIDERS))}",
        )
    return name


def is_storage(name: str | None) -> bool:
    """Tell whether a provider's name stands for the storage lock, which is so without a name."""
    return name is None or PROVIDERS.get(name) == STORAGE


def short_name(name: str) -> str:
    """Return the class of a provider's name, for the eye."""
    return name.replace(":", ".").rpartition(".")[2]


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
    Raises: `ConfigInvalid` when the provider is missing, unknown or not one; `MissingExtra`.
    """
    name = provider_name(settings) or PROVIDER.required(settings)
    place = place_of(name)
    chosen = dict(settings)
    if resource is not None and place in _BY_BASE_PATH:
        digest = hashlib.sha256(resource.encode()).hexdigest()[:40]
        chosen[BASE_PATH.key] = f"{BASE_PATH.required(settings).rstrip('/')}/{digest}"
    elif resource is not None:
        chosen[keys.RESOURCE.key] = resource
    # Each provider loads on use, with the client library it needs.
    maker = _maker(name, place)
    return maker(chosen, metrics, bind_thread=bind_thread)


_VERBS = (
    "features", "try_lock", "unlock", "check", "state", "on_lost", "holder", "force_release",
    "close",
)  # fmt: skip


def _maker(name: str, place: str) -> _Maker:
    """Load a provider's class; one of a user's own is checked against the protocol."""
    module, _, attribute = place.partition(":")
    if name in PROVIDERS:
        return cast("_Maker", getattr(import_module(module), attribute))
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigInvalid(
            f"{PROVIDER.key} = {name!r} cannot be loaded: {error}",
            hint="the module must be importable here (PYTHONPATH), and have the class",
        ) from error
    missing = [verb for verb in _VERBS if not hasattr(found, verb)]
    try:
        inspect.signature(found).bind({}, None, bind_thread=True)
    except (TypeError, ValueError) as error:
        missing.append(f"a constructor (settings, metrics, *, bind_thread): {error}")
    if missing:
        raise ConfigInvalid(
            f"{PROVIDER.key} = {name!r} is not a lock provider: it lacks {', '.join(missing)}",
            hint="see the protocol in docs/lock-providers.md",
        )
    return cast("_Maker", found)


def _tell_once(message: str) -> None:
    if message not in _told:
        _told.add(message)
        logger.warning("%s", message)
