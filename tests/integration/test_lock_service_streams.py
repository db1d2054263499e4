"""Streams of the lock service: locks held by an open response, and events with a cursor."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import h2.connection
import httpx
import pytest

from testkit.lockserver import ServiceProcess
from tests.integration.lock_service import Http, eventually
from tidelock.lock.server import grpc_messages
from tidelock.lock.server.grpc import LOCKS, PACKAGE, STREAM_LOCKS

pytestmark = pytest.mark.xdist_group("lock-service-streams")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("streams")
    args = ["--allow-force"]
    with ServiceProcess(str(folder / "store"), args, log=folder / "log") as running:
        yield running


@pytest.fixture
def http(service: ServiceProcess) -> Iterator[Http]:
    client = Http(service.url)
    yield client
    client.close()


def test_stream_holds_the_lock_and_its_end_releases_it(http: Http) -> None:
    with http.stream("ends", ttl="60s") as stream:
        line = stream.next()
        assert line is not None
        assert line["type"] == "lock-acquired"
        assert line["token"] > 0
        assert http.lock("ends", immediate=True).status == 409
    assert http.lock("ends", wait="20s").status == 200


def test_stream_pings_while_holding_and_while_waiting(http: Http) -> None:
    with http.stream("pings", ttl="1s") as holder, http.stream("pings", ttl="1s") as waiter:
        holder.next()
        assert holder.next(skip_pings=False) == {"type": "ping"}
        assert waiter.next(skip_pings=False) == {"type": "ping"}


def test_immediate_stream_on_a_locked_resource_ends_with_an_error_line(
    service: ServiceProcess, http: Http
) -> None:
    with http.stream("busy") as holder:
        holder.next()
        with http.stream("busy", immediate=True) as other:
            assert other.status == 409
            assert other.reply.headers["content-type"] == "application/x-ndjson"
            line = other.next()
            assert line is not None
            assert (line["type"], line["errorCode"]) == ("error", "ERR_RESOURCE_LOCKED")
            assert line["error"] == "the resource is already locked"
            assert other.next() is None, "the stream is closed after the error"
        # A stream can be requested in the body as well, over HTTP/2 too.
        with httpx.Client(http1=False, http2=True) as client:
            options = {"immediate": True, "stream": True}
            response = client.post(f"{service.url}/v1.0-alpha2/lock/busy", json=options)
            assert (response.status_code, response.http_version) == (409, "HTTP/2")
            assert response.headers["content-type"] == "application/x-ndjson"
            assert response.text.endswith("\n")
            assert response.json()["type"] == "error"


def test_requests_for_json_lines_get_errors_as_json_lines(http: Http) -> None:
    for options, status, code in [
        ({"ttl": "soon"}, 400, "ERR_MALFORMED_REQUEST"),
        ({"store": "nowhere"}, 400, "ERR_LOCK_STORE_NOT_FOUND"),
        ({"lockID": "gone"}, 404, "ERR_LOCK_NOT_FOUND"),
    ]:
        with http.stream("wrong", **options) as stream:
            assert stream.status == status
            assert stream.reply.headers["content-type"] == "application/x-ndjson"
            line = stream.next()
            assert line is not None
            assert (line["type"], line["errorCode"]) == ("error", code)
            assert stream.next() is None


def test_streams_are_granted_in_order_of_arrival(http: Http) -> None:
    streams = [http.stream("fifo")]
    streams[0].next()
    for number in range(1, 4):
        streams.append(http.stream("fifo"))
        eventually(lambda number=number: http.status("fifo")["waiters"] == number)
    tokens = []
    for stream in streams[1:]:
        streams[streams.index(stream) - 1].close()
        line = stream.next()
        assert line is not None
        tokens.append(line["token"])
    assert tokens == sorted(tokens)
    streams[-1].close()


def test_disconnected_waiter_leaves_the_queue(http: Http) -> None:
    with http.stream("leaver") as holder:
        holder.next()
        waiter = http.stream("leaver")
        assert eventually(lambda: http.status("leaver")["waiters"] == 1)
        waiter.close()
        assert eventually(lambda: http.status("leaver")["waiters"] == 0)


def test_forced_release_ends_the_stream_with_an_error(http: Http) -> None:
    with http.stream("forced") as stream:
        stream.next()
        assert http("DELETE", "/v1.0-alpha2/lock/forced").status == 204
        line = stream.next()
        assert line is not None
        assert line["type"] == "error"
        assert "forced" in line["error"]
        assert stream.next() is None


def test_lingering_lock_is_resumed_by_another_stream(http: Http) -> None:
    first = http.stream("linger", ttl="60s", linger="60s")
    line = first.next()
    assert line is not None
    first.close()
    eventually(lambda: http.status("linger")["expiresInMs"] is not None)
    assert http.lock("linger", immediate=True).status == 409
    with http.stream("linger", lockID=line["lockID"]) as second:
        again = second.next()
        assert again is not None
        assert (again["lockID"], again["token"]) == (line["lockID"], line["token"])


def test_streams_carry_a_warning_over_http_1_but_not_over_http_2(
    service: ServiceProcess, http: Http
) -> None:
    with http.stream("version") as stream:
        assert "use HTTP/2" in stream.reply.headers["warning"]
    with (
        httpx.Client(http1=False, http2=True) as client,
        client.stream(
            "POST",
            f"{service.url}/v1.0-alpha2/lock/version2",
            headers={"accept": "application/x-ndjson"},
        ) as reply,
    ):
        assert reply.http_version == "HTTP/2"
        assert "warning" not in reply.headers
        assert "lock-acquired" in next(reply.iter_lines())


def test_cancelled_http_2_stream_releases_its_lock(service: ServiceProcess, http: Http) -> None:
    client = h2.connection.H2Connection()
    client.initiate_connection()
    headers = {
        ":method": "POST",
        ":path": "/v1.0-alpha2/lock/reset",
        ":scheme": "http",
        ":authority": "localhost",
        "accept": "application/x-ndjson",
    }
    client.send_headers(1, list(headers.items()), end_stream=True)
    with socket.create_connection(("127.0.0.1", service.http_port)) as connection:
        connection.sendall(client.data_to_send())
        eventually(lambda: http.status("reset")["locked"])
        # The connection stays open; only one stream on it is cancelled.
        client.reset_stream(1)
        connection.sendall(client.data_to_send())
        eventually(lambda: not http.status("reset")["locked"])
        assert not http.status("reset")["locked"]


def test_events_arrive_once_in_order_and_resume_by_cursor(http: Http) -> None:
    start = http.status("evented")["cursor"]
    path = f"/v1.0-alpha2/events?after={start}&resource=evented"
    for _ in range(5):
        held = http.lock("evented", owner="me").json
        http.unlock("evented", held["lockID"])
    seen = []
    with http.lines("GET", path) as events:
        for _ in range(10):
            line = events.next()
            assert line is not None
            seen.append(line)
    assert [line["event"] for line in seen] == ["granted", "ended"] * 5
    cursors = [line["cursor"] for line in seen]
    assert cursors == sorted(set(cursors))
    assert not any("lockID" in line for line in seen), "the id is its holder's secret"
    with http.lines("GET", f"/v1.0-alpha2/events?after={cursors[6]}&resource=evented") as rest:
        assert [rest.next() for _ in range(3)] == seen[7:]


def test_unknown_cursor_is_refused(http: Http) -> None:
    with http.lines("GET", "/v1.0-alpha2/events?after=999999999") as events:
        line = events.next()
        assert line is not None
        assert (line["type"], line["errorCode"]) == ("error", "ERR_NOT_FOUND")
    assert http("GET", "/v1.0-alpha2/events?after=x").status == 400


def test_stopped_client_keeps_its_lock_and_killed_client_loses_it(
    service: ServiceProcess, http: Http, tmp_path: Path
) -> None:
    import subprocess
    import sys

    code = (
        "import urllib3, sys\n"
        "r = urllib3.request('POST', sys.argv[1], body='{\"ttl\":\"1s\"}',"
        " headers={'accept': 'application/x-ndjson'}, preload_content=False)\n"
        "print(r.read1(100), flush=True)\n"
        "r.read()\n"
    )
    url = f"{service.url}/v1.0-alpha2/lock/victim"
    victim = subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    victim.stdout.readline()
    victim.send_signal(signal.SIGSTOP)
    time.sleep(1.5)  # longer than a ping interval
    assert http.status("victim")["locked"], "the kernel still answers for a stopped process"
    victim.kill()
    victim.wait()
    victim.stdout.close()
    eventually(lambda: not http.status("victim")["locked"], within_s=60)


def test_grpc_streams_hold_and_release(service: ServiceProcess, http: Http) -> None:
    method = grpc_messages.method(STREAM_LOCKS, "Lock")
    with grpc.insecure_channel(service.grpc_address) as channel:
        lock = channel.unary_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )
        call = lock(method.request(resource_id="streamed"))
        first = next(call)
        assert first.HasField("lock_acquired")
        assert http.status("streamed")["token"] == first.lock_acquired.token
        refused = lock(method.request(resource_id="streamed", immediate=True))
        with pytest.raises(grpc.RpcError) as error:
            next(refused)
        assert error.value.code() is grpc.StatusCode.ABORTED
        http("DELETE", "/v1.0-alpha2/lock/streamed")
        with pytest.raises(grpc.RpcError, match="forced"):
            next(call)
        second = lock(method.request(resource_id="streamed"))
        next(second)
        second.cancel()
        eventually(lambda: not http.status("streamed")["locked"])


def test_grpc_events_resume_by_cursor(service: ServiceProcess, http: Http) -> None:
    start = http.status("gevented")["cursor"]
    http.unlock("gevented", http.lock("gevented").json["lockID"])
    method = grpc_messages.method(LOCKS, "Events")
    with grpc.insecure_channel(service.grpc_address) as channel:
        events = channel.unary_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )
        call = events(method.request(after=start, resource_id="gevented"))
        seen = [next(call).event for _ in range(2)]
        assert [event.event for event in seen] == ["granted", "ended"]
        again = events(method.request(after=seen[0].cursor, resource_id="gevented"))
        assert next(again).event == seen[1]
        call.cancel(), again.cancel()


def test_many_streams_share_one_connection(service: ServiceProcess, http: Http) -> None:
    method = grpc_messages.method(STREAM_LOCKS, "Lock")

    async def hold(channel: grpc.aio.Channel, number: int, ready: asyncio.Barrier) -> None:
        lock = channel.unary_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )
        call = lock(method.request(resource_id=f"many-{number}"))
        while not (await call.read()).HasField("lock_acquired"):
            pass
        await ready.wait()
        call.cancel()

    async def scenario() -> None:
        ready = asyncio.Barrier(1_001)
        async with grpc.aio.insecure_channel(service.grpc_address) as channel:
            tasks = [asyncio.ensure_future(hold(channel, n, ready)) for n in range(1_000)]
            async with asyncio.timeout(120):
                held = asyncio.ensure_future(ready.wait())
                await asyncio.wait({held, *tasks}, return_when=asyncio.FIRST_EXCEPTION)
                await asyncio.gather(*tasks)

    asyncio.run(scenario())
    assert PACKAGE in method.path
    eventually(lambda: b"streams 0.0\n" in http("GET", "/metrics").body)
    assert b'lockservice_held{store="lockstore"} ' in http("GET", "/metrics").body


def test_hundreds_of_waiters_acquire_the_lock_in_turn(service: ServiceProcess) -> None:
    from tidelock.lock.server.async_client import AsyncLockClient

    tokens: list[int] = []
    before = threading.active_count()

    async def one(client: AsyncLockClient) -> None:
        async with client.lock("crowd", wait_s=200) as held:
            tokens.append(held.token)

    async def scenario() -> None:
        async with AsyncLockClient(service.grpc_address) as client:
            await asyncio.gather(*(one(client) for _ in range(200)))

    asyncio.run(scenario())
    assert len(tokens) == 200
    assert tokens == sorted(set(tokens))
    assert threading.active_count() - before < 100
