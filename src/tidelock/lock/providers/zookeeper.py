"""Lock provider for ZooKeeper: nodes of Curator's `InterProcessMutex`, as in Hudi's provider.

An attempt is an ephemeral node `_c_<uuid>-lock-<10 digits>` under the path of the lock. The node
with the smallest number holds the lock; each of the others watches the one before it. The zxid of
the creation of the node is the fencing token: it increases in queue order.
A renewal asks the leader whether the node exists. The reply proves that the session was alive after
the request was sent, which the pings of the client library do not prove.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tidelock.core.errors import ConfigInvalid, PermissionDenied, StoreUnreachable, needs_extra
from tidelock.core.threads import start_thread
from tidelock.lock.config import BASE_PATH, TABLE_NAME
from tidelock.lock.provider import Features, Holder
from tidelock.lock.providers import backend as b
from tidelock.lock.providers import config
from tidelock.lock.providers.leased import ConfiguredProvider
from tidelock.lock.providers.path_hash import hash_of_base_path

logger = logging.getLogger(__name__)

_LOCK_INFIX = "lock-"
_RENEWALS = 10
_PORT = 2181


class ZookeeperBackend:
    """One lock path in one ensemble, with one session."""

    features = Features(
        blocking_wait=True, fencing_token=True, fair_queue=True, force_release=True, watch=True
    )

    def __init__(
        self, hosts: str, path: str, *, session_ms: int, connect_ms: int, application: str
    ) -> None:
        """Load the client library; does not connect yet. Raises: `MissingExtra`."""
        with needs_extra("the ZooKeeper lock needs kazoo", "zookeeper"):
            import kazoo.client
            import kazoo.exceptions
            import kazoo.handlers.threading
            import kazoo.retry
        self._kazoo = kazoo
        errors = kazoo.exceptions
        self._no_answer = (
            errors.ConnectionLoss,
            errors.SessionExpiredError,
            errors.OperationTimeoutError,
            errors.ConnectionClosedError,
            errors.CancelledError,
            kazoo.handlers.threading.KazooTimeoutError,
        )
        self._denied = (errors.NoAuthError, errors.AuthFailedError)
        self.uri = f"zookeeper://{hosts.partition('/')[0]}{path}"
        self.terms = _terms(session_ms)
        self._hosts = hosts
        self._path = path
        self._session_ms = session_ms
        self._connect_s = connect_ms / 1000
        self._data = f"application_id={application}".encode()
        self._client: Any = None
        self._connecting = threading.Lock()
        self._nodes: dict[str, str] = {}

    def try_acquire(self, attempt: b.Attempt) -> b.AcquireReply:
        """Join the queue, and check whether our node is the first."""
        client = self._connected()
        if attempt.id not in self._nodes:
            prefix = f"{self._path}/_c_{attempt.id}-{_LOCK_INFIX}"
            try:
                self._nodes[attempt.id] = self._get(
                    client.create_async(prefix, self._data, ephemeral=True, sequence=True)
                )
            except self._no_answer as error:
                return _unclear(error)
        node = self._nodes[attempt.id]
        try:
            queue = self._queue(client)
            name = node.rpartition("/")[2]
            if name not in queue:
                # The session ended while waiting, and the queued node with it.
                self._nodes.pop(attempt.id, None)
                return b.HeldByOther(queued=True)
            position = queue.index(name)
            if position > 0:
                return self._watch(client, queue[0], queue[position - 1])
            stat = self._get(client.exists_async(node))
        except self._no_answer as error:
            return _unclear(error)
        if stat is None:
            self._nodes.pop(attempt.id, None)
            return b.HeldByOther(queued=True)
        return b.BackendAcquired(b.BackendGrant(attempt, node, stat.czxid))

    def cancel(self, attempt: b.Attempt) -> bool:
        """Delete the node of the attempt, whatever its sequence number."""
        self._nodes.pop(attempt.id, None)
        client = self._connected()
        try:
            own = [name for name in self._queue(client) if name.startswith(f"_c_{attempt.id}-")]
            for name in own:
                self._delete(client, f"{self._path}/{name}")
        except self._no_answer as error:
            raise self._unreachable(error) from error
        return bool(own)

    def renew(self, grant: b.BackendGrant) -> b.RenewReply:
        """Check with the leader that the node, and so our session, exists."""
        client = self._client
        if client is None:
            return b.GrantLost("its session was closed")
        checked = client.transaction()
        checked.check(grant.handle, -1)
        try:
            (result,) = self._get(checked.commit_async())
        except self._kazoo.exceptions.SessionExpiredError:
            return b.GrantLost("its session has expired")
        except self._no_answer as error:
            return _unclear(error)
        if isinstance(result, Exception):
            return b.GrantLost("its node was deleted, or its session has expired")
        return b.RenewedLease(grant)

    def release(self, grant: b.BackendGrant) -> b.ReleaseReply:
        """Delete the node."""
        client = self._client
        if client is None:
            return b.GrantLost("its session was closed")
        try:
            deleted = self._delete(client, grant.handle)
        except self._no_answer as error:
            return _unclear(error)
        self._nodes.pop(grant.attempt.id, None)
        return (
            b.GrantReleased()
            if deleted
            else b.GrantLost("its node was deleted, or its session has expired")
        )

    def abandon(self, grant: b.BackendGrant) -> None:
        """End the session: the client library would keep it, and the node, alive for ever."""
        self._nodes.pop(grant.attempt.id, None)
        client, self._client = self._client, None
        if client is not None:
            start_thread("tidelock-zookeeper-end", lambda: _stop(client))

    def holder(self) -> Holder | None:
        client = self._connected()
        try:
            queue = self._queue(client)
            if not queue:
                return None
            data, stat = self._get(client.get_async(f"{self._path}/{queue[0]}"))
        except self._kazoo.exceptions.NoNodeError:
            return None
        except self._no_answer as error:
            raise self._unreachable(error) from error
        owner = f"{queue[0]} {data.decode(errors='replace')}".strip()
        return Holder(owner, stat.czxid, stat.ctime, waiters=len(queue) - 1)

    def force_release(self) -> bool:
        """Delete the node at the head of the queue."""
        client = self._connected()
        try:
            queue = self._queue(client)
            return bool(queue) and self._delete(client, f"{self._path}/{queue[0]}")
        except self._no_answer as error:
            raise self._unreachable(error) from error

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            _stop(client)

    def _queue(self, client: Any) -> list[str]:
        """Return the nodes in Curator's order: by the part of the name after the last `lock-`."""
        try:
            names = self._get(client.get_children_async(self._path))
        except self._kazoo.exceptions.NoNodeError:
            return []
        return sorted(names, key=lambda name: name.rpartition(_LOCK_INFIX)[2])

    def _watch(self, client: Any, first: str, before: str) -> b.HeldByOther:
        """Watch the node before ours; its deletion wakes only this client."""
        changed = threading.Event()
        path = f"{self._path}/{before}"
        if self._get(client.exists_async(path, watch=lambda _event: changed.set())) is None:
            changed.set()
        return b.HeldByOther(first, queued=True, changed=changed)

    def _delete(self, client: Any, path: str) -> bool:
        try:
            self._get(client.delete_async(path))
        except self._kazoo.exceptions.NoNodeError:
            return False
        return True

    def _get(self, pending: Any) -> Any:
        assert self.terms.validity_ms is not None
        try:
            return pending.get(timeout=self.terms.validity_ms / 3_000)
        except self._denied as error:
            raise PermissionDenied(
                f"{self.uri}: ZooKeeper denied access",
                hint="check the access control list of this node",
            ) from error

    def _connected(self) -> Any:
        """Return the client with a session; connect if there is none."""
        with self._connecting:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> Any:
        # Reconnect without limit, as long as the session is in use.
        endless = self._kazoo.retry.KazooRetry(max_tries=-1, delay=0.05, max_delay=2.0)
        client = self._kazoo.client.KazooClient(
            hosts=self._hosts,
            timeout=self._session_ms / 1000,
            connection_retry=endless,
            logger=_client_logger,
        )
        negotiated = threading.Event()

        def on_negotiated(timeout_ms: float) -> None:
            self.terms = _terms(min(self._session_ms, int(timeout_ms)))
            negotiated.set()

        _on_session_timeout(client, on_negotiated)
        try:
            client.start(timeout=self._connect_s)
            negotiated.wait(self._connect_s)
            client.ensure_path_async(self._path).get(timeout=self._connect_s)
        except self._no_answer as error:
            _stop(client)
            raise self._unreachable(error) from error
        return client

    def _unreachable(self, error: Exception) -> StoreUnreachable:
        return _unclear(error).error(self.uri, hint=f"check {config.ZK_URL.key} and the network")


