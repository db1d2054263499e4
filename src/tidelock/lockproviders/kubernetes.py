"""Kubernetes: a `coordination.k8s.io/v1` Lease, as client-go's leader election writes it.

`holderIdentity`, `leaseDurationSeconds`, `acquireTime`, `renewTime`, `leaseTransitions`, replaced
on condition of `resourceVersion`. The times are for people: only a change of the record, seen on
the watcher's own clock, counts. Every holding has an identity of its own, so `leaseTransitions`
grows with each and is the fencing token, for as long as nobody deletes the Lease.
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

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import ConfigInvalid, DataCorrupt
from tidelock.base.metrics import Metrics
from tidelock.lock.provider import Features
from tidelock.lockproviders import keys
from tidelock.lockproviders.backend import Terms, Unclear
from tidelock.lockproviders.jsonservice import JsonService, checked_origin, request_timeout_ms
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace
from tidelock.lockproviders.versioned import Entry, Refused, VersionedBackend

FEATURES = Features(blocking_wait=True, fencing_token=True, force_release=True)
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_GROUP = "coordination.k8s.io/v1"
_NAME_MAX = 63
_CONFLICT = 409
_NOT_FOUND = 404


class LeaseRegister:
    """One Lease object of one API server."""

    def __init__(
        self,
        origin: str,
        namespace: str,
        name: str,
        terms: Terms,
        *,
        token_file: Path | None = None,
        ca_file: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Ask nothing yet."""
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

    def read(self) -> Entry | None:
        """Read the Lease."""
        reply = self._service.ask("GET", f"{self._leases}/{self._name}")
        if reply.status == _NOT_FOUND and reply.body.get("kind") == "Status":
            return None
        if not reply.ok:
            raise self._service.refusal(reply, f"reading the Lease {self._name}")
        return self._entry(reply.body)

    def write(self, entry: Entry, over: Entry | None) -> Entry | Refused | Unclear:
        """Create the Lease, or update the version that was read."""
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if over is not None:
            metadata["resourceVersion"] = over.version
        lease = {
            "apiVersion": _GROUP,
            "kind": "Lease",
            "metadata": metadata,
            "spec": self._spec(entry),
        }
        if over is None:
            reply = self._service.tell("POST", self._leases, lease)
        else:
            reply = self._service.tell("PUT", f"{self._leases}/{self._name}", lease)
        if isinstance(reply, Unclear):
            return reply
        if reply.status == _CONFLICT or (reply.status == _NOT_FOUND and over is not None):
            return Refused()
        if not reply.ok:
            raise self._service.refusal(reply, f"writing the Lease {self._name}")
        return replace(entry, version=self._entry(reply.body).version)

    def draw_token(self, entry: Entry) -> int:
        """Return how often the Lease has changed hands."""
        return entry.token

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _spec(self, entry: Entry) -> dict[str, Any]:
        now_ms = self._clock.now().wall_epoch_ms
        if not entry.holder:
            # As client-go releases: nobody, for a second, from now on.
            moment = _micro_time(now_ms)
            return {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "acquireTime": moment,
                "renewTime": moment,
                "leaseTransitions": entry.token,
            }
        return {
            "holderIdentity": entry.holder,
            "leaseDurationSeconds": -(-entry.duration_ms // 1000),
            "acquireTime": _micro_time(entry.since_epoch_ms or now_ms),
            "renewTime": _micro_time(now_ms),
            "leaseTransitions": entry.token,
        }

    def _entry(self, lease: Mapping[str, Any]) -> Entry:
        spec = lease.get("spec") or {}
        try:
            version = str(lease["metadata"]["resourceVersion"])
            duration_ms = int(spec.get("leaseDurationSeconds") or 1) * 1000
            token = int(spec.get("leaseTransitions") or 0)
        except (KeyError, TypeError, ValueError) as error:
            raise DataCorrupt(f"{self.uri} is not a Lease: {error}") from error
        acquired = str(spec.get("acquireTime") or "")
        holder = str(spec.get("holderIdentity") or "")
        return Entry(holder, duration_ms, token, version, _epoch_ms(acquired))

    def _authorize(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        del method, path, body
        if self._token_file is not None:
            # The kubelet rotates it, so it is read each time.
            headers["authorization"] = f"Bearer {self._token_file.read_text().strip()}"


class KubernetesLockProvider(LeasedProvider):
    """A Lease named after the resource, in the cluster this pod runs in or at a URL."""

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read and check the settings; touch nothing."""
        terms = keys.ttl_terms(settings)
        in_pod = keys.K8S_URL.value(settings) is None
        token_file = keys.K8S_TOKEN_FILE.value(settings)
        ca_file = keys.K8S_CA_FILE.value(settings)
        if in_pod:
            token_file = token_file or str(_ACCOUNT / "token")
            ca_file = ca_file or str(_ACCOUNT / "ca.crt")
        register = LeaseRegister(
            checked_origin(keys.K8S_URL.value(settings) or _cluster_url(), keys.K8S_URL.key),
            _namespace(settings, in_pod=in_pod),
            lease_name(keys.resource_name(settings)),
            terms,
            token_file=Path(token_file) if token_file else None,
            ca_file=ca_file,
        )
        backend = VersionedBackend(register, terms, FEATURES)
        pace = Pace.read(settings)
        super().__init__(backend, pace=pace, metrics=metrics, bind_thread=bind_thread)


def lease_name(resource: str) -> str:
    """Return the resource if it may name an object, else a readable part of it and its hash."""
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
            f"{keys.K8S_URL.key} is not set, and this is not a pod of a cluster",
            hint=f"run `kubectl proxy` and set {keys.K8S_URL.key} to its address",
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _namespace(settings: Mapping[str, object], *, in_pod: bool) -> str:
    named = keys.K8S_NAMESPACE.value(settings)
    mounted = _ACCOUNT / "namespace"
    if named is None and in_pod and mounted.is_file():
        named = mounted.read_text().strip()
    namespace = named or "default"
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", namespace):
        raise ConfigInvalid(f"{keys.K8S_NAMESPACE.key} = {namespace!r} is not a namespace")
    return namespace


def _micro_time(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _epoch_ms(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None
