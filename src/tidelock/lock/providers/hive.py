"""Lock provider for the Hive metastore: an exclusive table lock, as in Hudi's provider.

Uses `lock`, `check_lock`, `heartbeat` and `unlock` over Thrift. Unlike Hudi's provider, which
unlocks and requests the lock again, this one waits in the metastore's queue. If the response to a
`lock` call is lost, the lock is found again by the `agentInfo` of its request. Lock ids increase in
queue order and serve as fencing tokens.

Does not guarantee: SASL and TLS are not supported; such a metastore does not answer.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree as ET

from tidelock.core.errors import ConfigInvalid, DataCorrupt, StoreUnreachable, needs_extra
from tidelock.lock.config import DATABASE_NAME, HIVE_HEARTBEAT_INTERVAL_MS, TABLE_NAME
from tidelock.lock.provider import Features, Holder
from tidelock.lock.providers import backend as b
from tidelock.lock.providers import config
from tidelock.lock.providers.json_api import request_timeout_ms
from tidelock.lock.providers.leased import ConfiguredProvider

_EXCLUSIVE, _TABLE, _NO_TXN = 3, 2, 6
_ACQUIRED, _WAITING = 1, 2
_PORT = 9083
_DATABASE = "default"
_UNKNOWN_LOCK = "the metastore no longer knows the lock"
_SITE_FILE = "hive-site.xml"
_SITE_KEYS = ("hive.metastore.uris", "metastore.thrift.uris")
_SITE_FOLDERS = (
    ("HIVE_CONF_DIR", ""),
    ("HIVE_HOME", "conf"),
    ("HADOOP_CONF_DIR", ""),
    ("HADOOP_HOME", "etc/hadoop"),
    ("SPARK_CONF_DIR", ""),
    ("SPARK_HOME", "conf"),
)
_URI = re.compile(r"thrift://(?P<host>\[[^\]]+\]|[^:/\[\]]+)(:(?P<port>\d+))?/?")


# Thrift's type numbers, here so that the structs below need no `thrift` to be declared.
_STOP, _I32, _I64, _STRING, _STRUCT, _LIST = 0, 8, 10, 11, 12, 15
_STRING_BYTES_MAX = 16 * 1024 * 1024
_ITEMS_MAX = 1_000_000


def _fields(*fields: tuple[int, int, str, Any]) -> tuple[Any, ...]:
    """Return a `thrift_spec`: the fields (number, type, name, type argument) by their numbers."""
    by_number = {field[0]: (*field, None) for field in fields}
    return tuple(by_number.get(number) for number in range(max(by_number) + 1))


class ThriftStruct:
    """A struct of the metastore's Thrift interface, read and written by `thrift`."""

    thrift_spec: ClassVar[tuple[Any, ...]]

    def __init__(self, **values: Any) -> None:
        """Set the given fields; the others are None and are not sent."""
        for field in self.thrift_spec:
            if field is not None:
                setattr(self, field[2], values.get(field[2]))

    def read(self, protocol: Any) -> None:
        """Fill the fields from a `TProtocol`."""
        protocol.readStruct(self, self.thrift_spec)

    def write(self, protocol: Any) -> None:
        """Write the fields that are set to a `TProtocol`."""
        protocol.writeStruct(self, self.thrift_spec)


def _list_of(struct: type[ThriftStruct]) -> tuple[Any, ...]:
    """Return the type argument of a list of structs."""
    return (_STRUCT, (struct, struct.thrift_spec), False)


class HiveLockComponent(ThriftStruct):
    """What to lock: a table."""

    thrift_spec = _fields(
        (1, _I32, "lock_type", None),
        (2, _I32, "level", None),
        (3, _STRING, "database", None),
        (4, _STRING, "table", None),
        (6, _I32, "operation", None),
    )


class HiveLockRequest(ThriftStruct):
    """The argument of `lock`."""

    thrift_spec = _fields(
        (1, _LIST, "components", _list_of(HiveLockComponent)),
        (3, _STRING, "user", None),
        (4, _STRING, "hostname", None),
        (5, _STRING, "agent_info", None),
    )


class HiveLockIdRequest(ThriftStruct):
    """The argument of `check_lock`, `heartbeat` and `unlock`."""

    thrift_spec = _fields((1, _I64, "lock_id", None))


