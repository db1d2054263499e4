"""Thrift's binary protocol on a socket that a test answers by hand."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tidelock.base.errors import DataCorrupt
from tidelock.lockproviders import thrift
from tidelock.lockproviders.thrift import I32, I64, LIST, STRING, STRUCT, ThriftSocket, encoded

REPLY, EXCEPTION = 2, 3


class Peer:
    """A server for one call: it keeps what came and sends what it was told."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.heard = b""
        self.says = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            self.heard = connection.recv(65_536)
            connection.sendall(self.says)

    def close(self) -> None:
        self._listener.close()
        self._thread.join(5)


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


def message(kind: int, number: int, fields: list[thrift.Field]) -> bytes:
    head = struct.pack("!I", 0x80010000 | kind) + struct.pack("!i", 4) + b"lock"
    return head + struct.pack("!i", number) + encoded(fields)


def call(peer: Peer) -> thrift.Struct:
    connection = ThriftSocket("127.0.0.1", peer.port, 5)
    try:
        return connection.call("lock", [(1, STRUCT, [(1, I64, 7), (2, STRING, "é")])])
    finally:
        connection.close()


def test_a_call_is_the_bytes_of_the_strict_protocol(peer: Peer) -> None:
    peer.says = message(REPLY, 1, [])
    assert call(peer) == {}
    inner = b"\x0a\x00\x01" + struct.pack("!q", 7) + b"\x0b\x00\x02\x00\x00\x00\x02\xc3\xa9\x00"
    head = b"\x80\x01\x00\x01\x00\x00\x00\x04lock\x00\x00\x00\x01"
    assert peer.heard == head + b"\x0c\x00\x01" + inner + b"\x00"


def test_an_answer_is_read_by_field_whatever_its_types(peer: Peer) -> None:
    items: list[list[thrift.Field]] = [[(1, I64, 1)], [(1, I64, 2), (5, I32, 2)]]
    peer.says = message(REPLY, 1, [(0, STRUCT, [(1, LIST, (STRUCT, items)), (9, STRING, "x")])])
    assert call(peer) == {0: {1: [{1: 1}, {1: 2, 5: 2}], 9: "x"}}


def test_a_failure_of_the_server_is_named(peer: Peer) -> None:
    peer.says = message(EXCEPTION, 1, [(1, STRING, "no such method"), (2, I32, 1)])
    with pytest.raises(thrift.ThriftFailure, match="no such method"):
        call(peer)


def test_half_an_answer_is_no_answer(peer: Peer) -> None:
    peer.says = message(REPLY, 1, [(0, STRUCT, [(1, I64, 7)])])[:-5]
    with pytest.raises(EOFError):
        call(peer)


@pytest.mark.parametrize(
    "says",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        message(REPLY, 2, []),
        struct.pack("!Ii", 0x80010002, 2**31 - 1),
        message(REPLY, 1, [])[:-1] + b"\x0f\x00\x00\x0c\x7f\xff\xff\xff",
        message(REPLY, 1, [])[:-1] + b"\x63\x00\x00",
    ],
)
def test_what_is_not_thrift_is_refused(peer: Peer, says: bytes) -> None:
    peer.says = says
    with pytest.raises(DataCorrupt):
        call(peer)
