"""From component files to components: the store, the journal, and the gate to a provider."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from tidelock.base.clock import Clock
from tidelock.base.errors import ConfigInvalid, InvalidInput
from tidelock.base.ids import IdSource
from tidelock.base.metrics import Metrics
from tidelock.lock.config import BASE_PATH, PROVIDER, RENEW_S, VALIDITY_S, WAIT_TIME_MS
from tidelock.lock.provider import LockProvider
from tidelock.lockproviders import keys, registry
from tidelock.lockservice.cell import Cell
from tidelock.lockservice.component import Component
from tidelock.lockservice.entries import Entry
from tidelock.lockservice.gate import ProviderGate
from tidelock.lockservice.journal import Journal
from tidelock.lockservice.resource import SEPARATOR, KeyPrefix, key_digest
from tidelock.lockservice.specs import DEFAULT_NAME, OWN_TYPE, Spec
from tidelock.store.readback import Patience
from tidelock.store.uri import open_store

Settings = dict[str, object]
Audit = Callable[[str, list[Entry]], None]


@dataclass(frozen=True, slots=True)
class Builder:
    """Makes components. Journals of those with a backend lie below `state_uri`."""

    state_uri: str
    clock: Clock
    ids: IdSource
    metrics: Metrics
    audit: Audit | None = None

    def component(self, spec: Spec) -> Component:
        """Return the component of `spec`, checked and not started.

        Raises: `ConfigInvalid` for a type or a setting that does not exist, is missing or wrong.
        """
        try:
            return self._component(spec)
        except InvalidInput as error:
            raise ConfigInvalid(
                f"the lock store {spec.name!r} of type {spec.type} cannot be used: {error.message}",
                hint=error.hint,
            ) from error

    def _component(self, spec: Spec) -> Component:
        own = spec.own_metadata()
        gate = None
        uri = self._journal_uri(spec)
        settings: Settings = {}
        if spec.type == OWN_TYPE:
            uri = own.pop("url", "") or uri
            settings = _passed(own)
        else:
            gate = _gate(spec, own, self.metrics)
        if own:
            raise ConfigInvalid(
                f"it has unknown metadata: {', '.join(sorted(own))}",
                hint="see docs/lock-service.md for the names of each type",
            )
        if gate is not None:
            _check_opens(spec, gate)
        audit = self.audit
        return Component(
            name=spec.name,
            type=spec.type,
            cell=Cell(
                journal=Journal(
                    open_store(uri, settings), self.ids, Patience(clock=self.clock, ids=self.ids)
                ),
                clock=self.clock,
                ids=self.ids,
                gate=gate,
                metrics=self.metrics,
                name=spec.name,
                audit=None if audit is None else lambda entries: audit(spec.name, entries),
            ),
            prefix=KeyPrefix(spec.key_prefix),
            ttl_ms=spec.ttl_ms,
        )

    def _journal_uri(self, spec: Spec) -> str:
        """Return where the journal of a component lies that names no place of its own."""
        if spec.name == DEFAULT_NAME and spec.type == OWN_TYPE:
            return self.state_uri
        digest = hashlib.sha256(spec.name.encode()).hexdigest()[:16]
        return f"{self.state_uri.rstrip('/')}/{digest}"


def check_apart(components: Iterable[Component]) -> None:
    """Refuse two components on one journal: each would depose the other.

    Raises: `ConfigInvalid`.
    """
    seen: dict[str, str] = {}
    for component in components:
        place = component.cell.journal.store.identity
        if place in seen:
            raise ConfigInvalid(
                f"the lock stores {seen[place]!r} and {component.name!r} both lie in {place}",
                hint="give each a url of its own",
            )
        seen[place] = component.name


def _gate(spec: Spec, own: dict[str, str], metrics: Metrics) -> ProviderGate:
    provider = _provider_class(spec)
    settings: Settings = {PROVIDER.key: provider, **_translated(spec.provider, own), **_passed(own)}

    def opened(key: str, ttl_ms: int) -> LockProvider:
        bound = {**settings, **_bound(spec.provider, settings, key, ttl_ms)}
        return registry.open_provider(bound, metrics, bind_thread=False)

    def force(key: str) -> None:
        held = opened(key, spec.ttl_ms)
        try:
            held.force_release()
        finally:
            held.close()

    return ProviderGate(opened, force)


def _check_opens(spec: Spec, gate: ProviderGate) -> None:
    """Open one provider as each lock will: it reads and checks its settings, and asks nobody."""
    try:
        gate.open_provider("check", spec.ttl_ms).close()
    except InvalidInput as error:
        names = [name for name, key in _short(spec.provider).items() if key in str(error)]
        hint = f"metadata {' or '.join(names)} sets it" if names else error.hint
        raise ConfigInvalid(error.message, hint=hint) from error


def _provider_class(spec: Spec) -> str:
    prefix = f"tidelock.lockproviders.{spec.provider}."
    for name in registry.PROVIDERS:
        if name.startswith(prefix):
            return name
    known = sorted(
        {name.split(".")[2] for name in registry.PROVIDERS if name.startswith("tidelock.")}
    )
    raise ConfigInvalid(
        "its type does not exist",
        hint=f"use {OWN_TYPE} or lock. and one of: {', '.join(known)}",
    )


def _passed(own: dict[str, str]) -> Settings:
    """Take out of `own` the settings that go by their own names."""
    names = [name for name in own if name.startswith(("hoodie.", "tidelock."))]
    return {name: own.pop(name) for name in names}


def _translated(provider: str, own: dict[str, str]) -> Settings:
    """Take out of `own` what Dapr calls by other names than we do."""
    if provider == "redis":
        return _redis(own)
    return {key: own.pop(name) for name, key in _short(provider).items() if name in own}


def _short(provider: str) -> dict[str, str]:
    """Return what a component calls the settings of a provider, by the name in lower case."""
    return {
        "redis": {"redisHost": keys.REDIS_URL.key},
        "etcd": {"url": keys.ETCD_URL.key, "endpoints": keys.ETCD_URL.key},
        "storage": {"url": BASE_PATH.key},
        "statestore": {"url": keys.STATE_URL.key},
        "filesystem": {"url": BASE_PATH.key},
        "zookeeper": {"url": keys.ZK_URL.key, "path": keys.ZK_BASE_PATH.key},
        "dynamodb": {"table": keys.DDB_TABLE.key, "region": keys.DDB_REGION.key},
        "hive": {"url": keys.HMS_URIS.key},
        "kubernetes": {"url": keys.K8S_URL.key, "namespace": keys.K8S_NAMESPACE.key},
    }.get(provider, {})


_REDIS_PASSED_OVER = (
    "redistype", "failover", "sentinelmastername", "redismaxretries", "redismaxretryinterval",
    "maxretries", "maxretrybackoff", "dialtimeout", "readtimeout", "writetimeout", "poolsize",
)  # fmt: skip
"""Dapr's names for how its Redis client behaves. Ours does not retry: a lost reply is read back."""


