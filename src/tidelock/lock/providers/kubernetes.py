"""Lock provider for Kubernetes: a Lease, as written by the leader election of client-go.

The fields are `holderIdentity`, `leaseDurationSeconds`, `acquireTime`, `renewTime` and
`leaseTransitions`; updates are conditional on `resourceVersion`. The times are informative: only a
change of the record, timed by the observer's clock, counts. Each holding has its own identity, so
`leaseTransitions` increases with each. It is the fencing token, until the Lease is deleted.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidelock.core.clock import Clock
from tidelock.core.errors import ConfigInvalid, DataCorrupt
from tidelock.core.system import SystemClock
from tidelock.lock.providers import config
from tidelock.lock.providers.backend import Backend, BackendUnclear, LeaseTerms
from tidelock.lock.providers.json_api import JsonService, checked_origin, request_timeout_ms
from tidelock.lock.providers.leased import ConfiguredProvider
from tidelock.lock.providers.versioned import RecordEntry, ReplaceRefused, VersionedBackend

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_GROUP = "coordination.k8s.io/v1"
_NAME_MAX = 63
_CONFLICT = 409
_NOT_FOUND = 404


class LeaseRegister:
    """One Lease object."""

    def __init__(
        self,
        origin: str,
        namespace: str,
        name: str,
        terms: LeaseTerms,
        *,
        token_file: Path | None = None,
        ca_file: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._token_file = token_file
        self._service = JsonService(
            origin,
            clock=self._clock,
            timeout_ms=request_timeout_ms(terms),
            credentials=self._authorize,
            ca_file=ca_file,
        )
        self._leases = f"/apis/{_GROUP}/namespaces/{namespace}/leases"
        self._namespace = namespace
        self._name = name
        self.uri = f"{origin}{self._leases}/{name}"

    def read(self) -> RecordEntry | None:
        reply = self._service.query("GET", f"{self._leases}/{self._name}")
        if reply.status == _NOT_FOUND and reply.body.get("kind") == "Status":
            return None
        if not reply.ok:
            raise self._service.error(reply, f"reading the Lease {self._name}")
        return self._entry(reply.body)

    def write(
        self, entry: RecordEntry, expected: RecordEntry | None
    ) -> RecordEntry | ReplaceRefused | BackendUnclear:
        """Create the Lease, or update the version that was read."""
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if expected is not None:
            metadata["resourceVersion"] = expected.version
        lease = {
            "apiVersion": _GROUP,
            "kind": "Lease",
            "metadata": metadata,
            "spec": self._spec(entry),
        }
        if expected is None:
            reply = self._service.send("POST", self._leases, lease)
        else:
            reply = self._service.send("PUT", f"{self._leases}/{self._name}", lease)
        if isinstance(reply, BackendUnclear):
            return reply
        if reply.status == _CONFLICT or (reply.status == _NOT_FOUND and expected is not None):
            return ReplaceRefused()
        if not reply.ok:
            raise self._service.error(reply, f"writing the Lease {self._name}")
        return replace(entry, version=self._entry(reply.body).version)

    def next_token(self, entry: RecordEntry) -> int:
        """Return the number of transitions."""
        return entry.token

    def close(self) -> None:
        self._service.close()

    def _spec(self, entry: RecordEntry) -> dict[str, Any]:
        now_ms = self._clock.now().wall_epoch_ms
        duration_ms, since_ms = entry.duration_ms, entry.since_epoch_ms or now_ms
        if not entry.holder:
            # As client-go does: no holder, for one second from now.
            duration_ms, since_ms = 1_000, now_ms
        return {
            "holderIdentity": entry.holder,
            "leaseDurationSeconds": -(-duration_ms // 1000),
            "acquireTime": _micro_time(since_ms),
            "renewTime": _micro_time(now_ms),
            "leaseTransitions": entry.token,
        }

    def _entry(self, lease: Mapping[str, Any]) -> RecordEntry:
        spec = lease.get("spec") or {}
        try:
            version = str(lease["metadata"]["resourceVersion"])
            duration_ms = int(spec.get("leaseDurationSeconds") or 1) * 1000
            token = int(spec.get("leaseTransitions") or 0)
        except (KeyError, TypeError, ValueError) as error:
            raise DataCorrupt(f"{self.uri}: expected a Lease: {error}") from error
        acquired = str(spec.get("acquireTime") or "")
        holder = str(spec.get("holderIdentity") or "")
        return RecordEntry(holder, duration_ms, token, version, _epoch_ms(acquired))

    def _authorize(self, _method: str, _path: str, headers: dict[str, str], _body: bytes) -> None:
        if self._token_file is not None:
            # Read for each request: the kubelet rotates the token.
            headers["authorization"] = f"Bearer {self._token_file.read_text().strip()}"


class KubernetesLockProvider(ConfiguredProvider):
    """A Lease named after the resource, in the cluster of this pod or at a URL."""

    def open_backend(self, settings: Mapping[str, object]) -> Backend:
        terms = config.ttl_terms(settings)
        in_pod = config.K8S_URL.value(settings) is None
        token_file = config.K8S_TOKEN_FILE.value(settings)
        ca_file = config.K8S_CA_FILE.value(settings)
        if in_pod:
            token_file = token_file or str(_ACCOUNT / "token")
            ca_file = ca_file or str(_ACCOUNT / "ca.crt")
        register = LeaseRegister(
            checked_origin(config.K8S_URL.value(settings) or _cluster_url(), config.K8S_URL.key),
            _namespace(settings, in_pod=in_pod),
            lease_name(config.resource_name(settings)),
            terms,
            token_file=Path(token_file) if token_file else None,
            ca_file=ca_file,
        )
        return VersionedBackend(register, terms)


def lease_name(resource: str) -> str:
    """Return the resource if it is a valid object name, else a readable part and a hash."""
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", resource) and len(resource) <= _NAME_MAX:
        return resource
    digest = hashlib.sha256(resource.encode()).hexdigest()[:20]
    readable = re.sub(r"[^a-z0-9]+", "-", resource.lower()).strip("-")[-30:].strip("-")
    return f"{readable}-{digest}" if readable else f"lock-{digest}"


def _cluster_url() -> str:
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigInvalid(
            f"{config.K8S_URL.key} is not set, and this process does not run in a pod",
            hint=f"run `kubectl proxy` and set {config.K8S_URL.key} to its address",
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _namespace(settings: Mapping[str, object], *, in_pod: bool) -> str:
    named = config.K8S_NAMESPACE.value(settings)
    mounted = _ACCOUNT / "namespace"
    if named is None and in_pod and mounted.is_file():
        named = mounted.read_text().strip()
    namespace = named or "default"
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", namespace):
        raise ConfigInvalid(
            f"{config.K8S_NAMESPACE.key}: expected a namespace, got {namespace!r}",
            hint="use up to 63 lowercase letters, digits and hyphens",
        )
    return namespace


def _micro_time(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _epoch_ms(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None
