"""The fault-injecting proxy, in front of a small HTTP server that records requests."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from testkit.proxy import (
    Delay,
    Fault,
    FaultProxy,
    Pass,
    ReplyLost,
    ReplyReset,
    Request,
    RequestLost,
    RequestReset,
    Stall,
    Status,
    Truncate,
    on,
)

GIVE_UP_MS = 60_000


@dataclass
class Origin:
    """The upstream: stores objects by path, and records every request line and Host header."""

    objects: dict[str, bytes] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    endpoint: str = ""


@pytest.fixture
def origin() -> Iterator[Origin]:
    state = Origin()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._note()
            body = state.objects.get(self.path.partition("?")[0])
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            if self.path.endswith("?chunked"):
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for byte in body:
                    self.wfile.write(b"1\r\n" + bytes([byte]) + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")
                return
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_PUT(self) -> None:
            self._note()
            state.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(201)
            self.send_header("ETag", '"one"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_DELETE(self) -> None:
            self._note()
            state.objects.pop(self.path, None)
            self.send_response(204)
            self.end_headers()

        def _note(self) -> None:
            state.lines.append(f"{self.command} {self.path}")
            state.hosts.append(self.headers["Host"])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def proxy(origin: Origin) -> Iterator[FaultProxy]:
    with FaultProxy(origin.endpoint) as running:
        yield running


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[http.client.HTTPConnection]:
    connection = connect(proxy)
    yield connection
    connection.close()


def connect(proxy: FaultProxy, *, timeout_s: float = 30.0) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", urlsplit(proxy.endpoint).port, timeout=timeout_s)


def call(
    client: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> tuple[int, bytes]:
    client.request(method, path, body=body)
    reply = client.getresponse()
    return reply.status, reply.read()


def test_requests_pass_unchanged_without_an_injected_fault(
    origin: Origin, proxy: FaultProxy, client: http.client.HTTPConnection
) -> None:
    assert call(client, "PUT", "/a%20b//c", b"body") == (201, b"")
    assert call(client, "GET", "/a%20b//c") == (200, b"body")
    assert call(client, "DELETE", "/a%20b//c") == (204, b"")
    assert call(client, "GET", "/a%20b//c")[0] == 404
    assert origin.lines == [f"{method} /a%20b//c" for method in ("PUT", "GET", "DELETE", "GET")]
    assert [record.upstream_status for record in proxy.records()] == [201, 200, 204, 404]


def test_one_connection_serves_many_requests(client: http.client.HTTPConnection) -> None:
    call(client, "PUT", "/k", b"v")
    before = client.sock.getsockname()
    call(client, "GET", "/k")
    assert client.sock.getsockname() == before


def test_host_header_reaches_the_upstream_unchanged(
    origin: Origin, client: http.client.HTTPConnection
) -> None:
    client.request("PUT", "/k", body=b"v", headers={"Host": "bucket.example:1234"})
    client.getresponse().read()
    assert origin.hosts == ["bucket.example:1234"]


def test_leading_slashes_of_a_target_are_kept(
    proxy: FaultProxy, client: http.client.HTTPConnection
) -> None:
    call(client, "GET", "//double?x=1")
    (record,) = proxy.records()
    assert (record.request.path, record.request.query) == ("//double", "x=1")


def test_head_has_the_content_length_of_the_omitted_body(
    client: http.client.HTTPConnection,
) -> None:
    call(client, "PUT", "/k", b"12345")
    client.request("HEAD", "/k")
    reply = client.getresponse()
    assert (reply.status, reply.headers["Content-Length"], reply.read()) == (200, "5", b"")
    assert call(client, "GET", "/k") == (200, b"12345")


def test_chunked_reply_arrives_complete(client: http.client.HTTPConnection) -> None:
    call(client, "PUT", "/k", b"chunks")
    assert call(client, "GET", "/k?chunked") == (200, b"chunks")


def test_chunked_request_arrives_complete(
    origin: Origin, client: http.client.HTTPConnection
) -> None:
    client.request("PUT", "/k", body=iter([b"one ", b"two"]), encode_chunked=True)
    assert client.getresponse().read() == b""
    assert origin.objects["/k"] == b"one two"


def test_expect_100_continue_is_answered_before_the_body_is_sent(
    origin: Origin, proxy: FaultProxy
) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(proxy.endpoint).port or 0), 10) as raw:
        raw.sendall(
            b"PUT /k HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        )
        assert raw.recv(1_024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert origin.lines == []
        raw.sendall(b"body")
        assert raw.recv(1_024).startswith(b"HTTP/1.1 201 ")
    assert origin.objects["/k"] == b"body"


@pytest.mark.parametrize("fault", [ReplyLost(), ReplyReset()])
def test_lost_reply_lets_the_write_succeed(
    origin: Origin, proxy: FaultProxy, client: http.client.HTTPConnection, fault: Fault
) -> None:
    proxy.inject(fault, when=on(method="PUT"))
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        call(client, "PUT", "/k", b"v")
    assert origin.objects == {"/k": b"v"}
    (record,) = proxy.records()
    assert (record.fault, record.forwarded, record.upstream_status) == (fault, True, 201)


@pytest.mark.parametrize("fault", [RequestLost(), RequestReset()])
def test_lost_request_never_reaches_the_upstream(
    origin: Origin, proxy: FaultProxy, client: http.client.HTTPConnection, fault: Fault
) -> None:
    proxy.inject(fault)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        call(client, "PUT", "/k", b"v")
    assert origin.lines == []
    (record,) = proxy.records()
    assert (record.fault, record.forwarded, record.upstream_status) == (fault, False, None)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (ReplyLost(), http.client.RemoteDisconnected),
        (RequestLost(), http.client.RemoteDisconnected),
        (ReplyReset(), ConnectionResetError),
        (RequestReset(), ConnectionResetError),
    ],
)
def test_reset_is_distinguished_from_an_orderly_close(
    proxy: FaultProxy, client: http.client.HTTPConnection, fault: Fault, error: type[Exception]
) -> None:
    proxy.inject(fault)
    with pytest.raises(error) as caught:
        call(client, "PUT", "/k", b"v")
    # RemoteDisconnected is itself a ConnectionResetError, so the exact class is compared.
    assert caught.type is error


def test_status_without_forwarding_leaves_the_upstream_untouched(
    origin: Origin, proxy: FaultProxy, client: http.client.HTTPConnection
) -> None:
    proxy.inject(Status(429, headers={"Retry-After": "7"}, body=b"slow"))
    client.request("PUT", "/k", body=b"v")
    reply = client.getresponse()
    assert (reply.status, reply.headers["Retry-After"], reply.read()) == (429, "7", b"slow")
    assert origin.lines == []
    assert call(client, "PUT", "/k", b"v")[0] == 201


def test_status_after_forwarding_hides_a_successful_write(
    origin: Origin, proxy: FaultProxy, client: http.client.HTTPConnection
) -> None:
    proxy.inject(Status(503, forward_first=True))
    assert call(client, "PUT", "/k", b"v")[0] == 503
    assert origin.objects == {"/k": b"v"}
    assert proxy.records()[0].upstream_status == 201


def test_delayed_request_arrives_after_its_client_gave_up(
    origin: Origin, proxy: FaultProxy
) -> None:
    event = threading.Event()
    proxy.inject(Delay(GIVE_UP_MS, until=event))
    impatient = connect(proxy, timeout_s=0.05)
    with pytest.raises(TimeoutError):
        call(impatient, "PUT", "/k", b"late")
    impatient.close()
    assert origin.objects == {}
    event.set()
    proxy.wait_for(lambda records: records[0].upstream_status == 201)
    assert origin.objects == {"/k": b"late"}


def test_delay_without_an_event_ends_by_itself(
    proxy: FaultProxy, client: http.client.HTTPConnection
) -> None:
    proxy.inject(Delay(5))
    assert call(client, "PUT", "/k", b"v")[0] == 201
    assert proxy.fired(Delay) == 1


@pytest.mark.parametrize("forward_first", [True, False])
def test_stall_holds_the_client_and_then_closes(
    origin: Origin, proxy: FaultProxy, *, forward_first: bool
) -> None:
    proxy.inject(Stall(5, forward_first=forward_first))
    client = connect(proxy)
    with pytest.raises(http.client.RemoteDisconnected):
        call(client, "PUT", "/k", b"v")
    assert bool(origin.objects) is forward_first
    assert proxy.records()[0].forwarded is forward_first


def test_stalled_reply_arrives_when_the_event_is_set(origin: Origin, proxy: FaultProxy) -> None:
    event = threading.Event()
    proxy.inject(Stall(GIVE_UP_MS, forward_first=True, then_reply=True, until=event))
    client = connect(proxy)
    client.request("PUT", "/k", body=b"v")
    proxy.wait_for(lambda records: bool(records) and records[0].upstream_status == 201)
    assert origin.objects == {"/k": b"v"}
    event.set()
    assert client.getresponse().status == 201
    client.close()


def test_truncated_reply_keeps_its_headers_and_loses_the_rest(
    proxy: FaultProxy, client: http.client.HTTPConnection
) -> None:
    call(client, "PUT", "/k", b"0123456789")
    proxy.inject(Truncate(4))
    client.request("GET", "/k")
    reply = client.getresponse()
    assert reply.headers["Content-Length"] == "10"
    with pytest.raises(http.client.IncompleteRead) as cut:
        reply.read()
    assert cut.value.partial == b"0123"


def test_rules_fire_in_order_and_only_as_often_as_configured(
    proxy: FaultProxy, client: http.client.HTTPConnection
) -> None:
    proxy.inject(Status(409), when=on(method="PUT"), times=2)
    proxy.inject(Status(503), when=on(path_contains="lock"))
    assert call(client, "GET", "/lock")[0] == 503
    assert [call(client, "PUT", "/lock", b"v")[0] for _ in range(3)] == [409, 409, 201]
    proxy.inject(Status(500), when=on(header="If-Match"))
    assert call(client, "PUT", "/lock", b"v")[0] == 201
    proxy.clear()
    client.request("PUT", "/lock", body=b"v", headers={"if-match": "x"})
    assert client.getresponse().status == 201


def test_callback_decides_before_injected_faults(origin: Origin) -> None:
    def decide(request: Request) -> Fault | None:
        return Pass() if request.body == b"spare me" else None

    with FaultProxy(origin.endpoint, decide=decide) as proxy:
        proxy.inject(Status(500), times=2)
        client = connect(proxy)
        assert call(client, "PUT", "/k", b"spare me")[0] == 201
        assert call(client, "PUT", "/k", b"other")[0] == 500
        client.close()


def test_unreachable_upstream_gives_502(proxy: FaultProxy) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with FaultProxy(f"http://127.0.0.1:{unused.getsockname()[1]}") as lonely:
            client = connect(lonely)
            assert call(client, "GET", "/k")[0] == 502
            client.close()
            assert lonely.records()[0].upstream_status is None


def test_stop_drops_held_requests_without_forwarding_them(origin: Origin) -> None:
    proxy = FaultProxy(origin.endpoint)
    proxy.start()
    proxy.inject(Delay(GIVE_UP_MS))
    client = connect(proxy)
    client.request("PUT", "/k", body=b"v")
    proxy.wait_for(lambda records: len(records) == 1)
    proxy.stop()
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        client.getresponse()
    client.close()
    assert origin.lines == []


def test_invalid_upstream_address_is_refused() -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        FaultProxy("https://example.org")


def test_many_concurrent_clients_are_all_recorded(origin: Origin, proxy: FaultProxy) -> None:
    def put(number: int) -> None:
        client = connect(proxy)
        call(client, "PUT", f"/{number}", b"v")
        client.close()

    threads = [threading.Thread(target=put, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(origin.objects) == sorted(f"/{number}" for number in range(32))
    assert [record.number for record in proxy.records()] == list(range(32))