class HiveLockResponse(ThriftStruct):
    """The result of `lock` and `check_lock`."""

    thrift_spec = _fields((1, _I64, "lock_id", None), (2, _I32, "state", None))


class HiveShowLocksRequest(ThriftStruct):
    """The argument of `show_locks`."""

    thrift_spec = _fields((1, _STRING, "database", None), (2, _STRING, "table", None))


class HiveLockDescription(ThriftStruct):
    """One lock in the result of `show_locks`."""

    thrift_spec = _fields(
        (1, _I64, "lock_id", None),
        (5, _I32, "state", None),
        (9, _I64, "acquired_epoch_ms", None),
        (10, _STRING, "user", None),
        (11, _STRING, "hostname", None),
        (13, _STRING, "agent_info", None),
    )


class HiveShowLocksResponse(ThriftStruct):
    """The result of `show_locks`."""

    thrift_spec = _fields((1, _LIST, "locks", _list_of(HiveLockDescription)))


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call: a value, or an exception that the function declares."""

    value: Any = None
    failed: bool = False


class NoAnswer(Exception):
    """The call was sent, and its outcome is unknown."""


class Metastore:
    """A connection to one of several metastores. One call at a time, each sent at most once.

    `thrift` encodes and decodes. Connecting and time-outs stay here: `TSocket` is given a connected
    socket, because its own `open` logs every failure as an error, and leaves Nagle's algorithm on.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], timeout_s: float) -> None:
        """Load `thrift`; does not connect yet. Raises: `MissingExtra`."""
        with needs_extra("the Hive metastore lock needs thrift", "hive"):
            import thrift.protocol.TBinaryProtocol
            import thrift.Thrift
            import thrift.transport.TSocket
        self._thrift = thrift
        self._addresses = list(addresses)
        self._timeout_s = timeout_s
        self._mutex = threading.Lock()
        self._protocol: Any = None
        self._sequence = 0

    def call(
        self, name: str, request: ThriftStruct, result_type: type[ThriftStruct] | None = None
    ) -> CallResult:
        """Call a function with one struct. A function without a result type returns nothing.

        Raises: `NoAnswer`; `StoreUnreachable` if nothing was sent or the server failed;
        `DataCorrupt` if the answer is not valid Thrift.
        """
        thrift = self._thrift
        transport_error = thrift.transport.TTransport.TTransportException
        with self._mutex:
            protocol = self._connected()
            try:
                return self._exchange(protocol, name, request, result_type)
            except thrift.Thrift.TApplicationException as error:
                raise StoreUnreachable(f"the metastore failed in {name}: {error}") from error
            except (thrift.protocol.TProtocol.TProtocolException, UnicodeDecodeError) as error:
                self._drop()
                raise DataCorrupt(f"{name}: expected a Thrift answer: {error}") from error
            except (transport_error, OSError, EOFError) as error:
                self._drop()
                kind = getattr(error, "type", None)
                if kind in (transport_error.NEGATIVE_SIZE, transport_error.SIZE_LIMIT):
                    raise DataCorrupt(f"{name}: expected a Thrift answer: {error}") from error
                raise NoAnswer(type(getattr(error, "inner", None) or error).__name__) from error
            except BaseException:
                self._drop()
                raise

    def close(self) -> None:
        """Close the connection."""
        with self._mutex:
            self._drop()

    def _exchange(
        self,
        protocol: Any,
        name: str,
        request: ThriftStruct,
        result_type: type[ThriftStruct] | None,
    ) -> CallResult:
        message_type = self._thrift.Thrift.TMessageType
        self._sequence += 1
        protocol.writeMessageBegin(name, message_type.CALL, self._sequence)
        protocol.writeFieldBegin("rqst", _STRUCT, 1)
        request.write(protocol)
        protocol.writeFieldStop()
        protocol.trans.flush()
        _, kind, sequence = protocol.readMessageBegin()
        if sequence != self._sequence:
            raise DataCorrupt(
                f"{name}: expected the answer to call {self._sequence}, got that to {sequence}"
            )
        if kind == message_type.EXCEPTION:
            failure = self._thrift.Thrift.TApplicationException()
            failure.read(protocol)
            raise failure
        result = CallResult()
        while True:
            _, field_type, number = protocol.readFieldBegin()
            if field_type == _STOP:
                return result
            if number == 0 and field_type == _STRUCT and result_type is not None:
                value = result_type()
                value.read(protocol)
                result = replace(result, value=value)
            else:
                protocol.skip(field_type)
                result = replace(result, failed=True)

    def _connected(self) -> Any:
        if self._protocol is not None:
            return self._protocol
        causes = []
        for address in self._addresses:
            try:
                connection = socket.create_connection(address, timeout=self._timeout_s)
            except OSError as error:
                causes.append(f"{address[0]}:{address[1]}: {error}")
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = self._thrift.transport.TSocket.TSocket()
            transport.setHandle(connection)
            self._protocol = self._thrift.protocol.TBinaryProtocol.TBinaryProtocol(
                self._thrift.transport.TTransport.TBufferedTransport(transport),
                strictRead=True,
                string_length_limit=_STRING_BYTES_MAX,
                container_length_limit=_ITEMS_MAX,
            )
            return self._protocol
        raise StoreUnreachable(
            f"no metastore is reachable: {'; '.join(causes)}",
            hint=f"check {config.HMS_URIS.key} and the network",
        )

    def _drop(self) -> None:
        if self._protocol is not None:
            self._protocol.trans.close()
            self._protocol = None