class ZookeeperLockProvider(ConfiguredProvider):
    """Hudi's `ZookeeperBasedLockProvider`: the path is `…base_path` and `…lock_key`."""

    def open_backend(self, settings: Mapping[str, object]) -> b.Backend:
        return ZookeeperBackend(
            _hosts(settings),
            self.path_of(settings),
            session_ms=config.ZK_SESSION_MS.required(settings),
            connect_ms=config.ZK_CONNECT_MS.required(settings),
            application=config.APPLICATION_ID.required(settings),
        )

    @staticmethod
    def path_of(settings: Mapping[str, object]) -> str:
        """Return the path of the lock. Raises: `ConfigInvalid`, as in Hudi."""
        base = config.ZK_BASE_PATH.required(settings).strip("/")
        name = config.first_set(settings, config.RESOURCE, config.ZK_LOCK_KEY, TABLE_NAME)
        name = (name or config.ZK_LOCK_KEY.required(settings)).strip("/")
        path = f"/{base}/{name}" if base else f"/{name}"
        if any(part in ("", ".", "..") for part in path[1:].split("/")) or "\0" in path:
            raise ConfigInvalid(
                f"expected a ZooKeeper path, got {path!r}",
                hint=f"check {config.ZK_BASE_PATH.key} and {config.ZK_LOCK_KEY.key}",
            )
        return path


