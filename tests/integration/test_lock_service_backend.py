"""A lock service without its backend reports the outage, grants nothing, and recovers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from testkit.lockserver import ServiceProcess
from testkit.proxy import TcpProxy
from testkit.servers import RunningServer
from testkit.servers.etcd import etcd
from testkit.servers.redis import redis
from tests.contract.lockcomponents import STORE, component_text
from tests.integration.lock_service import Http, Lines, eventually
from tidelock.lock.server import grpc_messages
from tidelock.lock.server.grpc import DAPR, LOCKS, STREAM_LOCKS

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("lock-service-backend")]

Backend = tuple[str, Callable[[], AbstractContextManager[RunningServer]], Callable[[str], Any]]

BACKENDS: Mapping[str, Backend] = {
    "redis": ("lock.redis", redis, lambda address: {"redisHost": address}),
    "etcd": ("lock.etcd", etcd, lambda address: {"endpoints": f"http://{address}"}),
    "etcd-host-and-port": ("lock.etcd", etcd, lambda address: {"endpoints": address}),
}


@contextmanager
def _serving(kind: str, metadata: Mapping[str, str], folder: Path) -> Iterator[ServiceProcess]:
    file = folder / "component.yaml"
    file.write_text(component_text(kind, metadata))
    args = ["--components", str(file)]
    with ServiceProcess(str(folder / "state"), args, log=folder / "serve.log") as service:
        yield service


def _error_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code(), error.value.details()


def _grpc(channel: Any, service: str, name: str, **fields: Any) -> Any:
    method = grpc_messages.method(service, name)
    make = channel.unary_stream if method.streams else channel.unary_unary
    send = make(method.path, method.request.SerializeToString, method.response.FromString)
    return send(method.request(**fields), timeout=60)


def _last_line(stream: Lines) -> dict[str, Any]:
    last: dict[str, Any] = {}
    while (line := stream.next()) is not None:
        last = line
    return last


@pytest.mark.parametrize("name", BACKENDS)
def test_killed_backend_is_reported_unavailable_and_not_as_a_held_lock(
    name: str, tmp_path: Path
) -> None:
    kind, started, metadata = BACKENDS[name]
    with (
        started() as server,
        _serving(kind, metadata(f"{server.host}:{server.port}"), tmp_path) as service,
        grpc.insecure_channel(service.grpc_address) as channel,
    ):
        http = Http(service.url)
        assert http("GET", "/v1.0/healthz/outbound").status == 204
        assert http.lock("before", immediate=True).status == 200
        server.process.popen.kill()
        server.process.popen.wait()

        answer = http.lock("after", immediate=True)
        assert (answer.status, answer.json["errorCode"]) == (503, "ERR_UNAVAILABLE")
        assert "another program" not in answer.body.decode()
        answer = http.lock("after", wait="1s")
        assert (answer.status, answer.json["errorCode"]) == (503, "ERR_UNAVAILABLE")
        request = {"resourceId": "r", "lockOwner": "o", "expiryInSeconds": 5}
        answer = http("POST", f"/v1.0-alpha1/lock/{STORE}", request)
        assert (answer.status, answer.json["errorCode"]) == (503, "ERR_TRY_LOCK")
        with http.stream("after", immediate=True) as stream:
            assert stream.status == 503
            assert _last_line(stream)["errorCode"] == "ERR_UNAVAILABLE"
        with http.stream("after", wait="1s") as stream:
            assert _last_line(stream)["errorCode"] == "ERR_UNAVAILABLE"

        away = grpc.StatusCode.UNAVAILABLE
        fields = {"resource_id": "after", "immediate": True}
        assert _error_of(lambda: _grpc(channel, LOCKS, "Lock", **fields))[0] is away
        assert _error_of(lambda: list(_grpc(channel, STREAM_LOCKS, "Lock", **fields)))[0] is away
        old = {"store_name": STORE, "lock_owner": "o", "expiry_in_seconds": 5}
        assert (
            _error_of(lambda: _grpc(channel, DAPR, "TryLockAlpha1", resource_id="r", **old))[0]
            is away
        )

        ready = http("GET", "/v1.0/healthz/outbound")
        assert (ready.status, ready.json["errorCode"]) == (500, "ERR_OUTBOUND_HEALTH_NOT_READY")
        assert STORE in ready.json["message"]
        assert http("GET", "/v1.0/healthz").status == 204, "the process itself is well"
        log = (tmp_path / "serve.log").read_text()
        assert f"lock store {STORE!r} does not answer" in log
        assert "Traceback" not in log
        http.close()


def test_waiter_keeps_its_queue_position_through_a_short_outage_and_health_recovers(
    tmp_path: Path,
) -> None:
    with redis() as server:
        proxy = TcpProxy(server.host, server.port)
        metadata = {"redisHost": f"127.0.0.1:{proxy.port}"}
        with _serving("lock.redis", metadata, tmp_path) as service:
            http = Http(service.url)
            proxy.shut()
            ready = "/v1.0/healthz/outbound"
            eventually(lambda: http("GET", ready).status == 500)
            with http.stream("patient", wait="120s") as stream:
                eventually(lambda: http.status("patient")["waiters"] == 1)
                proxy.open()
                line = stream.next()
                assert line is not None
                assert line["type"] == "lock-acquired", line
            eventually(lambda: http("GET", ready).status == 204)
            assert "answers again" in (tmp_path / "serve.log").read_text()
            http.close()
        proxy.stop()


def test_waiter_without_a_limit_is_notified_of_a_long_outage(tmp_path: Path) -> None:
    with redis() as server:
        metadata = {"redisHost": f"{server.host}:{server.port}"}
        with _serving("lock.redis", metadata, tmp_path) as service:
            server.process.popen.kill()
            server.process.popen.wait()
            http = Http(service.url)
            answer = http.lock("r")
            assert (answer.status, answer.json["errorCode"]) == (503, "ERR_UNAVAILABLE")
            http.close()


WRONG: Mapping[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "redis without a host": ("lock.redis", {}, ("redisHost",)),
    "redis with a strange port": ("lock.redis", {"redisHost": "localhost:port"}, ("redisHost",)),
    "redis with a strange database": (
        "lock.redis",
        {"redisHost": "localhost:1", "redisDB": "first"},
        ("redisDB", "first"),
    ),
    "redis with a strange flag": (
        "lock.redis",
        {"redisHost": "localhost:1", "enableTLS": "maybe"},
        ("enableTLS", "maybe"),
    ),
    "redis behind sentinels": (
        "lock.redis",
        {"redisHost": "localhost:1", "failover": "true"},
        ("failover",),
    ),
    "etcd without endpoints": ("lock.etcd", {}, ("endpoints",)),
    "etcd with two endpoints": ("lock.etcd", {"endpoints": "a:2379,b:2379"}, ("a:2379,b:2379",)),
    "etcd with a strange URL": ("lock.etcd", {"endpoints": "ftp://a:2379"}, ("ftp://a:2379",)),
    "zookeeper without a path": ("lock.zookeeper", {"url": "localhost:2181"}, ("path",)),
    "storage without a place": ("lock.storage", {}, ("url",)),
    "filesystem without a place": ("lock.filesystem", {}, ("url",)),
    "statestore without a place": ("lock.statestore", {}, ("url",)),
    "hive without a place": ("lock.hive", {}, ("url",)),
    "a TTL below the least": ("lock.inprocess", {"ttl": "1µs"}, ("ttl", "1µs")),
    "a negative TTL": ("lock.inprocess", {"ttl": "-5s"}, ("ttl", "-5s")),
    "a TTL above the greatest": ("lock.inprocess", {"ttl": "2h"}, ("ttl", "2h")),
    "a TTL that is none": ("lock.tidelock", {"ttl": "soon"}, ("ttl", "soon")),
}


@pytest.mark.parametrize("case", WRONG)
def test_broken_component_is_refused_at_startup(case: str, tmp_path: Path) -> None:
    kind, metadata, phrases = WRONG[case]
    file = tmp_path / "component.yaml"
    file.write_text(component_text(kind, metadata))
    code = "from tidelock.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"
    ports = ["--http-port", "0", "--grpc-port", "0"]
    arguments = ["--store", str(tmp_path / "state"), "--components", str(file)]
    ended = subprocess.run(
        [sys.executable, "-c", code, "serve", "--json", *arguments, *ports],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2, ended.stdout + ended.stderr
    reported = json.loads(ended.stdout)["error"] if ended.stdout.strip() else ended.stderr
    text = json.dumps(reported, ensure_ascii=False)
    assert STORE in text
    for phrase in phrases:
        assert phrase in text, text