class HiveBackend:
    """The exclusive lock on one table of a metastore."""

    features = Features(blocking_wait=True, fencing_token=True, fair_queue=True, force_release=True)

    def __init__(
        self, addresses: Sequence[tuple[str, int]], database: str, table: str, terms: b.LeaseTerms
    ) -> None:
        """Store the settings; does not connect yet. Raises: `MissingExtra`."""
        host, port = addresses[0]
        self.uri = f"thrift://{host}:{port}/{database}.{table}"
        self.terms = terms
        self._database = database
        self._table = table
        self._metastore = Metastore(addresses, request_timeout_ms(terms) / 1000)
        self._ids: dict[str, int] = {}

    def try_acquire(self, attempt: b.Attempt) -> b.AcquireReply:
        """Join the queue, or check whether the queued lock is acquired."""
        known = self._ids.get(attempt.id)
        try:
            if known is None:
                result = self._metastore.call("lock", self._request(attempt), HiveLockResponse)
            else:
                request = HiveLockIdRequest(lock_id=known)
                result = self._metastore.call("check_lock", request, HiveLockResponse)
        except NoAnswer as error:
            return b.BackendUnclear(str(error))
        state = None if result.value is None else int(result.value.state)
        if state not in (_ACQUIRED, _WAITING):
            # Without a value, the metastore got no heartbeat in time and removed the queued lock.
            self._ids.pop(attempt.id, None)
            return b.HeldByOther(queued=False)
        lock_id = int(result.value.lock_id)
        self._ids[attempt.id] = lock_id
        if state == _WAITING:
            return b.HeldByOther(queued=True)
        return b.BackendAcquired(b.BackendGrant(attempt, str(lock_id), lock_id))

    def cancel(self, attempt: b.Attempt) -> bool:
        """Unlock what the attempt requested, by lock id if known, else by `agentInfo`."""
        number = self._ids.pop(attempt.id, None)
        try:
            if number is not None:
                return self._unlock(number)
            mine = [lock for lock in self._locks() if lock.agent_info == attempt.id]
            return sum(self._unlock(lock.lock_id) for lock in mine) > 0
        except NoAnswer as error:
            raise self._unreachable(error) from error

    def renew(self, grant: b.BackendGrant) -> b.RenewReply:
        """Send a heartbeat for the lock."""
        try:
            result = self._metastore.call("heartbeat", HiveLockIdRequest(lock_id=int(grant.handle)))
        except NoAnswer as error:
            return b.BackendUnclear(str(error))
        return b.GrantLost(_UNKNOWN_LOCK) if result.failed else b.RenewedLease(grant)

    def release(self, grant: b.BackendGrant) -> b.ReleaseReply:
        try:
            done = self._unlock(int(grant.handle))
        except NoAnswer as error:
            return b.BackendUnclear(str(error))
        self._ids.pop(grant.attempt.id, None)
        return b.GrantReleased() if done else b.GrantLost(_UNKNOWN_LOCK)

    def abandon(self, grant: b.BackendGrant) -> None:
        """Stop tracking the lock, and let it time out."""
        self._ids.pop(grant.attempt.id, None)

    def holder(self) -> Holder | None:
        try:
            locks = self._locks()
        except NoAnswer as error:
            raise self._unreachable(error) from error
        for lock in locks:
            if lock.state == _ACQUIRED:
                waiters = sum(other.state == _WAITING for other in locks)
                owner = f"{lock.user}@{lock.hostname} {lock.agent_info or ''}".strip()
                return Holder(owner, lock.lock_id, lock.acquired_epoch_ms, waiters=waiters)
        return None

    def force_release(self) -> bool:
        """Unlock the acquired lock, whoever holds it."""
        try:
            held = [lock for lock in self._locks() if lock.state == _ACQUIRED]
            return sum(self._unlock(lock.lock_id) for lock in held) > 0
        except NoAnswer as error:
            raise self._unreachable(error, "check the holder again") from error

    def close(self) -> None:
        self._metastore.close()

    def _request(self, attempt: b.Attempt) -> HiveLockRequest:
        component = HiveLockComponent(
            lock_type=_EXCLUSIVE,
            level=_TABLE,
            operation=_NO_TXN,
            database=self._database,
            table=self._table,
        )
        return HiveLockRequest(
            components=[component],
            user=_user(),
            hostname=socket.gethostname(),
            agent_info=attempt.id,
        )

    def _unreachable(self, error: NoAnswer, hint: str = "try again") -> StoreUnreachable:
        return StoreUnreachable(f"{self.uri}: {error}", hint=hint)

    def _locks(self) -> list[Any]:
        request = HiveShowLocksRequest(database=self._database, table=self._table)
        response = self._metastore.call("show_locks", request, HiveShowLocksResponse).value
        return (response.locks if response is not None else None) or []

    def _unlock(self, lock_id: int) -> bool:
        """Return whether the metastore knew the lock."""
        return not self._metastore.call("unlock", HiveLockIdRequest(lock_id=lock_id)).failed


