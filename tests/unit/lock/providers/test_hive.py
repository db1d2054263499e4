"""Calls to a Hive metastore, on a socket with scripted replies."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tidelock.core.errors import DataCorrupt, StoreUnreachable
from tidelock.lock.providers.hive import (
    CallResult,
    HiveLockComponent,
    HiveLockRequest,
    HiveLockResponse,
    HiveShowLocksResponse,
    Metastore,
    NoAnswer,
    ThriftStruct,
)

REPLY, EXCEPTION = 2, 3
STOP = b"\x00"


class Peer:
    """A server for one call: it records the request and sends `answer`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.request = b""
        self.answer = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            self.request = connection.recv(65_536)
            connection.sendall(self.answer)

    def close(self) -> None:
        self._listener.close()
        self._thread.join(5)


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


def message(kind: int, number: int, body: bytes) -> bytes:
    head = struct.pack("!I", 0x80010000 | kind) + struct.pack("!i", 4) + b"lock"
    return head + struct.pack("!i", number) + body


def field(kind: int, number: int, value: bytes) -> bytes:
    return struct.pack("!bh", kind, number) + value


def i64(number: int, value: int) -> bytes:
    return field(10, number, struct.pack("!q", value))


def i32(number: int, value: int) -> bytes:
    return field(8, number, struct.pack("!i", value))


def string(number: int, text: str) -> bytes:
    return field(11, number, struct.pack("!i", len(text.encode())) + text.encode())


def call(peer: Peer, result_type: type[ThriftStruct] = HiveLockResponse) -> CallResult:
    metastore = Metastore([("127.0.0.1", peer.port)], 5)
    try:
        request = HiveLockRequest(components=[HiveLockComponent(lock_type=3)], user="é")
        return metastore.call("lock", request, result_type)
    finally:
        metastore.close()


def test_call_has_the_bytes_of_the_strict_protocol(peer: Peer) -> None:
    peer.answer = message(REPLY, 1, STOP)
    assert call(peer) == CallResult()
    components = field(15, 1, struct.pack("!bi", 12, 1) + i32(1, 3) + STOP)
    head = b"\x80\x01\x00\x01\x00\x00\x00\x04lock\x00\x00\x00\x01"
    user = b"\x0b\x00\x03\x00\x00\x00\x02\xc3\xa9"
    assert peer.request == head + b"\x0c\x00\x01" + components + user + STOP + STOP


def test_reply_is_decoded_by_field_with_any_types(peer: Peer) -> None:
    unknown = field(4, 30, struct.pack("!d", 0.5)) + field(13, 31, b"\x0b\x0c\x00\x00\x00\x00")
    locks = i64(1, 1) + STOP + i64(1, 2) + i32(5, 2) + unknown + string(13, "x") + STOP
    reply = field(15, 1, struct.pack("!bi", 12, 2) + locks) + string(9, "x") + STOP
    peer.answer = message(REPLY, 1, field(12, 0, reply) + STOP)
    result = call(peer, HiveShowLocksResponse)
    found = [(lock.lock_id, lock.state, lock.agent_info) for lock in result.value.locks]
    assert found == [(1, None, None), (2, 2, "x")]
    assert not result.failed


def test_declared_exception_is_a_failed_call(peer: Peer) -> None:
    peer.answer = message(REPLY, 1, field(12, 1, string(1, "no such lock") + STOP) + STOP)
    assert call(peer) == CallResult(failed=True)


def test_server_failure_is_reported(peer: Peer) -> None:
    peer.answer = message(EXCEPTION, 1, string(1, "no such method") + i32(2, 1) + STOP)
    with pytest.raises(StoreUnreachable, match="no such method"):
        call(peer)


def test_truncated_reply_is_refused(peer: Peer) -> None:
    peer.answer = message(REPLY, 1, field(12, 0, i64(1, 7) + STOP) + STOP)[:-5]
    with pytest.raises(NoAnswer):
        call(peer)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        message(REPLY, 2, STOP),
        struct.pack("!Ii", 0x80010002, 2**31 - 1),
        message(REPLY, 1, b"\x0f\x00\x00\x0c\x7f\xff\xff\xff"),
        message(REPLY, 1, b"\x63\x00\x00"),
    ],
)
def test_non_thrift_reply_is_refused(peer: Peer, answer: bytes) -> None:
    peer.answer = answer
    with pytest.raises(DataCorrupt):
        call(peer)
