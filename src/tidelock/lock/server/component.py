"""Lock stores: Dapr components with the interface of the alpha2 proposal, and their files.

`lock` waits, `try_lock` does not, `renew_lock` extends, `unlock` releases, also by force.
`ResourceLocked` and `LockNotFound` are the only errors for a lock that is held or not held.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, assert_never
from urllib.parse import quote, urlsplit

from tidelock.core.clock import Clock
from tidelock.core.errors import (
    AcquireTimeout,
    ConfigInvalid,
    InvalidInput,
    TidelockError,
    Unavailable,
    needs_extra,
)
from tidelock.core.ids import IdSource
from tidelock.core.limits import TTL_MS_MAX, TTL_MS_MIN, WAIT_MS_MAX
from tidelock.core.telemetry import Metrics
from tidelock.lock.config import BASE_PATH, PROVIDER, RENEW_S, VALIDITY_S, WAIT_TIME_MS
from tidelock.lock.provider import LockProvider
from tidelock.lock.providers import config, registry
from tidelock.lock.server import messages as msg
from tidelock.lock.server.backend_lock import ProviderBackendLock
from tidelock.lock.server.duration import ttl_field
from tidelock.lock.server.entries import JournalEntry, KeepAliveMode
from tidelock.lock.server.errors import LockNotFound, Overloaded, RequestIdReused, ResourceLocked
from tidelock.lock.server.journal import LockJournal
from tidelock.lock.server.resource import SEPARATOR, KeyPrefix, key_digest
from tidelock.lock.server.shard import LockShard, ShardRequest
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.uri import open_store

REQUEST_TIMEOUT_S = 30.0
"""Timeout of requests that do not wait for a lock: after it, the store counts as unreachable."""


@dataclass(frozen=True, slots=True)
class LockRequest:
    """Parameters of `lock` and `try_lock`; `ttl_ms` 0 is the default of the lock store."""

    key: str
    principal: str
    ttl_ms: int = 0
    mode: KeepAliveMode = KeepAliveMode.AUTO_RENEWED
    owner: str = ""
    request_id: str = ""
    linger_ms: int = 0


@dataclass(frozen=True, slots=True)
class LockResponse:
    """A grant, as returned to its holder."""

    lock_id: str
    token: int
    ttl_ms: int
    since_epoch_ms: int


@dataclass(slots=True)
class Component:
    """One lock store."""

    name: str
    type: str
    shard: LockShard
    prefix: KeyPrefix
    ttl_ms: int

    async def try_lock(self, request: LockRequest) -> LockResponse:
        """Acquire the lock now.

        Raises: `ResourceLocked`, `Overloaded`, `RequestIdReused`, `Unavailable`.
        """
        event = self._acquire_event(request, immediate=True, handle=self.shard.handle())
        return self._granted(await self._with_timeout(event))

    async def lock(self, request: LockRequest, wait_ms: int | None = None) -> LockResponse:
        """Acquire the lock, waiting up to `wait_ms`; None waits for the maximum.

        Raises: `AcquireTimeout`, and what `try_lock` raises except `ResourceLocked`.
        """
        wait_ms = WAIT_MS_MAX if wait_ms is None else min(wait_ms, WAIT_MS_MAX)
        ask = self._acquire_event(request, immediate=False, handle=self.shard.handle())
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return self._granted(await self.shard.request(ask))
        except TimeoutError:
            raise self.timeout_error(wait_ms) from None

    def timeout_error(self, wait_ms: int) -> TidelockError:
        """Return the error of a timed-out wait: held by others, or an outage of the backend."""
        if self.shard.outage:
            return _no_answer(self.shard.outage)
        return AcquireTimeout(
            f"the lock was not released within {wait_ms / 1000:g} s", hint="wait longer"
        )

    async def stream(self, request: LockRequest, handle: int, *, immediate: bool) -> LockResponse:
        """Acquire the lock for a stream; call `listen` with `handle` before."""
        event = self._acquire_event(request, immediate=immediate, handle=handle)
        return self._granted(await self.shard.request(event))

    async def attach(self, key: str, principal: str, lock_id: str, handle: int) -> LockResponse:
        """Reattach to a lock after its stream broke. Raises: `LockNotFound` if it has ended."""
        event = msg.AttachStream(handle, key, principal, lock_id)
        return self._granted(await self._with_timeout(event))

    async def renew_lock(
        self, key: str, principal: str, lock_id: str, ttl_ms: int = 0
    ) -> LockResponse:
        """Extend a lock by one TTL from now. Raises: `LockNotFound`."""
        ttl_ms = self.validate_ttl(ttl_ms) if ttl_ms else 0
        event = msg.RenewRequest(self.shard.handle(), key, principal, lock_id, ttl_ms)
        return self._granted(await self._with_timeout(event))

    async def unlock(
        self, key: str, principal: str, lock_id: str, *, request_id: str = "", force: bool = False
    ) -> None:
        """Release a lock by its id or its request id; with `force`, the lock of any holder.

        Raises: `LockNotFound`.
        """
        handle = self.shard.handle()
        event: ShardRequest = (
            msg.ForceUnlock(handle, key, principal)
            if force
            else msg.UnlockRequest(handle, key, principal, lock_id=lock_id, request_id=request_id)
        )
        reply = await self._with_timeout(event)
        if not isinstance(reply, msg.RequestDone):
            raise _not_found()

    async def unlock_owned(self, key: str, principal: str, owner: str) -> msg.Reply:
        """Release a lock by its owner, as in alpha1; return the plain reply."""
        return await self._with_timeout(
            msg.UnlockRequest(self.shard.handle(), key, principal, owner=owner)
        )

    async def status(self, key: str) -> msg.ResourceStatus:
        reply = await self._with_timeout(msg.InspectRequest(self.shard.handle(), key))
        assert isinstance(reply, msg.ResourceStatus)
        return reply

    def validate_ttl(self, ttl_ms: int) -> int:
        """V3: return the TTL of a grant, the default for 0 or less.

        Raises: `InvalidInput` outside the limits.
        """
        chosen = ttl_ms if ttl_ms > 0 else self.ttl_ms
        if not TTL_MS_MIN <= chosen <= TTL_MS_MAX:
            raise InvalidInput(
                f"ttl: expected {TTL_MS_MIN} to {TTL_MS_MAX} ms, got {chosen} ms",
                hint="renew the lock to hold it for longer",
            )
        return chosen

    def _acquire_event(
        self, request: LockRequest, *, immediate: bool, handle: int
    ) -> msg.AcquireRequest:
        ttl_ms = self.validate_ttl(request.ttl_ms)
        return msg.AcquireRequest(
            handle=handle,
            key=request.key,
            principal=request.principal,
            ttl_ms=ttl_ms,
            mode=request.mode,
            owner=request.owner,
            immediate=immediate,
            linger_ms=min(request.linger_ms, ttl_ms),
            request_id=request.request_id,
        )

    async def _with_timeout(self, event: ShardRequest) -> msg.Reply:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await self.shard.request(event)
        except TimeoutError:
            raise Unavailable(
                f"lock store {self.name!r} did not answer within {REQUEST_TIMEOUT_S:g} s",
                hint="try again; if the request still succeeds, it is rolled back",
            ) from None

    def _granted(self, reply: msg.Reply) -> LockResponse:
        match reply:
            case msg.GrantReply(granted, since_epoch_ms):
                return LockResponse(granted.lock_id, granted.token, granted.ttl_ms, since_epoch_ms)
            case msg.AlreadyLocked(None) if self.shard.outage:
                # The holder is unknown while the backend does not answer.
                raise _no_answer(self.shard.outage)
            case msg.AlreadyLocked(holder):
                hint = f"held under token {holder.token}" if holder else "held by another program"
                raise ResourceLocked("the resource is already locked", hint=hint)
            case msg.NotLocked() | msg.LockedByOther():
                raise _not_found()
            case msg.RequestReused():
                raise RequestIdReused(
                    "this request id was used for a lock that has ended", hint="use another one"
                )
            case msg.LimitReached(what):
                raise Overloaded(
                    f"a limit is reached: {what}", hint="try again later", retry_after_ms=1_000
                )
            case msg.BackendFailed(cause):
                raise _no_answer(cause)
            case msg.RequestDone() | msg.ResourceStatus():
                raise AssertionError(reply)
            case _:
                assert_never(reply)


def _no_answer(cause: str) -> Unavailable:
    return Unavailable(f"the backend did not answer: {cause}", hint="try again later")


def _not_found() -> LockNotFound:
    return LockNotFound(
        "the resource is locked with a different lock ID or the lock does not exist",
        hint="it was released or has expired; acquire it again",
    )


OWN_TYPE = "lock.tidelock"
DEFAULT_NAME = "lockstore"
"""The name of the lock store when there is no component file, as in Dapr's examples."""
DEFAULT_TTL_MS = 30_000
_PROVIDER_MODULES = "tidelock.lock.providers."
_KNOWN_TO_ALL = {"ttl", "keyprefix"}
_FILE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """A lock store as defined in its component file, with metadata names in lower case."""

    name: str
    type: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    scopes: tuple[str, ...] = ()

    @property
    def provider(self) -> str:
        return self.type.removeprefix("lock.")

    @property
    def ttl_ms(self) -> int:
        text = self.metadata.get("ttl")
        return (ttl_field("ttl", text) if text else 0) or DEFAULT_TTL_MS

    @property
    def key_prefix(self) -> str:
        """Dapr's key-prefix strategy."""
        return self.metadata.get("keyprefix", "appid")

    def own_metadata(self) -> dict[str, str]:
        """Return the metadata that is specific to this type."""
        return {name: value for name, value in self.metadata.items() if name not in _KNOWN_TO_ALL}


