"""Edge cases of the lock service: malformed, forbidden, excessive and repeated requests."""

from __future__ import annotations

import json
import random
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import urllib3

from testkit.lockserver import ServiceProcess
from tests.integration.lock_service import Http, eventually
from tests.unit.storage.certificates import self_signed
from tidelock.lock.server import grpc_messages
from tidelock.lock.server.auth import token_hash
from tidelock.lock.server.grpc import DAPR, LOCKS

pytestmark = pytest.mark.xdist_group("lock-service-edges")

SECRET, OTHER, ADMIN = "s3cret" * 8, "0ther" * 9, "adm1n" * 9


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("edges")
    with ServiceProcess(str(folder / "store"), log=folder / "log") as running:
        yield running
    assert "Traceback" not in (folder / "log").read_text()


@pytest.fixture
def http(service: ServiceProcess) -> Iterator[Http]:
    client = Http(service.url)
    yield client
    client.close()


ALPHA1 = "/v1.0-alpha1/lock/lockstore"
GOOD: dict[str, object] = {"resourceId": "r", "lockOwner": "o", "expiryInSeconds": 5}


@pytest.mark.parametrize(
    ("path", "change", "status", "code"),
    [
        (ALPHA1, {"expiryInSeconds": 0}, 400, "ERR_MALFORMED_REQUEST"),
        (ALPHA1, {"expiryInSeconds": -1}, 400, "ERR_MALFORMED_REQUEST"),
        (ALPHA1, {"expiryInSeconds": 2**31 - 1}, 400, "ERR_MALFORMED_REQUEST"),
        (ALPHA1, {"resourceId": ""}, 400, "ERR_MALFORMED_REQUEST"),
        (ALPHA1, {"lockOwner": ""}, 400, "ERR_MALFORMED_REQUEST"),
        (ALPHA1, {"resourceId": "a||b"}, 400, "ERR_TRY_LOCK"),
        ("/v1.0-alpha1/lock/nope", {}, 400, "ERR_LOCK_STORE_NOT_FOUND"),
        ("/v1.0-alpha1/unlock/lockstore", {"lockOwner": ""}, 400, "ERR_MALFORMED_REQUEST"),
        ("/v1.0-alpha1/unlock/lockstore", {"resourceId": "a||b"}, 400, "ERR_UNLOCK"),
        ("/v1.0-alpha2/lock/r", {"ttl": "1"}, 400, "ERR_MALFORMED_REQUEST"),
        ("/v1.0-alpha2/lock/r", {"ttl": "2h"}, 400, "ERR_MALFORMED_REQUEST"),
        ("/v1.0-alpha2/lock/r", {"ttl": "10ms"}, 400, "ERR_MALFORMED_REQUEST"),
        ("/v1.0-alpha2/lock/r", {"immediate": "yes"}, 400, "ERR_MALFORMED_REQUEST"),
        ("/v1.0-alpha2/lock/r", {"wait": "-1s"}, 400, "ERR_MALFORMED_REQUEST"),
        ("/v1.0-alpha2/lock/r", {"store": "nope"}, 400, "ERR_LOCK_STORE_NOT_FOUND"),
        ("/v1.0-alpha2/lock/%00", {}, 400, "ERR_MALFORMED_REQUEST"),
        ("/v1.0-alpha2/lock/" + "x" * 600, {}, 400, "ERR_MALFORMED_REQUEST"),
        ("/v1.0-alpha2/lock/a/b", {}, 404, "ERR_NOT_FOUND"),
    ],
)
def test_invalid_requests_have_dapr_codes(
    http: Http, path: str, change: dict[str, object], status: int, code: str
) -> None:
    answer = http("POST", path, GOOD | change)
    assert (answer.status, answer.json["errorCode"]) == (status, code)


