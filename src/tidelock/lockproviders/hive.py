"""Hive's metastore: an exclusive lock on a table, as Hudi's provider takes it.

`lock`, `check_lock`, `heartbeat` and `unlock` over Thrift. Unlike Hudi's, ours waits in the
metastore's own line (Hudi's unlocks and asks again), and finds a lock whose answer was lost by the
`agentInfo` it was asked for with. Lock ids grow in the order of the line: they are the tokens.
Does not guarantee: SASL and TLS metastores; they are refused by not answering.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from tidelock.base.errors import ConfigInvalid, StoreUnreachable
from tidelock.base.metrics import Metrics
from tidelock.lock.config import HEARTBEAT_INTERVAL_MS
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
from tidelock.lockproviders.jsonservice import request_timeout_ms
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace
from tidelock.lockproviders.thrift import (
    I32,
    I64,
    LIST,
    STRING,
    STRUCT,
    Field,
    Struct,
    ThriftFailure,
    ThriftSocket,
)

_EXCLUSIVE, _TABLE, _NO_TXN = 3, 2, 6
_ACQUIRED, _WAITING = 1, 2
_PORT = 9083
_DATABASE = "default"
_SUCCESS = 0
_SITE_FILE = "hive-site.xml"
_SITE_KEYS = ("hive.metastore.uris", "metastore.thrift.uris")
_SITE_PLACES = (
    ("HIVE_CONF_DIR", ""),
    ("HIVE_HOME", "conf"),
    ("HADOOP_CONF_DIR", ""),
    ("HADOOP_HOME", "etc/hadoop"),
    ("SPARK_CONF_DIR", ""),
    ("SPARK_HOME", "conf"),
)
_URI = re.compile(r"thrift://(?P<host>\[[^\]]+\]|[^:/\[\]]+)(:(?P<port>\d+))?/?")


class NoAnswer(Exception):
    """The call was sent, and nobody knows what became of it."""


class Metastore:
    """Connections to one of several metastores, one call at a time."""

    def __init__(self, addresses: Sequence[tuple[str, int]], timeout_s: float) -> None:
        """Connect to nothing yet."""
        self._addresses = list(addresses)
        self._timeout_s = timeout_s
        self._mutex = threading.Lock()
        self._open: ThriftSocket | None = None

    def call(self, name: str, argument: Sequence[Field]) -> Struct:
        """Call a function with one struct.

        Raises: `NoAnswer`; `StoreUnreachable` when nothing was sent, or the server says so.
        """
        with self._mutex:
            connection = self._connected()
            try:
                return connection.call(name, [(1, STRUCT, argument)])
            except ThriftFailure as error:
                raise StoreUnreachable(f"the metastore failed in {name}: {error}") from error
            except (OSError, EOFError) as error:
                self._drop()
                raise NoAnswer(type(error).__name__) from error
            except BaseException:
                self._drop()
                raise

    def close(self) -> None:
        """Close the connection."""
        with self._mutex:
            self._drop()

    def _connected(self) -> ThriftSocket:
        if self._open is not None:
            return self._open
        causes = []
        for host, port in self._addresses:
            try:
                self._open = ThriftSocket(host, port, self._timeout_s)
            except OSError as error:
                causes.append(f"{host}:{port}: {error}")
            else:
                return self._open
        raise StoreUnreachable(
            f"no metastore could be reached: {'; '.join(causes)}",
            hint=f"check {keys.HMS_URIS.key} and the network",
        )

    def _drop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class HiveBackend:
    """The exclusive lock on one table of one metastore."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        database: str,
        table: str,
        terms: Terms,
    ) -> None:
        """Connect to nothing yet."""
        host, port = addresses[0]
        self.uri = f"thrift://{host}:{port}/{database}.{table}"
        self.terms = terms
        self._database = database
        self._table = table
        self._store = Metastore(addresses, request_timeout_ms(terms) / 1000)
        self._ids: dict[str, int] = {}

    def features(self) -> Features:
        """Return what the metastore can do."""
        return Features(blocking_wait=True, fencing_token=True, fair_queue=True, force_release=True)

    def take(self, attempt: Attempt) -> TakeReply:
        """Stand in line, and look whether the lock is ours."""
        known = self._ids.get(attempt.id)
        try:
            if known is None:
                answer = self._store.call("lock", self._request(attempt))
            else:
                answer = self._store.call("check_lock", [(1, I64, known)])
        except NoAnswer as error:
            return Unclear(str(error))
        reply = answer.get(_SUCCESS)
        if reply is None:
            # The line forgot us: it heard nothing for longer than its time-out.
            self._ids.pop(attempt.id, None)
            return Held(queued=False)
        number, state = int(reply[1]), int(reply[2])
        match state:
            case 1:
                self._ids[attempt.id] = number
                return Taken(Grant(attempt, str(number), number))
            case 2:
                self._ids[attempt.id] = number
                return Held(queued=True)
            case _:
                self._ids.pop(attempt.id, None)
                return Held(queued=False)

    def leave(self, attempt: Attempt) -> bool:
        """Unlock what the attempt asked for, by its number or by its name."""
        number = self._ids.pop(attempt.id, None)
        try:
            if number is not None:
                return self._unlock(number)
            mine = [lock for lock in self._locks() if lock.get(13) == attempt.id]
            return sum(self._unlock(int(lock[1])) for lock in mine) > 0
        except NoAnswer as error:
            raise StoreUnreachable(f"{self.uri}: {error}", hint="try again") from error

    def renew(self, grant: Grant) -> RenewReply:
        """Send a heartbeat for the lock."""
        try:
            answer = self._store.call("heartbeat", [(1, I64, int(grant.handle))])
        except NoAnswer as error:
            return Unclear(str(error))
        return Gone("the metastore does not know the lock any more") if answer else Kept(grant)

    def release(self, grant: Grant) -> ReleaseReply:
        """Unlock."""
        try:
            done = self._unlock(int(grant.handle))
        except NoAnswer as error:
            return Unclear(str(error))
        self._ids.pop(grant.attempt.id, None)
        return Freed() if done else Gone("the metastore does not know the lock any more")

    def forsake(self, grant: Grant) -> None:
        """Leave the lock to time out."""
        self._ids.pop(grant.attempt.id, None)

    def holder(self) -> Holder | None:
        """Return whose lock is acquired."""
        try:
            locks = self._locks()
        except NoAnswer as error:
            raise StoreUnreachable(f"{self.uri}: {error}", hint="try again") from error
        for lock in locks:
            if lock.get(5) == _ACQUIRED:
                waiters = sum(one.get(5) == _WAITING for one in locks)
                owner = f"{lock.get(10)}@{lock.get(11)} {lock.get(13) or ''}".strip()
                return Holder(owner, int(lock[1]), lock.get(9), waiters=waiters)
        return None

    def break_lock(self) -> bool:
        """Unlock the lock that is acquired, whoever asked for it."""
        try:
            held = [lock for lock in self._locks() if lock.get(5) == _ACQUIRED]
            return sum(self._unlock(int(lock[1])) for lock in held) > 0
        except NoAnswer as error:
            raise StoreUnreachable(f"{self.uri}: {error}", hint="look again") from error

    def close(self) -> None:
        """Close the connection."""
        self._store.close()

    def _request(self, attempt: Attempt) -> list[Field]:
        component: list[Field] = [
            (1, I32, _EXCLUSIVE),
            (2, I32, _TABLE),
            (3, STRING, self._database),
            (4, STRING, self._table),
            (6, I32, _NO_TXN),
        ]
        return [
            (1, LIST, (STRUCT, [component])),
            (3, STRING, _user()),
            (4, STRING, socket.gethostname()),
            (5, STRING, attempt.id),
        ]

    def _locks(self) -> list[Struct]:
        request: list[Field] = [(1, STRING, self._database), (2, STRING, self._table)]
        answer = self._store.call("show_locks", request)
        return list((answer.get(_SUCCESS) or {}).get(1) or [])

    def _unlock(self, number: int) -> bool:
        # An empty answer is a success; a field in it is the exception that there is no such lock.
        return not self._store.call("unlock", [(1, I64, number)])