def read_specs(path: Path, *, app_id: str = "") -> list[ComponentSpec]:
    """Read a component file, or every .yaml and .yml file of a folder, sorted by name.

    Other components are skipped, and so are lock stores that are scoped to other applications.
    Raises: `ConfigInvalid`, `MissingExtra`.
    """
    if not path.exists():
        raise ConfigInvalid(
            f"{path}: there is no component file or folder", hint="check the path of --components"
        )
    files = sorted(path.glob("*.y*ml")) if path.is_dir() else [path]
    found = [spec for file in files for spec in _read_file(file)]
    found = [spec for spec in found if not spec.scopes or app_id in spec.scopes]
    names = [spec.name for spec in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigInvalid(
                f"{path}: there are two lock stores named {name!r}", hint="rename one of them"
            )
    return found


def _read_file(path: Path) -> Iterable[ComponentSpec]:
    with needs_extra("component files need PyYAML", "serve"):
        import yaml
    documents: list[object] = []
    try:
        size = path.stat().st_size
        if size <= _FILE_BYTES_MAX:
            documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigInvalid(
            f"{path}: cannot read the component file: {error}",
            hint="correct the YAML, or the path of --components",
        ) from error
    if size > _FILE_BYTES_MAX:
        raise ConfigInvalid(
            f"{path}: expected a component file of at most {_FILE_BYTES_MAX} bytes, got {size}",
            hint="correct the path of --components",
        )
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "Component":
            spec = _spec(document, path)
            if spec.type.startswith("lock."):
                yield spec


def _spec(document: dict[str, Any], path: Path) -> ComponentSpec:
    try:
        name = str(document["metadata"]["name"])
        kind = str(document["spec"]["type"])
        metadata = {
            str(item["name"]).lower(): _value(item, path)
            for item in document["spec"].get("metadata") or ()
        }
        scopes = tuple(str(scope) for scope in document.get("scopes") or ())
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigInvalid(
            f"{path}: component file: {error!r} is missing or of the wrong type",
            hint="it needs metadata.name, spec.type and a list spec.metadata of name and value",
        ) from error
    return ComponentSpec(name, kind, metadata, scopes)


def _value(item: dict[str, Any], path: Path) -> str:
    if "value" in item:
        value = item["value"]
        # YAML parses booleans and numbers; metadata is text.
        return str(value).lower() if isinstance(value, bool) else str(value)
    if "envRef" in item:
        return os.environ.get(str(item["envRef"]), "")
    raise ConfigInvalid(
        f"{path}: {item.get('name')!r} has no value",
        hint="set a value or an envRef; secret stores are not supported",
    )


Settings = dict[str, object]
Audit = Callable[[str, list[JournalEntry]], None]


@dataclass(frozen=True, slots=True)
class ComponentBuilder:
    """Builds lock stores. Journals of those with a backend are stored below `state_uri`."""

    state_uri: str
    clock: Clock
    ids: IdSource
    metrics: Metrics
    audit: Audit | None = None

    def component(self, spec: ComponentSpec) -> Component:
        """Return the lock store of `spec`, validated but not started.

        Raises: `ConfigInvalid` for an unknown type, and for unknown, missing or invalid settings.
        """
        try:
            return self._component(spec)
        except InvalidInput as error:
            raise ConfigInvalid(
                f"lock store {spec.name!r} of type {spec.type}: {error.message}", hint=error.hint
            ) from error

    def _component(self, spec: ComponentSpec) -> Component:
        own = spec.own_metadata()
        backend = None
        uri = self._journal_uri(spec)
        settings: Settings = {}
        if spec.type == OWN_TYPE:
            uri = own.pop("url", "") or uri
            settings = _pop_settings(own)
        else:
            backend = _provider_backend(spec, own, self.metrics)
        if own:
            raise ConfigInvalid(
                f"unknown metadata: {', '.join(sorted(own))}",
                hint="see docs/lock-service.md for the names of each type",
            )
        if backend is not None:
            _check_opens(spec, backend)
        policy = ReadbackPolicy(clock=self.clock, ids=self.ids)
        shard = LockShard(
            journal=LockJournal(open_store(uri, settings), self.ids, policy),
            clock=self.clock,
            ids=self.ids,
            backend=backend,
            metrics=self.metrics,
            name=spec.name,
            audit=None if self.audit is None else partial(self.audit, spec.name),
        )
        return Component(
            name=spec.name,
            type=spec.type,
            shard=shard,
            prefix=KeyPrefix(spec.key_prefix),
            ttl_ms=spec.ttl_ms,
        )

    def _journal_uri(self, spec: ComponentSpec) -> str:
        """Return the location of the journal of a lock store without a URL."""
        if spec.name == DEFAULT_NAME and spec.type == OWN_TYPE:
            return self.state_uri
        digest = hashlib.sha256(spec.name.encode()).hexdigest()[:16]
        return f"{self.state_uri.rstrip('/')}/{digest}"


def check_separate_journals(components: Iterable[Component]) -> None:
    """Refuse two lock stores on one journal: each would fence the other.

    Raises: `ConfigInvalid`.
    """
    seen: dict[str, str] = {}
    for component in components:
        location = component.shard.journal.store.identity
        if location in seen:
            raise ConfigInvalid(
                f"lock stores {seen[location]!r} and {component.name!r} both use {location}",
                hint="give each its own url",
            )
        seen[location] = component.name


def _provider_backend(
    spec: ComponentSpec, own: dict[str, str], metrics: Metrics
) -> ProviderBackendLock:
    provider = _provider_class(spec)
    settings: Settings = {
        PROVIDER.key: provider,
        **_pop_metadata(spec.provider, own),
        **_pop_settings(own),
    }

    def open_lock(key: str, ttl_ms: int) -> LockProvider:
        lock_settings = {**settings, **_lock_settings(spec.provider, settings, key, ttl_ms)}
        return registry.open_provider(lock_settings, metrics, bind_thread=False)

    def force(key: str) -> None:
        held = open_lock(key, spec.ttl_ms)
        try:
            held.force_release()
        finally:
            held.close()

    return ProviderBackendLock(open_lock, force)


def _check_opens(spec: ComponentSpec, backend: ProviderBackendLock) -> None:
    """Open one provider, which validates its settings without sending a request."""
    try:
        backend.open_provider("check", spec.ttl_ms).close()
    except InvalidInput as error:
        known = _SETTING_NAMES.get(spec.provider, {})
        names = [name for name, key in known.items() if key in str(error)]
        hint = f"metadata {' or '.join(names)} sets it" if names else error.hint
        raise ConfigInvalid(error.message, hint=hint) from error


def _provider_class(spec: ComponentSpec) -> str:
    modules: dict[str, str] = {}
    for name in registry.PROVIDERS:
        if name.startswith(_PROVIDER_MODULES):
            modules.setdefault(name.removeprefix(_PROVIDER_MODULES).partition(".")[0], name)
    if spec.provider not in modules:
        raise ConfigInvalid(
            "the type does not exist",
            hint=f"use {OWN_TYPE} or lock. and one of: {', '.join(sorted(modules))}",
        )
    return modules[spec.provider]


def _pop_settings(own: dict[str, str]) -> Settings:
    """Remove and return the settings that have their full names."""
    names = [name for name in own if name.startswith(("hoodie.", "tidelock."))]
    return {name: own.pop(name) for name in names}


def _pop_metadata(provider: str, own: dict[str, str]) -> Settings:
    """Remove and return the metadata that has Dapr's names, as settings."""
    if provider == "redis":
        return _redis(own)
    names = _SETTING_NAMES.get(provider, {})
    return {key: own.pop(name) for name, key in names.items() if name in own}


_SETTING_NAMES: Mapping[str, Mapping[str, str]] = {
    "redis": {"redisHost": config.REDIS_URL.key},
    "etcd": {"url": config.ETCD_URL.key, "endpoints": config.ETCD_URL.key},
    "storage": {"url": BASE_PATH.key},
    "statestore": {"url": config.STATE_URL.key},
    "filesystem": {"url": BASE_PATH.key},
    "zookeeper": {"url": config.ZK_URL.key, "path": config.ZK_BASE_PATH.key},
    "dynamodb": {"table": config.DDB_TABLE.key, "region": config.DDB_REGION.key},
    "hive": {"url": config.HMS_URIS.key},
    "kubernetes": {"url": config.K8S_URL.key, "namespace": config.K8S_NAMESPACE.key},
}
"""The settings of each provider by their metadata names."""


_REDIS_IGNORED = (
    "redistype", "failover", "sentinelmastername", "redismaxretries", "redismaxretryinterval",
    "maxretries", "maxretrybackoff", "dialtimeout", "readtimeout", "writetimeout", "poolsize",
)  # fmt: skip
"""Options of Dapr's Redis client that do not apply: a lost reply is read back, not retried."""


def _redis(own: dict[str, str]) -> Settings:
    """Return Dapr's `lock.redis` metadata as one URL."""
    _check_redis_features(own)
    for name in _REDIS_IGNORED:
        own.pop(name, None)
    host = own.pop("redishost", "")
    user, password = own.pop("redisusername", ""), own.pop("redispassword", "")
    tls = own.pop("enabletls", "").lower() or "false"
    if tls not in ("true", "false"):
        raise ConfigInvalid(
            f"enableTLS: expected true or false, got {tls!r}", hint="use true or false"
        )
    database = own.pop("redisdb", "") or "0"
    if not database.isdecimal():
        raise ConfigInvalid(
            f"redisDB: expected a database number, got {database!r}",
            hint="use 0, or the number of another database",
        )
    if not host:
        return {}
    _check_address("redisHost", host)
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    scheme = "rediss" if tls == "true" else "redis"
    return {config.REDIS_URL.key: f"{scheme}://{login}{host}/{database}"}


def _check_redis_features(own: Mapping[str, str]) -> None:
    """Refuse metadata for Redis features that this provider does not support."""
    if own.get("redistype", "") not in ("", "node"):
        raise ConfigInvalid(
            f"redisType: {own['redistype']!r} is not supported: a lock needs all keys in one slot",
            hint="use one server or a primary, and omit redisType",
        )
    if own.get("failover", "").lower() not in ("", "false"):
        raise ConfigInvalid(
            "failover: Redis Sentinel is not supported",
            hint="use the address of the primary, or of a proxy before it",
        )


def _check_address(name: str, text: str) -> None:
    try:
        parts = urlsplit(f"//{text}")
        plain = parts.hostname and parts.netloc == text and (parts.port is None or parts.port > 0)
    except ValueError:
        plain = False
    if not plain or "@" in text or "," in text:
        raise ConfigInvalid(
            f"{name}: expected host:port, got {text!r}", hint="use one address, such as redis:6379"
        )


def _lock_settings(
    provider: str, settings: Mapping[str, object], key: str, ttl_ms: int
) -> Settings:
    """Return the settings of a provider for one key, with a lease of at least `ttl_ms`.

    L13: a key that would be part of a path is replaced by its digest. Redis keeps Dapr's names.
    """
    seconds = -(-ttl_ms // 1000)
    if provider == "redis":
        prefix, _, resource = key.rpartition(SEPARATOR)
        named = {config.REDIS_PREFIX.key: prefix + SEPARATOR, config.RESOURCE.key: resource}
        return {**named, config.TTL_MS.key: ttl_ms}
    name = key_digest(key)
    match provider:
        case "storage" | "filesystem":
            base_path = f"{BASE_PATH.required(settings).rstrip('/')}/{name}"
            if provider == "filesystem":
                minutes = max(1, -(-seconds // 60))
                return {BASE_PATH.key: base_path, config.FS_EXPIRE_MIN.key: minutes}
            validity_s = max(10, seconds)
            lease = {VALIDITY_S.key: validity_s, RENEW_S.key: max(1, validity_s // 10)}
            return {BASE_PATH.key: base_path, **lease}
        case "zookeeper":
            configured_ms = int(str(settings.get(config.ZK_SESSION_MS.key, 0)) or 0)
            session_ms = max(configured_ms, ttl_ms, 4_000)
            return {config.RESOURCE.key: name, config.ZK_SESSION_MS.key: session_ms}
        case "dynamodb":
            # Hudi's provider uses the wait time as the lease.
            return {config.RESOURCE.key: name, WAIT_TIME_MS.key: max(ttl_ms, 5_000)}
        case "hive":
            return {config.RESOURCE.key: f"tidelock.{name}"}
        case "statestore":
            # A lock store has no table whose folder could be the default URL.
            url = config.STATE_URL.required(settings)
            return {config.STATE_URL.key: url, config.RESOURCE.key: name, config.TTL_MS.key: ttl_ms}
        case _:
            return {config.RESOURCE.key: name, config.TTL_MS.key: ttl_ms}
