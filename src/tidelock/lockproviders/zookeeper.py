"""ZooKeeper: the nodes of Curator's `InterProcessMutex`, which Hudi's provider uses.

An attempt is an ephemeral node `_c_<uuid>-lock-<10 digits>` below the lock's path. The one with the
smallest number holds the lock; each of the others watches the one before it. The zxid that created
the node is the fencing token: it only grows, in the order of the line.
A renewal asks the leader whether the node is there. The answer proves that the session was alive
after the question was sent, which no ping of the client library tells us.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tidelock.base.errors import ConfigInvalid, MissingExtra, PermissionDenied, StoreUnreachable
from tidelock.base.metrics import Metrics
from tidelock.base.runtime import start_thread
from tidelock.lock.config import BASE_PATH
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
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace
from tidelock.lockproviders.pathhash import hash_of_base_path

logger = logging.getLogger(__name__)

_MARK = "lock-"
_RENEWALS = 10
_PORT = 2181


class ZookeeperBackend:
    """One lock path of one ensemble, by one session."""

    def __init__(
        self, hosts: str, path: str, *, session_ms: int, connect_ms: int, application: str
    ) -> None:
        """Load the client; connect to nothing yet.

        Raises: `MissingExtra`.
        """
        try:
            import kazoo.client
            import kazoo.exceptions
            import kazoo.handlers.threading
            import kazoo.retry
        except ImportError as error:
            raise MissingExtra(
                "the ZooKeeper lock needs kazoo", hint="pip install 'tidelock[zookeeper]'"
            ) from error
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

    def features(self) -> Features:
        """Return what ZooKeeper can do."""
        return Features(
            blocking_wait=True, fencing_token=True, fair_queue=True, force_release=True, watch=True
        )

    def take(self, attempt: Attempt) -> TakeReply:
        """Stand in line, and look whether we are the first."""
        client = self._connected()
        if attempt.id not in self._nodes:
            prefix = f"{self._path}/_c_{attempt.id}-{_MARK}"
            try:
                self._nodes[attempt.id] = self._get(
                    client.create_async(prefix, self._data, ephemeral=True, sequence=True)
                )
            except self._no_answer as error:
                return Unclear(f"no answer: {type(error).__name__}")
        node = self._nodes[attempt.id]
        try:
            line = self._line(client)
            name = node.rpartition("/")[2]
            if name not in line:
                # The session ended while we waited, and the place in line with it.
                self._nodes.pop(attempt.id, None)
                return Held(queued=True)
            place = line.index(name)
            if place > 0:
                return self._watched(client, line[0], line[place - 1])
            stat = self._get(client.exists_async(node))
        except self._no_answer as error:
            return Unclear(f"no answer: {type(error).__name__}")
        if stat is None:
            self._nodes.pop(attempt.id, None)
            return Held(queued=True)
        return Taken(Grant(attempt, node, stat.czxid))

    def leave(self, attempt: Attempt) -> bool:
        """Delete the node of the attempt, whatever its number is."""
        self._nodes.pop(attempt.id, None)
        client = self._connected()
        try:
            mine = [name for name in self._line(client) if name.startswith(f"_c_{attempt.id}-")]
            for name in mine:
                self._delete(client, f"{self._path}/{name}")
        except self._no_answer as error:
            raise self._unreachable(error) from error
        return bool(mine)

    def renew(self, grant: Grant) -> RenewReply:
        """Let the leader check that the node is there, and our session with it."""
        client = self._client
        if client is None:
            return Gone("its session was closed")
        checked = client.transaction()
        checked.check(grant.handle, -1)
        try:
            (result,) = self._get(checked.commit_async())
        except self._kazoo.exceptions.SessionExpiredError:
            return Gone("its session has expired")
        except self._no_answer as error:
            return Unclear(f"no answer: {type(error).__name__}")
        if isinstance(result, Exception):
            return Gone("its node was deleted, or its session has expired")
        return Kept(grant)

    def release(self, grant: Grant) -> ReleaseReply:
        """Delete the node."""
        client = self._client
        if client is None:
            return Gone("its session was closed")
        try:
            deleted = self._delete(client, grant.handle)
        except self._no_answer as error:
            return Unclear(f"no answer: {type(error).__name__}")
        self._nodes.pop(grant.attempt.id, None)
        return Freed() if deleted else Gone("its node was deleted, or its session has expired")

    def forsake(self, grant: Grant) -> None:
        """End the session: the client library would keep it, and so the node, alive for ever."""
        self._nodes.pop(grant.attempt.id, None)
        client, self._client = self._client, None
        if client is not None:
            start_thread("tidelock-zookeeper-end", lambda: _end(client))

    def holder(self) -> Holder | None:
        """Return the first in line."""
        client = self._connected()
        try:
            line = self._line(client)
            if not line:
                return None
            data, stat = self._get(client.get_async(f"{self._path}/{line[0]}"))
        except self._kazoo.exceptions.NoNodeError:
            return None
        except self._no_answer as error:
            raise self._unreachable(error) from error
        owner = f"{line[0]} {data.decode(errors='replace')}".strip()
        return Holder(owner, stat.czxid, stat.ctime, waiters=len(line) - 1)

    def break_lock(self) -> bool:
        """Delete the node of the first in line."""
        client = self._connected()
        try:
            line = self._line(client)
            return bool(line) and self._delete(client, f"{self._path}/{line[0]}")
        except self._no_answer as error:
            raise self._unreachable(error) from error

    def close(self) -> None:
        """End the session."""
        client, self._client = self._client, None
        if client is not None:
            _end(client)

    def _line(self, client: Any) -> list[str]:
        """Return the nodes below the path in Curator's order: by what follows the last `lock-`."""
        try:
            names = self._get(client.get_children_async(self._path))
        except self._kazoo.exceptions.NoNodeError:
            return []
        return sorted(names, key=lambda name: name.rpartition(_MARK)[2])

    def _watched(self, client: Any, first: str, before: str) -> Held:
        """Wait for the node before ours to go; nobody else is woken by it."""
        moved = threading.Event()
        path = f"{self._path}/{before}"
        if self._get(client.exists_async(path, watch=lambda _event: moved.set())) is None:
            moved.set()
        return Held(first, queued=True, changed=moved)

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
        except (
            self._kazoo.exceptions.NoAuthError,
            self._kazoo.exceptions.AuthFailedError,
        ) as error:
            raise PermissionDenied(f"{self.uri}: ZooKeeper refused this client") from error

    def _connected(self) -> Any:
        """Return the client with a session, connecting if need be."""
        with self._connecting:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> Any:
        # Reconnecting goes on for ever, as long as somebody wants this session.
        endless = self._kazoo.retry.KazooRetry(max_tries=-1, delay=0.05, max_delay=2.0)
        client = self._kazoo.client.KazooClient(
            hosts=self._hosts,
            timeout=self._session_ms / 1000,
            connection_retry=endless,
            logger=_quiet,
        )
        negotiated = threading.Event()

        def heard(timeout_ms: float) -> None:
            self.terms = _terms(min(self._session_ms, int(timeout_ms)))
            negotiated.set()

        _tell_negotiated(client, heard)
        try:
            client.start(timeout=self._connect_s)
            negotiated.wait(self._connect_s)
            client.ensure_path_async(self._path).get(timeout=self._connect_s)
        except self._no_answer as error:
            _end(client)
            raise self._unreachable(error) from error
        return client

    def _unreachable(self, error: Exception) -> StoreUnreachable:
        return StoreUnreachable(
            f"{self.uri}: no answer: {type(error).__name__}",
            hint=f"check {keys.ZK_URL.key} and the network",
        )


