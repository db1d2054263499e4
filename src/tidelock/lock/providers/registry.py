"""The lock providers by class name: Hudi's Java names and Tidelock's."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from tidelock.core.errors import ConfigInvalid
from tidelock.core.telemetry import Metrics
from tidelock.lock.config import BASE_PATH, PROVIDER
from tidelock.lock.provider import LockProvider
from tidelock.lock.providers import config

_CLIENT = "org.apache.hudi.client.transaction.lock"
_AWS = "org.apache.hudi.aws.transaction.lock"

logger = logging.getLogger(__name__)

STORAGE = "tidelock.lock.providers.storage:StorageLockProvider"
_FILESYSTEM = "tidelock.lock.providers.filesystem:FileSystemLockProvider"
_ZOOKEEPER = "tidelock.lock.providers.zookeeper:ZookeeperLockProvider"
_ZOOKEEPER_IMPLICIT = "tidelock.lock.providers.zookeeper:ImplicitPathZookeeperLockProvider"
_DYNAMODB_IMPLICIT = "tidelock.lock.providers.dynamodb:ImplicitKeyDynamoDbLockProvider"
_INPROCESS = "tidelock.lock.providers.inprocess:InProcessLockProvider"
_HIVE = "tidelock.lock.providers.hive:HiveMetastoreLockProvider"

HUDI: dict[str, str] = {
    f"{_CLIENT}.StorageBasedLockProvider": STORAGE,
    f"{_CLIENT}.ZookeeperBasedLockProvider": _ZOOKEEPER,
    f"{_CLIENT}.ZookeeperBasedImplicitBasePathLockProvider": _ZOOKEEPER_IMPLICIT,
    f"{_CLIENT}.FileSystemBasedLockProvider": _FILESYSTEM,
    f"{_CLIENT}.InProcessLockProvider": _INPROCESS,
    "org.apache.hudi.core.transaction.lock.InProcessLockProvider": _INPROCESS,
    f"{_AWS}.DynamoDBBasedLockProvider": "tidelock.lock.providers.dynamodb:DynamoDbLockProvider",
    f"{_AWS}.DynamoDBBasedImplicitPartitionKeyLockProvider": _DYNAMODB_IMPLICIT,
    "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider": _HIVE,
    # The former name in Hudi.
    "org.apache.hudi.hive.HiveMetastoreBasedLockProvider": _HIVE,
}
"""Hudi's Java classes, and the class that implements each of them here."""

BEYOND_HUDI = (
    "tidelock.lock.providers.redis:RedisLockProvider",
    "tidelock.lock.providers.etcd:EtcdLockProvider",
    "tidelock.lock.providers.kubernetes:KubernetesLockProvider",
    "tidelock.lock.providers.statestore:StateStoreLockProvider",
    "tidelock.lock.server.client:ServiceLockProvider",
)
"""Providers for backends that Hudi does not support."""

PROVIDERS: dict[str, str] = {
    **HUDI,
    **{path.replace(":", "."): path for path in (*HUDI.values(), *BEYOND_HUDI)},
}
"""The values of `hoodie.write.lock.provider`, besides `module:Class` of a user."""

_OLD_PACKAGES = {
    "tidelock.lockproviders.": "tidelock.lock.providers.",
    "tidelock.lockservice.": "tidelock.lock.server.",
}
"""Former package names; provider names that start with them are still accepted."""

_ZOOKEEPER_KEYS = "hoodie.write.lock.zookeeper."
_warned: set[str] = set()


_BY_BASE_PATH = frozenset({STORAGE, _FILESYSTEM, _ZOOKEEPER_IMPLICIT, _DYNAMODB_IMPLICIT})


SERVICE = "tidelock.lock.server.client.ServiceLockProvider"
"""The client of a lock service, for the option `--service`."""


class _ProviderFactory(Protocol):
    def __call__(
        self, settings: Mapping[str, object], metrics: Metrics | None, *, bind_thread: bool
    ) -> LockProvider: ...


