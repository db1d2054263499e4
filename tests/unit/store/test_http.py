"""The transport against servers that break off, dawdle, or go away."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.store.certificates import self_signed
from tests.unit.store.raw import OK, RawServer, raw_server
from tidelock.base.clock import Now, SystemClock
from tidelock.base.errors import ConfigInvalid
from tidelock.base.limits import CONNECTION_IDLE_MS_MAX
from tidelock.store.http import Answer, NoReply, NotSent, Reply, Request, Transport

SECRET = "sv=2022&sig=very%2Fsecret"


@dataclass
class ShiftedClock:
    """The machine's clock, set forward by the test."""

    ahead_ms: int = 0

    def now(self) -> Now:
        now = SystemClock().now()
        return Now(now.monotonic_ms + self.ahead_ms, now.wall_epoch_ms + self.ahead_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self.ahead_ms += int(duration_ms)


class StridingClock(ShiftedClock):
    """A clock that goes on by ten seconds each time somebody looks."""

    def now(self) -> Now:
        self.ahead_ms += 10_000
        return super().now()


def send(
    server: RawServer,
    transport: Transport,
    *,
    method: str = "GET",
    body: bytes | None = None,
    timeout_ms: float = 5_000,
) -> Answer:
    request = Request(method, server.origin, "/bucket/key?a=b", {"x-test": "1"}, body)
    return transport.send(request, timeout_ms=timeout_ms)


def once(
    *connections: list[bytes | None], method: str = "GET", timeout_ms: float = 5_000
) -> Answer:
    with raw_server(*connections) as server:
        transport = Transport(SystemClock())
        answer = send(server, transport, method=method, timeout_ms=timeout_ms)
        transport.close()
        assert len(server.heard) == 1, "a request is sent once, whatever comes back"
    return answer


def test_a_whole_reply_comes_back_with_status_headers_and_body() -> None:
    answer = once([OK])
    assert isinstance(answer, Reply)
    assert (answer.status, answer.body, answer.headers.get("etag")) == (200, b"ok", '"e"')


def test_a_body_is_sent_without_waiting_for_a_100_continue() -> None:
    with raw_server([OK]) as server:
        transport = Transport(SystemClock())
        send(server, transport, method="PUT", body=b"hello")
        transport.close()
    [heard] = server.heard
    assert heard.startswith(b"PUT /bucket/key?a=b HTTP/1.1\r\n")
    assert heard.endswith(b"\r\n\r\nhello")
    assert b"expect" not in heard.lower()


def test_a_chunked_reply_is_whole() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    answer = once([chunked])
    assert isinstance(answer, Reply)
    assert answer.body == b"abc"


@pytest.mark.parametrize("cut", range(len(OK)))
def test_a_reply_cut_anywhere_is_no_reply(cut: int) -> None:
    assert isinstance(once([OK[:cut]]), NoReply)


def test_a_chunked_reply_cut_before_its_end_is_no_reply() -> None:
    cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"
    assert isinstance(once([cut]), NoReply)


def test_a_success_without_a_length_is_no_reply() -> None:
    answer = once([b"HTTP/1.1 200 OK\r\nETag: e\r\n\r\nperhaps not all"])
    assert answer == NoReply("the reply does not say how long it is")


def test_an_error_without_a_length_is_a_reply() -> None:
    answer = once([b"HTTP/1.1 503 Busy\r\n\r\nperhaps not all"])
    assert isinstance(answer, Reply)
    assert answer.status == 503


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"]
)
def test_a_reply_to_head_or_without_content_needs_no_body(head: bytes) -> None:
    answer = once([head], method="HEAD")
    assert isinstance(answer, Reply)
    assert answer.body == b""


def test_a_redirect_is_not_followed() -> None:
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    answer = once([moved])
    assert isinstance(answer, Reply)
    assert answer.status == 307