class ImplicitPathZookeeperLockProvider(ZookeeperLockProvider):
    """Hudi's `ZookeeperBasedImplicitBasePathLockProvider`: the path is a hash of the base path."""

    @staticmethod
    def path_of(settings: Mapping[str, object]) -> str:
        """Return the path with the hash of the base path."""
        return f"/tmp/{hash_of_base_path(BASE_PATH.required(settings))}/lock_key"  # noqa: S108 - a node


def _hosts(settings: Mapping[str, object]) -> str:
    hosts, _, chroot = config.ZK_URL.required(settings).partition("/")
    port = config.ZK_PORT.value(settings) or _PORT
    named = [host.strip() for host in hosts.split(",") if host.strip()]
    if not named:
        raise ConfigInvalid(
            f"{config.ZK_URL.key}: expected at least one host", hint="use zk1:2181,zk2:2181"
        )
    joined = ",".join(host if ":" in host else f"{host}:{port}" for host in named)
    return f"{joined}/{chroot}" if chroot else joined


def _unclear(error: Exception) -> b.BackendUnclear:
    return b.BackendUnclear(f"no answer: {type(error).__name__}")


def _terms(session_ms: int) -> b.LeaseTerms:
    return b.LeaseTerms(session_ms, max(1, session_ms // _RENEWALS))


def _on_session_timeout(client: Any, callback: Callable[[float], None]) -> None:
    """Call `callback` with the session timeout of the server, which may be shorter than requested.

    kazoo only logs it. Its connection returns the read timeout, which is two thirds of it.
    """
    connection = client._connection  # noqa: SLF001 - there is no public way to the number
    connect = connection._connect  # noqa: SLF001

    def connect_and_report(*arguments: Any) -> Any:
        timeouts = connect(*arguments)
        callback(timeouts[0] * 3 / 2)
        return timeouts

    connection._connect = connect_and_report  # noqa: SLF001


def _stop(client: Any) -> None:
    try:
        client.stop()
        client.close()
    except Exception:
        logger.exception("a ZooKeeper session could not be closed")


_client_logger = logging.getLogger("tidelock.zookeeper.client")
_client_logger.setLevel(logging.CRITICAL)