def test_messages_are_the_ones_of_dapr(http: Http) -> None:
    says = http("POST", ALPHA1, GOOD | {"expiryInSeconds": 0}).json["message"]
    assert says == "ExpiryInSeconds is not positive in lock store lockstore"
    assert http("POST", ALPHA1, {}).json["message"] == says
    says = http("POST", ALPHA1, GOOD | {"resourceId": ""}).json["message"]
    assert says == "ResourceId is empty in lock store lockstore"
    says = http("POST", "/v1.0-alpha1/lock/nope", GOOD).json["message"]
    assert says == "lock store nope not found"


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"\xff\xfe", b'{"a":1,"a":2}', b"[" * 10_000, b'{"ttl":NaN}', b"9" * 5_000],
)
def test_non_json_body_is_400(http: Http, body: bytes) -> None:
    for path in (ALPHA1, "/v1.0-alpha1/unlock/lockstore", "/v1.0-alpha2/lock/r"):
        assert http("POST", path, body).status == 400


def test_four_outcomes_are_four_statuses(http: Http) -> None:
    held = http.lock("four").json
    assert http.lock("four", immediate=True).status == 409
    assert http.unlock("four", "wrong").status == 404
    assert http.lock("four", ttl="nonsense").status == 400
    assert http("PATCH", "/v1.0-alpha2/lock/four").status == 405
    assert http.unlock("four", held["lockID"]).status == 204


def test_oversized_body_is_refused_before_it_is_read(service: ServiceProcess) -> None:
    with socket.create_connection(("127.0.0.1", service.http_port), timeout=60) as raw:
        raw.sendall(
            b"POST /v1.0-alpha2/lock/r HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: 999999999\r\n\r\n"
        )
        assert raw.recv(100).startswith(b"HTTP/1.1 400")


def test_endless_headers_do_not_affect_other_clients(service: ServiceProcess, http: Http) -> None:
    slow = [socket.create_connection(("127.0.0.1", service.http_port)) for _ in range(50)]
    for raw in slow:
        raw.sendall(b"POST /v1.0-alpha2/lock/r HTTP/1.1\r\nX-")
    assert http("GET", "/v1.0/healthz").status == 204
    slow[0].settimeout(60)
    assert slow[0].recv(1_000) == b"", "the service hangs up on a request that does not come"
    for raw in slow:
        raw.close()


def test_random_requests_never_break_the_service(http: Http, service: ServiceProcess) -> None:
    """V9: any request gets a response, and never a 5xx."""
    drawn = random.Random(20_26)
    values: list[Any] = [
        "", "x", "a||b", "\u202e", "9" * 600, "../../x", "\0", "1s", "1h", "-1s", "%", "{}",
        0, -1, 2**31, 2**63, 1e308, True, False, None, [], {}, [[[[]]]], "\ud800", "e\u0301",
    ]  # fmt: skip
    names = [
        "resourceId", "lockOwner", "expiryInSeconds", "ttl", "wait", "immediate", "requestID",
        "owner", "autoRenew", "linger", "lockID", "force", "store", "stream",
    ]  # fmt: skip
    paths = [
        "/v1.0-alpha1/lock/lockstore", "/v1.0-alpha1/unlock/lockstore", "/v1.0-alpha1/lock/",
        "/v1.0-alpha2/lock/fuzz", "/v1.0-alpha2/lock/%F0%9F", "/v1.0-alpha2/lock/%2F..%2F",
        "/v1.0-alpha2/lock/", "//", "/%", "/v1.0-alpha2/lock/a?store=%ff",
        "/v1.0-alpha2/lock/a?&&=",
    ]  # fmt: skip
    for _ in range(400):
        body = {name: drawn.choice(values) for name in drawn.sample(names, drawn.randint(0, 6))}
        body |= {"immediate": True} if drawn.random() < 0.9 else {}
        if body.get("immediate") is not True or body.get("stream") is True:
            body |= {"immediate": True, "stream": False}
        method = drawn.choice(["POST", "PUT", "DELETE", "GET"])
        answer = http(method, drawn.choice(paths), json.dumps(body).encode())
        assert answer.status < 500, (method, body, answer)
    assert service.popen is not None
    assert service.popen.poll() is None