def test_a_server_error_is_not_sent_again() -> None:
    answer = once([b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"])
    assert isinstance(answer, Reply)
    assert answer.status == 503


def test_silence_is_no_reply_after_the_time_out() -> None:
    assert once([None], timeout_ms=50) == NoReply("no reply within 50 ms")


def test_a_body_that_trickles_in_beyond_its_time_is_no_reply() -> None:
    with raw_server([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", None]) as server:
        transport = Transport(StridingClock())
        answer = send(server, transport)
        transport.close()
    assert answer == NoReply("the reply was still arriving when its time was over")


def test_a_port_where_nobody_listens_is_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    answer = send(RawServer(port), Transport(SystemClock()))
    assert answer == NotSent("no connection: Connection refused")


def test_a_host_without_an_address_is_not_sent() -> None:
    request = Request("GET", "http://no-such-host.invalid", "/", {})
    answer = Transport(SystemClock()).send(request, timeout_ms=5_000)
    assert isinstance(answer, NotSent)


def test_a_closed_transport_sends_nothing() -> None:
    with raw_server([OK]) as server:
        transport = Transport(SystemClock())
        transport.close()
        assert send(server, transport) == NotSent("the store is closed")
        assert server.heard == []


def test_a_connection_is_used_again() -> None:
    with raw_server([OK, OK, OK]) as server:
        transport = Transport(SystemClock())
        answers = [send(server, transport) for _ in range(3)]
        transport.close()
    assert all(isinstance(answer, Reply) for answer in answers)
    assert server.connections == 1


def test_a_connection_idle_for_long_is_replaced() -> None:
    clock = ShiftedClock()
    with raw_server([OK], [OK]) as server:
        transport = Transport(clock)
        send(server, transport)
        clock.ahead_ms += CONNECTION_IDLE_MS_MAX
        assert isinstance(send(server, transport), Reply)
        transport.close()
    assert server.connections == 2


def test_a_connection_that_the_server_closed_is_replaced() -> None:
    with raw_server([OK], [OK]) as server:
        transport = Transport(SystemClock())
        assert isinstance(send(server, transport), Reply)
        assert server.hung_up.wait(5)
        assert isinstance(send(server, transport), Reply)
        transport.close()
    assert server.connections == 2


def test_a_child_of_a_fork_opens_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server([OK], [OK]) as server:
        transport = Transport(SystemClock())
        send(server, transport)
        parent = transport._pools
        monkeypatch.setattr(os, "getpid", lambda: -1)
        assert isinstance(send(server, transport), Reply)
        assert transport._pools is not parent
        transport.close()
        for pool in parent.values():
            pool.close()
    assert server.connections == 2


@pytest.mark.parametrize("reply", [OK, OK[:-1], b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n", None])
def test_a_secret_query_reaches_the_server_and_no_log(
    reply: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with raw_server([reply]) as server:
        transport = Transport(SystemClock(), secret_query=SECRET)
        answer = send(server, transport, timeout_ms=200)
        transport.close()
    assert server.heard[0].startswith(f"GET /bucket/key?a=b&{SECRET} HTTP/1.1".encode())
    assert "secret" not in caplog.text
    assert "secret" not in repr(answer)


def test_a_proxy_of_the_environment_is_told_the_whole_url(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server([OK]) as server:
        monkeypatch.setenv("http_proxy", server.origin)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        transport = Transport(SystemClock())
        request = Request("GET", "http://store.invalid:9000", "/key", {"host": "store.invalid"})
        assert isinstance(transport.send(request, timeout_ms=5_000), Reply)
        transport.close()
    assert server.heard[0].startswith(b"GET http://store.invalid:9000/key HTTP/1.1\r\n")


def test_a_host_that_the_environment_excludes_is_reached_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert isinstance(once([OK]), Reply)


def test_a_proxy_that_cannot_be_reached_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    request = Request("GET", "http://store.invalid", "/", {})
    assert isinstance(Transport(SystemClock()).send(request, timeout_ms=5_000), NotSent)


def test_a_trusted_certificate_opens_a_connection_that_is_used_again(tmp_path: Path) -> None:
    tls, certificate = self_signed(tmp_path)
    with raw_server([OK, OK], tls=tls) as server:
        transport = Transport(SystemClock(), ca_file=str(certificate))
        assert isinstance(send(server, transport), Reply)
        assert isinstance(send(server, transport, method="PUT", body=b"x" * 100_000), Reply)
        transport.close()
    assert server.connections == 1


def test_a_certificate_that_is_not_trusted_is_not_sent(tmp_path: Path) -> None:
    tls, _ = self_signed(tmp_path)
    with raw_server([OK], tls=tls) as server:
        transport = Transport(SystemClock())
        answer = send(server, transport)
        transport.close()
    assert isinstance(answer, NotSent)
    assert "certificate" in answer.cause
    assert server.heard == []


def test_authorities_that_cannot_be_loaded_are_named(tmp_path: Path) -> None:
    request = Request("GET", "https://host", "/", {})
    for file in (tmp_path / "absent.pem", Path(__file__)):
        with pytest.raises(ConfigInvalid, match=file.name):
            Transport(SystemClock(), ca_file=str(file)).send(request, timeout_ms=1_000)


def test_a_proxy_that_is_no_url_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "socks9://me:hidden@host")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    request = Request("GET", "http://store.invalid", "/", {})
    with pytest.raises(ConfigInvalid, match="HTTP_PROXY") as caught:
        Transport(SystemClock()).send(request, timeout_ms=1_000)
    assert "hidden" not in str(caught.value)