class ZookeeperLockProvider(LeasedProvider):
    """Hudi's `ZookeeperBasedLockProvider`: the path is `…base_path` and `…lock_key`."""

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read and check the settings; touch nothing."""
        backend = ZookeeperBackend(
            _hosts(settings),
            self.path_of(settings),
            session_ms=keys.ZK_SESSION_MS.required(settings),
            connect_ms=keys.ZK_CONNECT_MS.required(settings),
            application=keys.APPLICATION_ID.required(settings),
        )
        pace = Pace.read(settings)
        super().__init__(backend, pace=pace, metrics=metrics, bind_thread=bind_thread)

    @staticmethod
    def path_of(settings: Mapping[str, object]) -> str:
        """Return the lock's path.

        Raises: `ConfigInvalid`, as Hudi does, without a base path or a lock key.
        """
        base = keys.ZK_BASE_PATH.required(settings).strip("/")
        named = (keys.RESOURCE, keys.ZK_LOCK_KEY, keys.TABLE_NAME)
        name = next((value for key in named if (value := key.value(settings))), None)
        name = (name or keys.ZK_LOCK_KEY.required(settings)).strip("/")
        path = f"/{base}/{name}" if base else f"/{name}"
        if any(part in ("", ".", "..") for part in path[1:].split("/")) or "\0" in path:
            raise ConfigInvalid(
                f"{path!r} is not a path of ZooKeeper",
                hint=f"check {keys.ZK_BASE_PATH.key} and {keys.ZK_LOCK_KEY.key}",
            )
        return path


class ImplicitPathZookeeperLockProvider(ZookeeperLockProvider):
    """Hudi's `ZookeeperBasedImplicitBasePathLockProvider`: the path is a hash of the base path."""

    @staticmethod
    def path_of(settings: Mapping[str, object]) -> str:
        """Return the path with the hash."""
        return f"/tmp/{hash_of_base_path(BASE_PATH.required(settings))}/lock_key"  # noqa: S108 - a node


def _hosts(settings: Mapping[str, object]) -> str:
    hosts, _, chroot = keys.ZK_URL.required(settings).partition("/")
    port = keys.ZK_PORT.value(settings) or _PORT
    named = [host.strip() for host in hosts.split(",") if host.strip()]
    if not named:
        raise ConfigInvalid(f"{keys.ZK_URL.key} names no host")
    joined = ",".join(host if ":" in host else f"{host}:{port}" for host in named)
    return f"{joined}/{chroot}" if chroot else joined


def _terms(session_ms: int) -> Terms:
    return Terms(session_ms, max(1, session_ms // _RENEWALS))


def _tell_negotiated(client: Any, heard: Callable[[float], None]) -> None:
    """Hear the session timeout that the server grants, which may be shorter than the one asked for.

    kazoo only logs it. Its read timeout, two thirds of it, is what its connection returns.
    """
    connection = client._connection  # noqa: SLF001 - there is no public way to the number
    connect = connection._connect  # noqa: SLF001

    def noting(*where: Any) -> Any:
        timeouts = connect(*where)
        heard(timeouts[0] * 3 / 2)
        return timeouts

    connection._connect = noting  # noqa: SLF001


def _end(client: Any) -> None:
    try:
        client.stop()
        client.close()
    except Exception:
        logger.exception("ending a ZooKeeper session failed")


_quiet = logging.getLogger("tidelock.zookeeper.client")
_quiet.setLevel(logging.CRITICAL)