class HiveMetastoreLockProvider(LeasedProvider):
    """Hudi's provider: `…hivemetastore.database`, `.table` and `.uris`."""

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read and check the settings; touch nothing."""
        database, table = _table_of(settings)
        terms = Terms(
            keys.HMS_TIMEOUT_MS.required(settings), HEARTBEAT_INTERVAL_MS.required(settings)
        )
        backend = HiveBackend(_addresses(settings), database, table, terms)
        pace = Pace.read(settings)
        super().__init__(backend, pace=pace, metrics=metrics, bind_thread=bind_thread)


def _table_of(settings: Mapping[str, object]) -> tuple[str, str]:
    resource = keys.RESOURCE.value(settings)
    if resource is not None:
        database, found, table = resource.partition(".")
        return (database, table) if found else (_DATABASE, resource)
    named = keys.HMS_DATABASE.value(settings) or keys.DATABASE_NAME.value(settings)
    own = keys.HMS_TABLE.value(settings) or keys.TABLE_NAME.value(settings)
    return named or _DATABASE, own or keys.HMS_TABLE.required(settings)


def _addresses(settings: Mapping[str, object]) -> list[tuple[str, int]]:
    found = []
    uris, place = keys.HMS_URIS.value(settings), keys.HMS_URIS.key
    if not uris:
        uris, place = _site_uris() or (keys.HMS_URIS.required(settings), place)
    for uri in uris.split(","):
        parts = _URI.fullmatch(uri.strip())
        if parts is None:
            raise ConfigInvalid(
                f"{place}: {uri.strip()!r} is not a metastore",
                hint="write thrift://host:port, several separated by commas",
            )
        found.append((parts["host"].strip("[]"), int(parts["port"] or _PORT)))
    return found


def _site_uris() -> tuple[str, str] | None:
    """Return the metastore's URIs of the first `hive-site.xml` that has them, and that file.

    Raises: `ConfigInvalid` when such a file cannot be read.
    """
    for folder in _site_folders():
        file = folder / _SITE_FILE
        if not file.is_file():
            continue
        try:
            # An operator's own file, as trusted as the settings.
            root = ET.parse(file).getroot()  # noqa: S314
        except (OSError, ET.ParseError) as error:
            raise ConfigInvalid(
                f"{file} cannot be read: {error}", hint=f"mend it, or set {keys.HMS_URIS.key}"
            ) from error
        found = {
            (entry.findtext("name") or "").strip(): (entry.findtext("value") or "").strip()
            for entry in root.iter("property")
        }
        for name in _SITE_KEYS:
            if found.get(name):
                return found[name], f"{name} in {file}"
    return None


def _site_folders() -> Iterator[Path]:
    """Return where Hive, Hadoop and Spark look for their configuration, in that order."""
    for name, below in _SITE_PLACES:
        if os.environ.get(name):
            yield Path(os.environ[name], below)
    for entry in os.environ.get("CLASSPATH", "").split(os.pathsep):
        if entry:
            yield Path(entry)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "tidelock"