def _redis(own: dict[str, str]) -> Settings:
    """Return Dapr's `lock.redis` metadata as our one URL."""
    _refuse_other_redis(own)
    for name in _REDIS_PASSED_OVER:
        own.pop(name, None)
    host = own.pop("redishost", "")
    user, password = own.pop("redisusername", ""), own.pop("redispassword", "")
    tls = own.pop("enabletls", "").lower() or "false"
    if tls not in ("true", "false"):
        raise ConfigInvalid(f"enableTLS is {tls!r}", hint="write true or false")
    database = own.pop("redisdb", "") or "0"
    if not database.isdecimal():
        raise ConfigInvalid(f"redisDB is {database!r}", hint="write the number of a database")
    if not host:
        return {}
    _check_address("redisHost", host)
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    scheme = "rediss" if tls == "true" else "redis"
    return {keys.REDIS_URL.key: f"{scheme}://{login}{host}/{database}"}


def _refuse_other_redis(own: Mapping[str, str]) -> None:
    """Refuse what Dapr's metadata may ask for and this provider cannot do."""
    if own.get("redistype", "") not in ("", "node"):
        raise ConfigInvalid(
            f"redisType is {own['redistype']!r}: a lock and its counter lie in different slots",
            hint="name one server, or a primary, and leave redisType out",
        )
    if own.get("failover", "").lower() not in ("", "false"):
        raise ConfigInvalid(
            "failover is set: sentinels are not asked",
            hint="name the primary, or a proxy before it",
        )


def _check_address(name: str, text: str) -> None:
    try:
        parts = urlsplit(f"//{text}")
        plain = parts.hostname and parts.netloc == text and (parts.port is None or parts.port > 0)
    except ValueError:
        plain = False
    if not plain or "@" in text or "," in text:
        raise ConfigInvalid(f"{name} is {text!r}", hint="write it as host:port")


def _bound(provider: str, settings: Mapping[str, object], key: str, ttl_ms: int) -> Settings:
    """Return the settings that bind a provider to one key, for at least `ttl_ms` after a crash.

    L13: a key becomes a digest wherever it would be part of a path. Redis keeps Dapr's names.
    """
    seconds = -(-ttl_ms // 1000)
    if provider == "redis":
        prefix, _, resource = key.rpartition(SEPARATOR)
        named = {keys.REDIS_PREFIX.key: prefix + SEPARATOR, keys.RESOURCE.key: resource}
        return {**named, keys.TTL_MS.key: ttl_ms}
    name = key_digest(key)
    match provider:
        case "storage":
            root = BASE_PATH.required(settings).rstrip("/")
            validity_s = max(10, seconds)
            return {
                BASE_PATH.key: f"{root}/{name}",
                VALIDITY_S.key: validity_s,
                RENEW_S.key: max(1, validity_s // 10),
            }
        case "filesystem":
            root = BASE_PATH.required(settings).rstrip("/")
            return {
                BASE_PATH.key: f"{root}/{name}",
                keys.FS_EXPIRE_MIN.key: max(1, -(-seconds // 60)),
            }
        case "zookeeper":
            session_ms = int(str(settings.get(keys.ZK_SESSION_MS.key, 0)) or 0)
            return {
                keys.RESOURCE.key: name,
                keys.ZK_SESSION_MS.key: max(session_ms, ttl_ms, 4_000),
            }
        case "dynamodb":
            # Hudi's provider takes the waiting time for the lease.
            return {keys.RESOURCE.key: name, WAIT_TIME_MS.key: max(ttl_ms, 5_000)}
        case "hive":
            return {keys.RESOURCE.key: f"tidelock.{name}"}
        case "statestore":
            # A component has no table whose folder could be the place.
            url = keys.STATE_URL.required(settings)
            return {keys.STATE_URL.key: url, keys.RESOURCE.key: name, keys.TTL_MS.key: ttl_ms}
        case _:
            return {keys.RESOURCE.key: name, keys.TTL_MS.key: ttl_ms}