def test_grpc_codes_match_http(service: ServiceProcess) -> None:
    cases: list[tuple[str, str, dict[str, Any], str]] = [
        (DAPR, "TryLockAlpha1", {"store_name": "nope"}, "INVALID_ARGUMENT"),
        (DAPR, "TryLockAlpha1", {"expiry_in_seconds": 5}, "INVALID_ARGUMENT"),
        (
            DAPR,
            "TryLockAlpha1",
            {"expiry_in_seconds": 5, "resource_id": "a", "lock_owner": "b", "store_name": "nope"},
            "INVALID_ARGUMENT",
        ),
        (DAPR, "UnlockAlpha1", {"store_name": "lockstore"}, "INVALID_ARGUMENT"),
        (LOCKS, "Lock", {}, "INVALID_ARGUMENT"),
        (LOCKS, "Unlock", {"resource_id": "a", "lock_id": "b"}, "NOT_FOUND"),
        (LOCKS, "Renew", {"resource_id": "a", "lock_id": "b"}, "NOT_FOUND"),
        (LOCKS, "ForceUnlock", {"resource_id": "a"}, "PERMISSION_DENIED"),
    ]
    with grpc.insecure_channel(service.grpc_address) as channel:
        for service_name, name, fields, code in cases:
            with pytest.raises(grpc.RpcError) as error:
                call(channel, service_name, name, **fields)
            assert error.value.code().name == code, name
        too_large = {"resource_id": "x" * 100_000}
        with pytest.raises(grpc.RpcError) as error:
            call(channel, LOCKS, "Lock", **too_large)
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def call(channel: Any, service: str, name: str, metadata: Any = None, **fields: Any) -> Any:
    method = grpc_messages.method(service, name)
    send = channel.unary_unary(
        method.path, method.request.SerializeToString, method.response.FromString
    )
    return send(method.request(**fields), metadata=metadata)


def test_http_and_grpc_give_the_same_histories(service: ServiceProcess, http: Http) -> None:
    """V6: the same conversation, step by step, over both."""
    drawn = random.Random(6)
    with grpc.insecure_channel(service.grpc_address) as channel:
        for number in range(40):
            script = [drawn.choice(["lock", "lock", "unlock", "renew", "status"]) for _ in range(8)]
            over_http = _history(script, _HttpVerbs(http, f"h{number}"))
            over_grpc = _history(script, _GrpcVerbs(channel, f"g{number}"))
            assert over_http == over_grpc, script


def _history(script: list[str], verbs: Any) -> list[object]:
    history: list[object] = []
    lock_id, last_token = "none", 0
    for step in script:
        if step == "lock":
            code, found, token = verbs.lock()
            lock_id = found or lock_id
            history.append((step, code, token > last_token if token else None))
            last_token = token or last_token
        elif step == "status":
            history.append((step, verbs.status()))
        else:
            history.append((step, getattr(verbs, step)(lock_id)))
    return history


class _HttpVerbs:
    def __init__(self, http: Http, resource: str) -> None:
        self.http, self.resource = http, resource

    def lock(self) -> tuple[str, str, int]:
        answer = self.http.lock(self.resource, immediate=True, ttl="90s")
        if answer.status == 200:
            return "OK", answer.json["lockID"], answer.json["token"]
        return answer.json["errorCode"], "", 0

    def unlock(self, lock_id: str) -> str:
        return self._code(self.http.unlock(self.resource, lock_id))

    def renew(self, lock_id: str) -> str:
        path = f"/v1.0-alpha2/lock/{self.resource}"
        return self._code(self.http("PUT", path, {"lockID": lock_id, "ttl": "80s"}))

    def status(self) -> tuple[bool, str]:
        found = self.http.status(self.resource)
        return found["locked"], found.get("ttl", "")

    def _code(self, answer: Any) -> str:
        return "OK" if answer.status < 300 else str(answer.json["errorCode"])


class _GrpcVerbs:
    def __init__(self, channel: Any, resource: str) -> None:
        self.channel, self.resource = channel, resource

    def lock(self) -> tuple[str, str, int]:
        try:
            found = self._call("Lock", immediate=True, ttl=_duration(90))
        except grpc.RpcError as error:
            return _code(error), "", 0
        return "OK", found.lock_id, found.token

    def unlock(self, lock_id: str) -> str:
        return self._done("Unlock", lock_id=lock_id)

    def renew(self, lock_id: str) -> str:
        return self._done("Renew", lock_id=lock_id, ttl=_duration(80))

    def status(self) -> tuple[bool, str]:
        found = self._call("Status")
        return found.locked, f"{found.ttl.seconds}s" if found.locked else ""

    def _done(self, name: str, **fields: Any) -> str:
        try:
            self._call(name, **fields)
        except grpc.RpcError as error:
            return _code(error)
        return "OK"

    def _call(self, name: str, **fields: Any) -> Any:
        return call(self.channel, LOCKS, name, resource_id=self.resource, **fields)


