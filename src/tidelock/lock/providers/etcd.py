"""Lock provider for etcd: leases and the key layout of its `v3lock` API, over the JSON gateway.

An attempt is the key `<name>/<lease id in hex>`, attached to its own lease. The oldest key under
the name holds the lock; the others are queued in the order of their creation. The creation revision
is the fencing token. `etcdctl lock` and `/v3/lock/lock` use the same keys and the same queue.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from tidelock.core.clock import Clock
from tidelock.core.errors import StoreUnreachable
from tidelock.core.system import SystemClock
from tidelock.lock.provider import Features, Holder
from tidelock.lock.providers import backend as b
from tidelock.lock.providers import config
from tidelock.lock.providers.json_api import (
    JsonReply,
    JsonService,
    checked_origin,
    request_timeout_ms,
)
from tidelock.lock.providers.leased import ConfiguredProvider

_NOT_FOUND = 404
_WAITER_RENEWALS = 3


class EtcdBackend:
    """One lock name in one etcd cluster."""

    features = Features(blocking_wait=True, fencing_token=True, fair_queue=True, force_release=True)

    def __init__(
        self,
        url: str,
        name: str,
        terms: b.LeaseTerms,
        *,
        login: tuple[str, str] | None = None,
        ca_file: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        assert terms.validity_ms is not None
        # As in etcdctl, host and port alone mean no TLS, unless a CA file is given.
        origin = checked_origin(
            url, config.ETCD_URL.key, scheme="http" if ca_file is None else "https"
        )
        self.uri = f"{origin}/{name}"
        self.terms = terms
        self._clock = clock or SystemClock()
        self._service = JsonService(
            origin,
            clock=self._clock,
            timeout_ms=request_timeout_ms(terms),
            credentials=self._authorize,
            ca_file=ca_file,
        )
        self._prefix = f"{name}/".encode()
        self._login = login
        self._auth_token = ""
        self._renewed_ms: dict[str, int] = {}

    def try_acquire(self, attempt: b.Attempt) -> b.AcquireReply:
        """Join the queue, and check whether our key is the first."""
        lease = _lease_of(attempt)
        now_ms = self._clock.now().monotonic_ms
        is_new = attempt.id not in self._renewed_ms
        if is_new:
            self._grant_lease(lease)
            self._renewed_ms[attempt.id] = now_ms
        key, value = self._key(lease), _b64(attempt.id.encode())
        reply = self._txn(
            {"target": "CREATE", "key": _b64(key), "create_revision": "0"},
            [{"request_put": {"key": _b64(key), "value": value, "lease": str(lease)}}],
            [{"request_range": self._queue_range(1)}, {"request_range": {"key": _b64(key)}}],
        )
        if isinstance(reply, b.BackendUnclear):
            return reply
        if "_missing" in reply:
            # The lease expired while waiting, and the queued key with it.
            self._renewed_ms.pop(attempt.id, None)
            return b.HeldByOther(queued=True)
        if reply.get("succeeded"):
            revision = int(reply["header"]["revision"])
            first = _first_of(self._query_range(self._queue_range(1)))
            is_new = True
        else:
            answers = reply["responses"]
            first = _first_of(answers[0]["response_range"])
            revision = int(_first_of(answers[1]["response_range"])["create_revision"])
        if _decoded(first["key"]) != key:
            return self._wait(
                attempt, lease, _decoded(first.get("value", "")).decode(errors="replace")
            )
        if not is_new and not self._keep_alive(lease):
            self._renewed_ms.pop(attempt.id, None)
            return b.HeldByOther(queued=True)
        self._renewed_ms.pop(attempt.id, None)
        return b.BackendAcquired(b.BackendGrant(attempt, str(lease), revision))

    def cancel(self, attempt: b.Attempt) -> bool:
        """Revoke the lease of the attempt, which deletes its key."""
        self._renewed_ms.pop(attempt.id, None)
        reply = self._service.send("POST", "/v3/lease/revoke", {"ID": str(_lease_of(attempt))})
        if isinstance(reply, b.BackendUnclear):
            raise reply.error(self.uri)
        return reply.ok

    def renew(self, grant: b.BackendGrant) -> b.RenewReply:
        """Keep the lease alive, and check that the key exists."""
        try:
            alive = self._keep_alive(int(grant.handle))
            found = self._query_range({"key": _b64(self._key(int(grant.handle)))})
        except StoreUnreachable as error:
            return b.BackendUnclear(str(error))
        if not alive:
            return b.GrantLost("its lease has expired or was revoked")
        kvs = found.get("kvs") or []
        if not kvs or int(kvs[0]["create_revision"]) != grant.token:
            return b.GrantLost("its key was deleted")
        return b.RenewedLease(grant)

    def release(self, grant: b.BackendGrant) -> b.ReleaseReply:
        """Delete the key that we created, and its lease."""
        key = self._key(int(grant.handle))
        reply = self._delete(_b64(key), str(grant.token))
        if isinstance(reply, b.BackendUnclear):
            return reply
        # The lease alone blocks nobody; if this fails, it expires.
        self._service.send("POST", "/v3/lease/revoke", {"ID": grant.handle})
        return b.GrantReleased() if reply.get("succeeded") else b.GrantLost("its key was deleted")

    def abandon(self, grant: b.BackendGrant) -> None:
        """Let the lease expire."""

    def holder(self) -> Holder | None:
        found = self._query_range(self._queue_range(0))
        queue = found.get("kvs") or []
        if not queue:
            return None
        owner = _decoded(queue[0].get("value", "")).decode(errors="replace")
        key = _decoded(queue[0]["key"]).decode(errors="replace")
        return Holder(
            owner or key, token=int(queue[0]["create_revision"]), waiters=int(found["count"]) - 1
        )

    def force_release(self) -> bool:
        """Delete the key at the head of the queue."""
        found = self._query_range(self._queue_range(1)).get("kvs") or []
        if not found:
            return False
        reply = self._delete(found[0]["key"], found[0]["create_revision"])
        if isinstance(reply, b.BackendUnclear):
            raise reply.error(self.uri, hint="check the holder again")
        return bool(reply.get("succeeded"))

    def close(self) -> None:
        self._service.close()

    def _wait(self, attempt: b.Attempt, lease: int, owner: str) -> b.AcquireReply:
        """Keep the queued key alive."""
        assert self.terms.validity_ms is not None
        now_ms = self._clock.now().monotonic_ms
        share_ms = self.terms.validity_ms / _WAITER_RENEWALS
        if now_ms - self._renewed_ms.get(attempt.id, 0) > share_ms:
            if self._keep_alive(lease):
                self._renewed_ms[attempt.id] = now_ms
            else:
                self._renewed_ms.pop(attempt.id, None)
        return b.HeldByOther(owner, queued=True)

    def _grant_lease(self, lease: int) -> None:
        assert self.terms.validity_ms is not None
        ttl_s = -(-self.terms.validity_ms // 1000)
        body = {"TTL": str(ttl_s), "ID": str(lease)}
        reply = self._service.send("POST", "/v3/lease/grant", body)
        if isinstance(reply, b.BackendUnclear):
            raise reply.error(self.uri)
        # The id is unique: a lease that exists is ours, from a request whose reply was lost.
        if not reply.ok and "already exists" not in _error_text(reply):
            raise self._service.error(reply, "granting a lease")

    def _keep_alive(self, lease: int) -> bool:
        reply = self._service.query("POST", "/v3/lease/keepalive", {"ID": str(lease)})
        if not reply.ok:
            raise self._service.error(reply, "keeping a lease alive")
        return int(reply.body.get("result", {}).get("TTL", 0)) > 0

    def _txn(
        self, compare: dict[str, Any], success: list[Any], failure: list[Any]
    ) -> Mapping[str, Any] | b.BackendUnclear:
        body = {"compare": [{"result": "EQUAL", **compare}], "success": success, "failure": failure}
        reply = self._service.send("POST", "/v3/kv/txn", body)
        if isinstance(reply, b.BackendUnclear):
            return reply
        if reply.status == _NOT_FOUND or "requested lease not found" in _error_text(reply):
            return {"_missing": True}
        if not reply.ok:
            raise self._service.error(reply, "a transaction")
        return reply.body

    def _delete(self, key: str, create_revision: str) -> Mapping[str, Any] | b.BackendUnclear:
        compare = {"target": "CREATE", "key": key, "create_revision": create_revision}
        return self._txn(compare, [{"request_delete_range": {"key": key}}], [])

    def _queue_range(self, limit: int) -> dict[str, Any]:
        return {
            "key": _b64(self._prefix),
            "range_end": _b64(self._prefix[:-1] + bytes([self._prefix[-1] + 1])),
            "sort_order": "ASCEND",
            "sort_target": "CREATE",
            "limit": str(limit),
        }

    def _query_range(self, body: dict[str, Any]) -> Mapping[str, Any]:
        reply = self._service.query("POST", "/v3/kv/range", body)
        if not reply.ok:
            raise self._service.error(reply, "reading the queue")
        return reply.body

    def _key(self, lease: int) -> bytes:
        return self._prefix + f"{lease:x}".encode()

    def _authorize(self, _method: str, path: str, headers: dict[str, str], _body: bytes) -> None:
        if self._login is None or path == "/v3/auth/authenticate":
            return
        if not self._auth_token:
            name, password = self._login
            reply = self._service.query(
                "POST", "/v3/auth/authenticate", {"name": name, "password": password}
            )
            if not reply.ok:
                raise self._service.error(reply, "logging in")
            self._auth_token = str(reply.body["token"])
        headers["authorization"] = self._auth_token


class EtcdLockProvider(ConfiguredProvider):
    """A lock at `tidelock.etcd.url`, compatible with `etcdctl lock`."""

    def open_backend(self, settings: Mapping[str, object]) -> b.Backend:
        user = config.ETCD_USER.value(settings)
        return EtcdBackend(
            config.ETCD_URL.required(settings),
            config.ETCD_PREFIX.required(settings) + config.resource_name(settings),
            config.ttl_terms(settings),
            login=(user, config.ETCD_PASSWORD.required(settings)) if user else None,
            ca_file=config.ETCD_CA_FILE.value(settings),
        )


def _lease_of(attempt: b.Attempt) -> int:
    """Derive the lease id from the attempt, so that the lease is known after a lost reply."""
    return int(attempt.id.replace("-", "")[:16], 16) >> 1 or 1


def _error_text(reply: JsonReply) -> str:
    return str(reply.body.get("message", reply.body.get("error", "")))


def _first_of(found: Mapping[str, Any]) -> Mapping[str, Any]:
    kvs = found.get("kvs") or [{"key": "", "value": "", "create_revision": "0"}]
    first: Mapping[str, Any] = kvs[0]
    return first


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decoded(encoded: str) -> bytes:
    return base64.b64decode(encoded)
