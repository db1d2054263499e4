"""HTTP/1.1 on both sides of the proxy: reads and writes complete messages."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection, responses
from typing import BinaryIO

from testkit.proxy.request import Request

_UPSTREAM_DEADLINE_S = 60.0
_CHUNK_HEAD_BYTES_MAX = 1_024
_HEADERS_OF_ONE_HOP = frozenset(
    {"connection", "expect", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}
)
_STATUSES_WITHOUT_BODY = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def read_body(headers: Message, stream: BinaryIO) -> bytes:
    """Read the body of a request, by its length or chunk by chunk.

    Raises: `EOFError` if the client disconnects before its end.
    """
    if "chunked" in headers.get("Transfer-Encoding", "").lower():
        return _read_chunks(stream)
    return _read_exactly(stream, int(headers.get("Content-Length", "0")))


def _read_chunks(stream: BinaryIO) -> bytes:
    chunks = []
    while True:
        head = stream.readline(_CHUNK_HEAD_BYTES_MAX)
        size = int(head.split(b";")[0], 16) if head.strip() else 0
        if size == 0:
            break
        chunks.append(_read_exactly(stream, size))
        stream.readline(_CHUNK_HEAD_BYTES_MAX)
    while stream.readline(_CHUNK_HEAD_BYTES_MAX).strip():
        pass  # trailers
    return b"".join(chunks)


def _read_exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count) if count else b""
    if len(data) < count:
        raise EOFError(f"the client sent {len(data)} of {count} body bytes")
    return data


def exchange(upstream: tuple[str, int], request: Request) -> Reply:
    """Send the request upstream once, on a new connection, and read the complete reply.

    The Host header is forwarded unchanged. The proxy itself has answered the client's
    `Expect: 100-continue`, and has the body.
    """
    connection = HTTPConnection(*upstream, timeout=_UPSTREAM_DEADLINE_S)
    try:
        connection.putrequest(
            request.method, request.target, skip_host=True, skip_accept_encoding=True
        )
        for name, value in request.headers:
            if name.lower() not in _HEADERS_OF_ONE_HOP:
                connection.putheader(name, value)
        if request.body and request.header("Content-Length") is None:
            connection.putheader("Content-Length", str(len(request.body)))
        connection.putheader("Connection", "close")
        connection.endheaders(request.body or None)
        reply = connection.getresponse()
        headers = tuple(
            (name, value)
            for name, value in reply.getheaders()
            if name.lower() not in _HEADERS_OF_ONE_HOP
        )
        return Reply(reply.status, headers, reply.read())
    finally:
        connection.close()


def encode(reply: Reply, method: str) -> tuple[bytes, bytes]:
    """Return the head and the body of a reply as bytes, with its Content-Length.

    The reply to a HEAD keeps the upstream's Content-Length, although it has no body.
    """
    has_body = method != "HEAD" and reply.status not in _STATUSES_WITHOUT_BODY
    lines = [f"HTTP/1.1 {reply.status} {responses.get(reply.status, 'Unknown')}"]
    for name, value in reply.headers:
        if not (has_body and name.lower() == "content-length"):
            lines.append(f"{name}: {value}")
    if has_body:
        lines.append(f"Content-Length: {len(reply.body)}")
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode("latin-1"), reply.body if has_body else b""