class HiveMetastoreLockProvider(ConfiguredProvider):
    """Hudi's Hive provider: `…hivemetastore.database`, `.table` and `.uris`."""

    def open_backend(self, settings: Mapping[str, object]) -> b.Backend:
        database, table = _table_of(settings)
        terms = b.LeaseTerms(
            config.HMS_TIMEOUT_MS.required(settings), HIVE_HEARTBEAT_INTERVAL_MS.required(settings)
        )
        return HiveBackend(_addresses(settings), database, table, terms)


def _table_of(settings: Mapping[str, object]) -> tuple[str, str]:
    resource = config.RESOURCE.value(settings)
    if resource is not None:
        database, found, table = resource.partition(".")
        return (database, table) if found else (_DATABASE, resource)
    named = config.HMS_DATABASE.value(settings) or DATABASE_NAME.explicit(settings)
    own = config.HMS_TABLE.value(settings) or TABLE_NAME.explicit(settings)
    return named or _DATABASE, own or config.HMS_TABLE.required(settings)


def _addresses(settings: Mapping[str, object]) -> list[tuple[str, int]]:
    found = []
    uris, source = config.HMS_URIS.value(settings), config.HMS_URIS.key
    if not uris:
        uris, source = _site_uris() or (config.HMS_URIS.required(settings), source)
    for uri in uris.split(","):
        parts = _URI.fullmatch(uri.strip())
        if parts is None:
            raise ConfigInvalid(
                f"{source}: expected thrift://host:port, got {uri.strip()!r}",
                hint="separate several metastores by commas",
            )
        found.append((parts["host"].strip("[]"), int(parts["port"] or _PORT)))
    return found


def _site_uris() -> tuple[str, str] | None:
    """Return the metastore URIs of the first `hive-site.xml` that has them, and their source.

    Raises: `ConfigInvalid` if such a file cannot be read.
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
                f"{file}: cannot be read: {error}", hint=f"correct it, or set {config.HMS_URIS.key}"
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
    """Yield the folders where Hive, Hadoop and Spark look for their configuration, in order."""
    for variable, subfolder in _SITE_FOLDERS:
        if os.environ.get(variable):
            yield Path(os.environ[variable], subfolder)
    for entry in os.environ.get("CLASSPATH", "").split(os.pathsep):
        if entry:
            yield Path(entry)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "tidelock"
