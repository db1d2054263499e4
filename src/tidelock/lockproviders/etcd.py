"""etcd: leases, and the key layout of its own lock API (`v3lock`), through its JSON gateway.

An attempt is the key `<name>/<lease id in hex>` under a lease of its own. The oldest key below the
name holds the lock; the others wait in line, in the order of their creation. That revision is the
fencing token. `etcdctl lock` and `/v3/lock/lock` do the same and wait in the same line.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import StoreUnreachable
from tidelock.base.metrics import Metrics
from tidelock.lock.provider import Features, Holder
from tidelock.lockproviders import keys
from tidelock.lockproviders.backend import (
    Attempt,
    Freed,
    Gone,
    Grant,
    Held,
    Kept,
    ReleaseReply,
    RenewReply,
    Taken,
    TakeReply,
    Terms,
    Unclear,
)
from tidelock.lockproviders.jsonservice import (
    JsonService,
    Said,
    checked_origin,
    request_timeout_ms,
)
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace

_NOT_FOUND = 404
_WAITER_RENEWALS = 3


class EtcdBackend:
    """One lock name of one etcd."""

    def __init__(
        self,
        url: str,
        name: str,
        terms: Terms,
        *,
        login: tuple[str, str] | None = None,
        ca_file: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Connect to nothing yet."""
        assert terms.validity_ms is not None
        # As etcdctl does: host and port alone are not TLS, unless an authority was named.
        origin = checked_origin(
            url, keys.ETCD_URL.key, scheme="http" if ca_file is None else "https"
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
        self._session = ""
        self._kept_ms: dict[str, int] = {}

    def features(self) -> Features:
        """Return what etcd can do."""
        return Features(blocking_wait=True, fencing_token=True, fair_queue=True, force_release=True)

    def take(self, attempt: Attempt) -> TakeReply:
        """Stand in line, and look whether we are the first."""
        lease = _lease_of(attempt)
        now_ms = self._clock.now().monotonic_ms
        began = attempt.id not in self._kept_ms
        if began:
            self._grant_lease(lease)
            self._kept_ms[attempt.id] = now_ms
        key = self._key(lease)
        reply = self._txn(
            {"target": "CREATE", "key": _b64(key), "create_revision": "0"},
            [
                {
                    "request_put": {
                        "key": _b64(key),
                        "value": _b64(attempt.id.encode()),
                        "lease": str(lease),
                    }
                }
            ],
            [self._range_first(), {"request_range": {"key": _b64(key)}}],
        )
        if isinstance(reply, Unclear):
            return reply
        if "_missing" in reply:
            # The lease ran out while we waited; the place in line went with it.
            self._kept_ms.pop(attempt.id, None)
            return Held(queued=True)
        if reply.get("succeeded"):
            revision = int(reply["header"]["revision"])
            first = self._first()
            began = True
        else:
            answers = reply["responses"]
            first = _first_of(answers[0]["response_range"])
            revision = int(_first_of(answers[1]["response_range"])["create_revision"])
        if _text(first["key"]) != key:
            return self._wait(
                attempt, lease, _text(first.get("value", "")).decode(errors="replace")
            )
        if not began and not self._keep_alive(lease):
            self._kept_ms.pop(attempt.id, None)
            return Held(queued=True)
        self._kept_ms.pop(attempt.id, None)
        return Taken(Grant(attempt, str(lease), revision))

    def leave(self, attempt: Attempt) -> bool:
        """Revoke the lease of the attempt; its key goes with it."""
        self._kept_ms.pop(attempt.id, None)
        reply = self._service.tell("POST", "/v3/lease/revoke", {"ID": str(_lease_of(attempt))})
        if isinstance(reply, Unclear):
            raise StoreUnreachable(f"{self.uri}: {reply.cause}", hint="try again")
        return reply.ok

    def renew(self, grant: Grant) -> RenewReply:
        """Keep the lease alive, and see that the key is still there."""
        try:
            alive = self._keep_alive(int(grant.handle))
            found = self._ask_range({"key": _b64(self._key(int(grant.handle)))})
        except StoreUnreachable as error:
            return Unclear(str(error))
        if not alive:
            return Gone("its lease has expired or was revoked")
        kvs = found.get("kvs") or []
        if not kvs or int(kvs[0]["create_revision"]) != grant.token:
            return Gone("its key was deleted")
        return Kept(grant)

    def release(self, grant: Grant) -> ReleaseReply:
        """Delete the very key we created, and its lease."""
        key = self._key(int(grant.handle))
        reply = self._txn(
            {"target": "CREATE", "key": _b64(key), "create_revision": str(grant.token)},
            [{"request_delete_range": {"key": _b64(key)}}],
            [],
        )
        if isinstance(reply, Unclear):
            return reply
        # The lease alone keeps nobody out; if this fails it ends by itself.
        self._service.tell("POST", "/v3/lease/revoke", {"ID": grant.handle})
        return Freed() if reply.get("succeeded") else Gone("its key was deleted")

    def forsake(self, grant: Grant) -> None:
        """Leave the lease to expire."""

    def holder(self) -> Holder | None:
        """Return the first in line."""
        found = self._ask_range(self._in_order(0))
        line = found.get("kvs") or []
        if not line:
            return None
        owner = _text(line[0].get("value", "")).decode(errors="replace")
        key = _text(line[0]["key"]).decode(errors="replace")
        return Holder(
            owner or key, token=int(line[0]["create_revision"]), waiters=int(found["count"]) - 1
        )

    def break_lock(self) -> bool:
        """Delete the key of the first in line."""
        found = self._ask_range(self._in_order(1)).get("kvs") or []
        if not found:
            return False
        first = found[0]
        reply = self._txn(
            {
                "target": "CREATE",
                "key": first["key"],
                "create_revision": first["create_revision"],
            },
            [{"request_delete_range": {"key": first["key"]}}],
            [],
        )
        if isinstance(reply, Unclear):
            raise StoreUnreachable(f"{self.uri}: {reply.cause}", hint="look again")
        return bool(reply.get("succeeded"))

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _wait(self, attempt: Attempt, lease: int, owner: str) -> TakeReply:
        """Keep the place in line alive."""
        assert self.terms.validity_ms is not None
        now_ms = self._clock.now().monotonic_ms
        share_ms = self.terms.validity_ms / _WAITER_RENEWALS
        if now_ms - self._kept_ms.get(attempt.id, 0) > share_ms:
            if not self._keep_alive(lease):
                self._kept_ms.pop(attempt.id, None)
                return Held(owner, queued=True)
            self._kept_ms[attempt.id] = now_ms
        return Held(owner, queued=True)

    def _grant_lease(self, lease: int) -> None:
        assert self.terms.validity_ms is not None
        ttl_s = -(-self.terms.validity_ms // 1000)
        reply = self._service.tell("POST", "/v3/lease/grant", {"TTL": str(ttl_s), "ID": str(lease)})
        if isinstance(reply, Unclear):
            # The id is ours alone: one that exists already was made by an answer we did not hear.
            raise StoreUnreachable(f"{self.uri}: {reply.cause}", hint="try again")
        exists = "already exists" in str(reply.body.get("message", reply.body.get("error", "")))
        if not reply.ok and not exists:
            raise self._service.refusal(reply, "granting a lease")

    def _keep_alive(self, lease: int) -> bool:
        reply = self._service.ask("POST", "/v3/lease/keepalive", {"ID": str(lease)})
        if not reply.ok:
            raise self._service.refusal(reply, "keeping a lease alive")
        return int(reply.body.get("result", {}).get("TTL", 0)) > 0

    def _txn(
        self, compare: dict[str, Any], success: list[Any], failure: list[Any]
    ) -> Mapping[str, Any] | Unclear:
        body = {
            "compare": [{"result": "EQUAL", **compare}],
            "success": success,
            "failure": failure,
        }
        reply = self._service.tell("POST", "/v3/kv/txn", body)
        if isinstance(reply, Unclear):
            return reply
        if reply.status == _NOT_FOUND or _says_no_lease(reply):
            return {"_missing": True}
        if not reply.ok:
            raise self._service.refusal(reply, "a transaction")
        return reply.body

    def _first(self) -> Mapping[str, Any]:
        found = self._ask_range(self._in_order(1)).get("kvs") or []
        return found[0] if found else {"key": "", "value": ""}

    def _in_order(self, limit: int) -> dict[str, Any]:
        return {
            "key": _b64(self._prefix),
            "range_end": _b64(self._prefix[:-1] + bytes([self._prefix[-1] + 1])),
            "sort_order": "ASCEND",
            "sort_target": "CREATE",
            "limit": str(limit),
        }

    def _range_first(self) -> dict[str, Any]:
        return {"request_range": self._in_order(1)}

    def _ask_range(self, body: dict[str, Any]) -> Mapping[str, Any]:
        reply = self._service.ask("POST", "/v3/kv/range", body)
        if not reply.ok:
            raise self._service.refusal(reply, "reading the line")
        return reply.body

    def _key(self, lease: int) -> bytes:
        return self._prefix + f"{lease:x}".encode()

    def _authorize(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        del method, body
        if self._login is None or path == "/v3/auth/authenticate":
            return
        if not self._session:
            name, password = self._login
            reply = self._service.ask(
                "POST", "/v3/auth/authenticate", {"name": name, "password": password}
            )
            if not reply.ok:
                raise self._service.refusal(reply, "logging in")
            self._session = str(reply.body["token"])
        headers["authorization"] = self._session


class EtcdLockProvider(LeasedProvider):
    """`tidelock.etcd.url` and a resource: a lock that `etcdctl lock` respects."""

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read and check the settings; touch nothing."""
        user = keys.ETCD_USER.value(settings)
        backend = EtcdBackend(
            keys.ETCD_URL.required(settings),
            keys.ETCD_PREFIX.required(settings) + keys.resource_name(settings),
            keys.ttl_terms(settings),
            login=(user, keys.ETCD_PASSWORD.required(settings)) if user else None,
            ca_file=keys.ETCD_CA_FILE.value(settings),
        )
        pace = Pace.read(settings)
        super().__init__(backend, pace=pace, metrics=metrics, bind_thread=bind_thread)


def _lease_of(attempt: Attempt) -> int:
    """Draw the lease's id from the attempt's, so that a lost reply leaves nothing nameless."""
    return int(attempt.id.replace("-", "")[:16], 16) >> 1 or 1


def _says_no_lease(reply: Said) -> bool:
    said = str(reply.body.get("message", reply.body.get("error", "")))
    return "requested lease not found" in said


def _first_of(found: Mapping[str, Any]) -> Mapping[str, Any]:
    kvs = found.get("kvs") or [{"key": "", "value": "", "create_revision": "0"}]
    first: Mapping[str, Any] = kvs[0]
    return first


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _text(encoded: str) -> bytes:
    return base64.b64decode(encoded)
