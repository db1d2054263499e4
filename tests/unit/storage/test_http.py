"""The transport with servers that disconnect, are slow, or disappear."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.storage.certificates import self_signed
from tests.unit.storage.raw_server import OK, RawServer, raw_server
from tidelock.core.clock import Now
from tidelock.core.errors import ConfigInvalid
from tidelock.core.limits import CONNECTION_IDLE_MS_MAX
from tidelock.core.system import SystemClock
from tidelock.storage.http import Answer, HttpReply, HttpRequest, NoReply, NotSent, Transport

SECRET = "sv=2022&sig=very%2Fsecret"
PATIENCE_MS = 60_000


@dataclass
class ShiftedClock:
    """The system clock, set forward by the test."""

    ahead_ms: int = 0

    def now(self) -> Now:
        now = SystemClock().now()
        return Now(now.monotonic_ms + self.ahead_ms, now.wall_epoch_ms + self.ahead_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self.ahead_ms += int(duration_ms)


class StridingClock(ShiftedClock):
    """A clock that advances by ten seconds on each read."""

    def now(self) -> Now:
        self.ahead_ms += 10_000
        return super().now()


def send(
    server: RawServer,
    transport: Transport,
    *,
    method: str = "GET",
    body: bytes | None = None,
    timeout_ms: float = PATIENCE_MS,
) -> Answer:
    request = HttpRequest(method, server.origin, "/bucket/key?a=b", {"x-test": "1"}, body)
    return transport.send(request, timeout_ms=timeout_ms)


def once(
    *connections: list[bytes | None], method: str = "GET", timeout_ms: float = PATIENCE_MS
) -> Answer:
    with raw_server(*connections) as server:
        transport = Transport(SystemClock())
        answer = send(server, transport, method=method, timeout_ms=timeout_ms)
        transport.close()
        server.wait_for_request()  # the client may time out before the server reads
        assert len(server.received) == 1, "a request is sent once, whatever comes back"
    return answer


def test_complete_reply_has_status_headers_and_body() -> None:
    answer = once([OK])
    assert isinstance(answer, HttpReply)
    assert (answer.status, answer.body, answer.headers.get("etag")) == (200, b"ok", '"e"')


def test_body_is_sent_without_waiting_for_100_continue() -> None:
    with raw_server([OK]) as server:
        transport = Transport(SystemClock())
        send(server, transport, method="PUT", body=b"hello")
        transport.close()
    [sent] = server.received
    assert sent.startswith(b"PUT /bucket/key?a=b HTTP/1.1\r\n")
    assert sent.endswith(b"\r\n\r\nhello")
    assert b"expect" not in sent.lower()


def test_chunked_reply_is_complete() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    answer = once([chunked])
    assert isinstance(answer, HttpReply)
    assert answer.body == b"abc"


@pytest.mark.parametrize("cut", range(len(OK)))
def test_reply_truncated_anywhere_is_not_a_reply(cut: int) -> None:
    assert isinstance(once([OK[:cut]]), NoReply)


def test_truncated_chunked_reply_is_not_a_reply() -> None:
    cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"
    assert isinstance(once([cut]), NoReply)


def test_success_without_a_length_is_not_a_reply() -> None:
    answer = once([b"HTTP/1.1 200 OK\r\nETag: e\r\n\r\nperhaps not all"])
    assert answer == NoReply("the reply does not have a length")


def test_error_without_a_length_is_a_reply() -> None:
    answer = once([b"HTTP/1.1 503 Busy\r\n\r\nperhaps not all"])
    assert isinstance(answer, HttpReply)
    assert answer.status == 503


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"]
)
def test_reply_to_head_or_without_content_needs_no_body(head: bytes) -> None:
    answer = once([head], method="HEAD")
    assert isinstance(answer, HttpReply)
    assert answer.body == b""


def test_redirect_is_not_followed() -> None:
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    answer = once([moved])
    assert isinstance(answer, HttpReply)
    assert answer.status == 307


def test_server_error_is_not_retried() -> None:
    answer = once([b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"])
    assert isinstance(answer, HttpReply)
    assert answer.status == 503


def test_silence_is_no_reply_after_the_timeout() -> None:
    assert once([None], timeout_ms=50) == NoReply("no reply within 50 ms")


def test_body_slower_than_the_timeout_is_no_reply() -> None:
    with raw_server([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", None]) as server:
        transport = Transport(StridingClock())
        answer = send(server, transport, timeout_ms=5_000)
        transport.close()
    assert answer == NoReply("the reply was incomplete at the deadline")


def test_closed_port_means_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    answer = send(RawServer(port), Transport(SystemClock()))
    assert answer == NotSent("no connection: Connection refused")


def test_unresolvable_host_means_not_sent() -> None:
    request = HttpRequest("GET", "http://no-such-host.invalid", "/", {})
    answer = Transport(SystemClock()).send(request, timeout_ms=PATIENCE_MS)
    assert isinstance(answer, NotSent)


def test_closed_transport_sends_nothing() -> None:
    with raw_server([OK]) as server:
        transport = Transport(SystemClock())
        transport.close()
        assert send(server, transport) == NotSent("the store is closed")
        assert server.received == []


def test_connection_is_reused() -> None:
    with raw_server([OK, OK, OK]) as server:
        transport = Transport(SystemClock())
        answers = [send(server, transport) for _ in range(3)]
        transport.close()
    assert all(isinstance(answer, HttpReply) for answer in answers)
    assert server.connections == 1


def test_long_idle_connection_is_replaced() -> None:
    clock = ShiftedClock()
    with raw_server([OK], [OK]) as server:
        transport = Transport(clock)
        send(server, transport)
        clock.ahead_ms += CONNECTION_IDLE_MS_MAX
        assert isinstance(send(server, transport), HttpReply)
        transport.close()
    assert server.connections == 2


def test_connection_closed_by_the_server_is_replaced() -> None:
    with raw_server([OK], [OK]) as server:
        transport = Transport(SystemClock())
        assert isinstance(send(server, transport), HttpReply)
        assert server.hung_up.wait(60)
        assert isinstance(send(server, transport), HttpReply)
        transport.close()
    assert server.connections == 2


def test_forked_child_opens_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server([OK], [OK]) as server:
        transport = Transport(SystemClock())
        send(server, transport)
        parent = transport._pools
        monkeypatch.setattr(os, "getpid", lambda: -1)
        assert isinstance(send(server, transport), HttpReply)
        assert transport._pools is not parent
        transport.close()
        for pool in parent.values():
            pool.connections.close()
    assert server.connections == 2


@pytest.mark.parametrize("reply", [OK, OK[:-1], b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n", None])
def test_secret_query_is_sent_but_not_logged(
    reply: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with raw_server([reply]) as server:
        transport = Transport(SystemClock(), secret_query=SECRET)
        answer = send(server, transport, timeout_ms=200)
        transport.close()
        server.wait_for_request()
    assert server.received[0].startswith(f"GET /bucket/key?a=b&{SECRET} HTTP/1.1".encode())
    assert "secret" not in caplog.text
    assert "secret" not in repr(answer)


def test_environment_proxy_receives_the_full_url(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server([OK]) as server:
        monkeypatch.setenv("http_proxy", server.origin)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        transport = Transport(SystemClock())
        request = HttpRequest("GET", "http://store.invalid:9000", "/key", {"host": "store.invalid"})
        assert isinstance(transport.send(request, timeout_ms=PATIENCE_MS), HttpReply)
        transport.close()
    assert server.received[0].startswith(b"GET http://store.invalid:9000/key HTTP/1.1\r\n")


def test_host_excluded_by_the_environment_bypasses_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert isinstance(once([OK]), HttpReply)


def test_unreachable_proxy_means_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    request = HttpRequest("GET", "http://store.invalid", "/", {})
    assert isinstance(Transport(SystemClock()).send(request, timeout_ms=PATIENCE_MS), NotSent)


def test_connection_with_a_trusted_certificate_is_reused(tmp_path: Path) -> None:
    tls, certificate = self_signed(tmp_path)
    with raw_server([OK, OK], tls=tls) as server:
        transport = Transport(SystemClock(), ca_file=str(certificate))
        assert isinstance(send(server, transport), HttpReply)
        assert isinstance(send(server, transport, method="PUT", body=b"x" * 100_000), HttpReply)
        transport.close()
    assert server.connections == 1


def test_untrusted_certificate_means_not_sent(tmp_path: Path) -> None:
    tls, _ = self_signed(tmp_path)
    with raw_server([OK], tls=tls) as server:
        transport = Transport(SystemClock())
        answer = send(server, transport)
        transport.close()
    assert isinstance(answer, NotSent)
    assert "certificate" in answer.cause
    assert server.received == []


def test_unloadable_certificate_authorities_are_reported(tmp_path: Path) -> None:
    request = HttpRequest("GET", "https://host", "/", {})
    for file in (tmp_path / "absent.pem", Path(__file__)):
        with pytest.raises(ConfigInvalid, match=file.name):
            Transport(SystemClock(), ca_file=str(file)).send(request, timeout_ms=1_000)


def test_invalid_proxy_url_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "socks9://me:hidden@host")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    request = HttpRequest("GET", "http://store.invalid", "/", {})
    with pytest.raises(ConfigInvalid, match="HTTP_PROXY") as caught:
        Transport(SystemClock()).send(request, timeout_ms=1_000)
    assert "hidden" not in str(caught.value)