def _duration(seconds: int) -> Any:
    return grpc_messages.message("google.protobuf.Duration")(seconds=seconds)


def _code(error: Any) -> str:
    return str(dict(error.trailing_metadata())["error-code"])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    principals = [
        {"name": "blue", "token_sha256": token_hash(SECRET), "namespace": "blue"},
        {"name": "red", "token_sha256": token_hash(OTHER), "namespace": "red"},
        {
            "name": "warden",
            "token_sha256": token_hash(ADMIN),
            "namespace": "blue",
            "permissions": ["read", "force"],
        },
    ]
    file = folder / "principals.json"
    file.write_text(json.dumps({"principals": principals}))
    args = ["--principals", str(file)]
    with ServiceProcess(str(folder / "store"), args, log=folder / "log") as running:
        yield running
    assert SECRET not in (folder / "log").read_text()


def test_token_is_required_except_for_health(guarded: ServiceProcess) -> None:
    http = Http(guarded.url)
    answer = http.lock("r", immediate=True)
    assert (answer.status, answer.body) == (401, b"invalid api token")
    assert http("GET", "/metrics").status == 401
    assert http("GET", "/v1.0/healthz/outbound").status == 204
    with grpc.insecure_channel(guarded.grpc_address) as channel:
        with pytest.raises(grpc.RpcError) as error:
            call(channel, LOCKS, "Status", resource_id="r")
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        found = call(
            channel, LOCKS, "Status", metadata=(("dapr-api-token", SECRET),), resource_id="r"
        )
        assert not found.locked
    http.close()


def test_namespaces_are_isolated(guarded: ServiceProcess) -> None:
    blue = Http(guarded.url, {"dapr-api-token": SECRET})
    red = Http(guarded.url, {"authorization": f"Bearer {OTHER}"})
    start = red.status("shared")["cursor"]
    held = blue.lock("shared", owner="secret-owner").json
    assert red.lock("shared", immediate=True).status == 200, "another lock of the same name"
    assert red.status("shared")["principal"] == "red"
    with red.lines("GET", f"/v1.0-alpha2/events?after={start}") as events:
        line = events.next()
        assert line is not None
        assert "owner" not in line, "blue's grant is not red's to see"
    assert blue.unlock("shared", held["lockID"]).status == 204
    blue.close()
    red.close()


def test_force_requires_its_own_permission(guarded: ServiceProcess) -> None:
    blue = Http(guarded.url, {"dapr-api-token": SECRET})
    warden = Http(guarded.url, {"dapr-api-token": ADMIN})
    held = blue.lock("guarded").json
    assert blue("DELETE", "/v1.0-alpha2/lock/guarded", {"force": True}).status == 403
    assert warden.lock("guarded", immediate=True).status == 403
    assert warden.unlock("guarded", held["lockID"]).status == 403
    assert warden("DELETE", "/v1.0-alpha2/lock/guarded", {"force": True}).status == 204
    blue.close()
    warden.close()


def test_owners_are_bound_to_their_principal(guarded: ServiceProcess) -> None:
    """Guessing an owner's name releases nothing: the token decides, not the body."""
    blue = Http(guarded.url, {"dapr-api-token": SECRET})
    blue("POST", ALPHA1, GOOD)
    held = blue.lock("by-id").json
    red = Http(guarded.url, {"dapr-api-token": OTHER})
    assert red("POST", "/v1.0-alpha1/unlock/lockstore", GOOD).json == {"status": 1}
    assert red.unlock("by-id", held["lockID"]).status == 404
    assert blue("POST", "/v1.0-alpha1/unlock/lockstore", GOOD).json == {"status": 0}
    blue.close()
    red.close()