def provider_name(settings: Mapping[str, object]) -> str | None:
    """Return the name of the provider, or None if no lock is configured.

    Hudi's documented default is ZooKeeper: with the URL of a ZooKeeper and no provider, use that.
    With other ZooKeeper settings only, no lock is taken, and a warning is logged.
    """
    name = PROVIDER.value(settings)
    if name is not None:
        return name
    if config.ZK_URL.value(settings):
        _warn_once(
            f"{config.ZK_URL.key} is set and {PROVIDER.key} is not: the ZooKeeper lock is used"
        )
        return _ZOOKEEPER.replace(":", ".")
    if any(key.startswith(_ZOOKEEPER_KEYS) for key in settings):
        _warn_once(
            f"{_ZOOKEEPER_KEYS}* is set, {config.ZK_URL.key} and {PROVIDER.key} are not:"
            " no lock is taken"
        )
    return None


def class_path_of(name: str) -> str:
    """Return `module:Class` for the name of a provider. Raises: `ConfigInvalid` for other names."""
    name = _current_name(name)
    class_path = PROVIDERS.get(name)
    if class_path is not None:
        return class_path
    module, _, attribute = name.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        known = dict.fromkeys(map(short_name, (*HUDI, *BEYOND_HUDI)))
        raise ConfigInvalid(
            f"{PROVIDER.key}: expected a lock provider, got {name!r}",
            hint=f"use the full class name of {', '.join(known)}, or your own module:Class;"
            " see docs/lock-providers.md",
        )
    return name


def is_storage(name: str | None) -> bool:
    """Return whether a provider name means the storage lock, which is also the default."""
    return name is None or PROVIDERS.get(_current_name(name)) == STORAGE


def _current_name(name: str) -> str:
    """Return the current name for a former name of a provider."""
    for old, new in _OLD_PACKAGES.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def short_name(name: str) -> str:
    """Return the class name of a provider, for display."""
    return name.replace(":", ".").rpartition(".")[2]


def open_provider(
    settings: Mapping[str, object],
    metrics: Metrics | None = None,
    *,
    resource: str | None = None,
    bind_thread: bool = True,
) -> LockProvider:
    """Return the provider that `hoodie.write.lock.provider` names.

    `resource` selects another lock of the same backend. If locks are identified by their base path,
    a digest of the resource is appended to it, never the resource itself (L13). With `bind_thread`
    a lock is renewed only while the thread that acquired it is alive.
    Raises: `ConfigInvalid` if the provider is missing, unknown or invalid; `MissingExtra`.
    """
    name = provider_name(settings) or PROVIDER.required(settings)
    class_path = class_path_of(name)
    options = dict(settings)
    if resource is not None and class_path in _BY_BASE_PATH:
        digest = hashlib.sha256(resource.encode()).hexdigest()[:40]
        options[BASE_PATH.key] = f"{BASE_PATH.required(settings).rstrip('/')}/{digest}"
    elif resource is not None:
        options[config.RESOURCE.key] = resource
    # Providers are imported on use, with the client libraries that they need.
    factory = _load_class(name, class_path)
    return factory(options, metrics, bind_thread=bind_thread)


_METHODS = (
    "features", "try_lock", "unlock", "check", "state", "on_lost", "holder", "force_release",
    "close",
)  # fmt: skip


def _load_class(name: str, class_path: str) -> _ProviderFactory:
    """Load the class of a provider; check one of the user against the protocol."""
    module, _, attribute = class_path.partition(":")
    if _current_name(name) in PROVIDERS:
        return cast("_ProviderFactory", getattr(import_module(module), attribute))
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigInvalid(
            f"{PROVIDER.key}: {name!r} cannot be loaded: {error}",
            hint="check that the module is on PYTHONPATH and contains the class",
        ) from error
    missing = [method for method in _METHODS if not hasattr(found, method)]
    try:
        inspect.signature(found).bind({}, None, bind_thread=True)
    except (TypeError, ValueError) as error:
        missing.append(f"a constructor (settings, metrics, *, bind_thread): {error}")
    if missing:
        raise ConfigInvalid(
            f"{PROVIDER.key}: {name!r} is not a lock provider: it lacks {', '.join(missing)}",
            hint="see the protocol in docs/lock-providers.md",
        )
    return cast("_ProviderFactory", found)


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        logger.warning("%s", message)