def test_token_guessing_is_slowed_down(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    args = ["--api-token-file", str(token)]
    with ServiceProcess(str(tmp_path / "store"), args) as service:
        http = Http(service.url, {"dapr-api-token": "wrong"})
        statuses = [http.lock("r", immediate=True).status for _ in range(25)]
        assert statuses[:20] == [401] * 20
        assert statuses[-1] == 429
        http.close()


def test_non_loopback_address_requires_token_and_tls(tmp_path: Path) -> None:
    code = "from tidelock.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"
    base = ["serve", "--store", str(tmp_path), "--host", "0.0.0.0", "--http-port", "0"]
    done = subprocess.run(
        [sys.executable, "-c", code, *base, "--grpc-port", "0"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "no API token is required" in done.stderr


def test_tls_serves_http_1_http_2_and_grpc(tmp_path: Path) -> None:
    _, cert = self_signed(tmp_path)
    key = next(path for path in tmp_path.iterdir() if path != cert)
    args = ["--tls-cert", str(cert), "--tls-key", str(key)]
    with ServiceProcess(str(tmp_path / "store"), args, log=tmp_path / "log") as service:
        url = f"https://127.0.0.1:{service.http_port}/v1.0/healthz"
        with urllib3.PoolManager(ca_certs=str(cert)) as pool:
            assert pool.request("GET", url).status == 204
        context = ssl.create_default_context(cafile=str(cert))
        context.set_alpn_protocols(["h2", "http/1.1"])
        with (
            socket.create_connection(("127.0.0.1", service.http_port)) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as wrapped,
        ):
            assert wrapped.selected_alpn_protocol() == "h2"
        credentials = grpc.ssl_channel_credentials(cert.read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{service.grpc_port}", credentials) as channel:
            assert call(channel, LOCKS, "Lock", resource_id="r").token > 0


def test_unhealthy_application_loses_its_locks(tmp_path: Path) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    answers = [200]

    class App(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answers[0])
            self.end_headers()

        def log_message(self, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), App) as app:
        Thread(target=app.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{app.server_port}/healthz"
        args = ["--app-health", url, "--app-health-interval", "0.05"]
        with ServiceProcess(str(tmp_path / "store"), args) as service:
            http = Http(service.url)
            assert http.lock("r", ttl="1s").status == 200
            assert eventually(lambda: http.status("r")["expiresInMs"] is None)
            answers[0] = 500
            assert eventually(lambda: not http.status("r")["locked"])
            http.close()
        app.shutdown()


def test_openapi_page_describes_what_is_served(http: Http) -> None:
    page = http("GET", "/openapi.json").json
    for path, operations in page["paths"].items():
        concrete = path.replace("{store}", "lockstore").replace("{resource}", "described")
        for method in operations:
            if path.endswith("events"):
                continue
            answer = http(method.upper(), concrete, {"immediate": True, **GOOD})
            assert str(answer.status) in operations[method]["responses"], (method, path)


@pytest.mark.parametrize("field", ["ttl", "wait", "linger"])
@pytest.mark.parametrize("text", ["-5s", "-1ns", "5", "1 s", "1d", "s"])
def test_invalid_duration_is_refused_by_name(http: Http, field: str, text: str) -> None:
    answer = http.lock("duration", immediate=True, **{field: text})
    assert (answer.status, answer.json["errorCode"]) == (400, "ERR_MALFORMED_REQUEST")
    assert field in answer.json["message"]
    assert text in answer.json["message"]


@pytest.mark.parametrize("text", ["1µs", "1μs", "100us", "1ns", "999ms", "1h0.1s"])
def test_ttl_out_of_bounds_is_refused_and_not_replaced_by_the_default(
    service: ServiceProcess, http: Http, text: str
) -> None:
    for answer in (
        http.lock("short", immediate=True, ttl=text),
        http("PUT", "/v1.0-alpha2/lock/short", {"lockID": "any", "ttl": text}),
    ):
        assert answer.status == 400
        assert text in answer.json["message"]
        assert "'ttl'" in answer.json["message"]
    with grpc.insecure_channel(service.grpc_address) as channel:
        with pytest.raises(grpc.RpcError) as error:
            call(channel, LOCKS, "Lock", resource_id="short", immediate=True, ttl={"nanos": 1})
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert http.status("short")["locked"] is False


def test_ttl_of_zero_or_none_is_the_default(service: ServiceProcess, http: Http) -> None:
    for number, options in enumerate(({}, {"ttl": ""}, {"ttl": "0"}, {"ttl": "0s"})):
        assert http.lock(f"default-{number}", immediate=True, **options).json["ttl"] == "30s"
    with grpc.insecure_channel(service.grpc_address) as channel:
        # The proposal's message: "If <= 0, uses the default TTL."
        for number, seconds in enumerate((0, -5)):
            granted = call(
                channel, LOCKS, "Lock", resource_id=f"d-{number}", ttl={"seconds": seconds}
            )
            assert granted.ttl.seconds == 30


FOREIGN: dict[str, dict[str, str]] = {
    "another site's name": {"host": "evil.example"},
    "another site's name and our port": {"host": "evil.example:3500"},
    "a page of another site": {"origin": "http://evil.example"},
    "a page of another port": {"origin": "http://localhost:8000"},
    "a page without an origin": {"origin": "null"},
    "a browser, cross site": {"sec-fetch-site": "cross-site"},
    "a browser, same site": {"sec-fetch-site": "same-site"},
}


@pytest.mark.parametrize("case", FOREIGN)
def test_web_page_cannot_acquire_or_release_locks_on_loopback(http: Http, case: str) -> None:
    headers = {"content-type": "text/plain", **FOREIGN[case]}
    path = "/v1.0-alpha2/lock/page"
    body = json.dumps({"immediate": True, "lockID": "any"}).encode()
    for method in ("POST", "PUT", "DELETE", "GET"):
        answer = http(method, path, body if method != "GET" else None, **headers)
        assert (answer.status, answer.json["errorCode"]) == (403, "ERR_PERMISSION_DENIED"), method
    old = json.dumps({**GOOD, "resourceId": "page"}).encode()
    assert http("POST", ALPHA1, old, **headers).status == 403
    assert http.status("page")["locked"] is False


def test_form_content_types_are_refused(http: Http) -> None:
    for kind in ("text/plain", "text/plain;charset=UTF-8", "multipart/form-data; boundary=x"):
        answer = http(
            "POST", "/v1.0-alpha2/lock/form", b'{"immediate": true}', **{"content-type": kind}
        )
        assert (answer.status, answer.json["errorCode"]) == (415, "ERR_UNSUPPORTED_MEDIA_TYPE")
    assert http.status("form")["locked"] is False


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost"},
        {"host": "localhost:3500"},
        {"host": "[::1]:3500"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json"},
        {"sec-fetch-site": "none"},
    ],
)
def test_non_browser_clients_are_served(http: Http, headers: dict[str, str]) -> None:
    body = json.dumps({"immediate": True}).encode()
    answer = http("POST", "/v1.0-alpha2/lock/program", body, **headers)
    assert answer.status == 200
    assert http.unlock("program", answer.json["lockID"]).status == 204


def test_host_names_are_checked_over_http_2_and_can_be_added(tmp_path: Path) -> None:
    import httpx

    names = ["--name", "locks.internal"]
    with (
        ServiceProcess(str(tmp_path / "store"), names) as service,
        httpx.Client(http1=False, http2=True) as client,
    ):
        url = f"{service.url}/v1.0-alpha2/lock/r"
        external = {"host": "evil.example"}
        assert client.get(url, headers={"host": "locks.internal"}).status_code == 200
        assert client.get(url).status_code == 200
        assert client.get(url, headers=external).status_code == 403
        healthy = client.get(f"{service.url}/v1.0/healthz", headers=external)
        assert healthy.status_code == 204


def test_with_a_token_any_host_name_is_accepted_and_web_pages_are_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    args = ["--api-token-file", str(token)]
    with ServiceProcess(str(tmp_path / "store"), args) as service:
        http = Http(service.url, {"dapr-api-token": SECRET})
        path = "/v1.0-alpha2/lock/r"
        assert http("GET", path, host="locks.internal").status == 200
        assert http("GET", path, origin="http://evil.example").status == 403
        http.close()
