"""Every server of the test kit honours conditions, sequentially and in a race."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable

import pytest
import redis as redis_client
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError

from testkit.proxy import FaultProxy, ReplyLost, on
from testkit.servers import AzureServer, GcsServer, RunningServer, S3Server
from testkit.servers.server import send

RACERS = 8
DEADLINE_S = 60.0


def race(attempt: Callable[[int], int]) -> list[int]:
    """Start all racers at once and return each status."""
    barrier = threading.Barrier(RACERS)
    statuses = [0] * RACERS

    def run(number: int) -> None:
        barrier.wait()
        statuses[number] = attempt(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


@pytest.fixture(params=["seaweedfs_server", "minio_server"])
def s3(request: pytest.FixtureRequest) -> S3Server:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, S3Server)
    server.create_bucket("conditions")
    return server


def test_s3_create_if_absent_succeeds_once(s3: S3Server) -> None:
    absent = {"If-None-Match": "*"}
    first = s3.request("PUT", "/conditions/once", body=b"1", headers=absent)
    second = s3.request("PUT", "/conditions/once", body=b"2", headers=absent)
    assert (first.status, second.status) == (200, 412)
    assert s3.request("GET", "/conditions/once").body == b"1"


def test_s3_refuses_a_stale_match(s3: S3Server) -> None:
    old = s3.request("PUT", "/conditions/match", body=b"1").headers["etag"]
    fresh = s3.request("PUT", "/conditions/match", body=b"2", headers={"If-Match": old})
    stale = s3.request("PUT", "/conditions/match", body=b"3", headers={"If-Match": old})
    assert (fresh.status, stale.status) == (200, 412)
    assert s3.request("GET", "/conditions/match").body == b"2"


def test_s3_match_on_a_missing_object_creates_nothing(s3: S3Server) -> None:
    reply = s3.request("PUT", "/conditions/never", body=b"1", headers={"If-Match": '"0"'})
    # AWS and MinIO answer 404, SeaweedFS 412.
    assert reply.status in (404, 412)
    assert s3.request("GET", "/conditions/never").status == 404


def test_s3_race_of_creates_has_one_winner(s3: S3Server) -> None:
    def create(number: int) -> int:
        body, absent = f"{number}".encode(), {"If-None-Match": "*"}
        return s3.request("PUT", "/conditions/race", body=body, headers=absent).status

    statuses = race(create)
    assert sorted(statuses) == [200] + [412] * (RACERS - 1)
    assert s3.request("GET", "/conditions/race").body == f"{statuses.index(200)}".encode()


def test_s3_race_of_matches_has_one_winner(s3: S3Server) -> None:
    etag = s3.request("PUT", "/conditions/race-match", body=b"base").headers["etag"]

    def replace(number: int) -> int:
        body, match = f"{number}".encode(), {"If-Match": etag}
        return s3.request("PUT", "/conditions/race-match", body=body, headers=match).status

    statuses = race(replace)
    assert sorted(statuses) == [200] + [412] * (RACERS - 1)


def test_s3_signature_survives_the_proxy_and_a_lost_reply_looks_like_a_conflict(
    seaweedfs_server: S3Server,
) -> None:
    seaweedfs_server.create_bucket("proxied")
    absent = {"If-None-Match": "*"}
    with FaultProxy(seaweedfs_server.endpoint) as proxy:
        proxy.inject(ReplyLost(), when=on(method="PUT", header="If-None-Match"))

        def create() -> int:
            return seaweedfs_server.request(
                "PUT", "/proxied/k", body=b"mine", headers=absent, endpoint=proxy.endpoint
            ).status

        with pytest.raises(ConnectionError):
            create()
        assert create() == 412
        assert [record.upstream_status for record in proxy.records()] == [200, 412]
        assert proxy.fired(ReplyLost) == 1
    assert seaweedfs_server.request("GET", "/proxied/k").body == b"mine"


def put_blob(
    server: AzureServer, path: str, body: bytes, condition: dict[str, str] | None = None
) -> tuple[int, str]:
    headers = {"x-ms-blob-type": "BlockBlob", **(condition or {})}
    reply = server.request("PUT", path, body=body, headers=headers)
    return reply.status, reply.headers.get("etag", "")


def test_azurite_honours_conditions(azurite_server: AzureServer) -> None:
    azurite_server.create_container("conditions")
    absent = {"If-None-Match": "*"}
    created, etag = put_blob(azurite_server, "/conditions/k", b"1", absent)
    again, _ = put_blob(azurite_server, "/conditions/k", b"2", absent)
    fresh, _ = put_blob(azurite_server, "/conditions/k", b"3", {"If-Match": etag})
    stale, _ = put_blob(azurite_server, "/conditions/k", b"4", {"If-Match": etag})
    missing, _ = put_blob(azurite_server, "/conditions/none", b"5", {"If-Match": etag})
    assert (created, again, fresh, stale, missing) == (201, 409, 201, 412, 412)
    assert azurite_server.request("GET", "/conditions/k").body == b"3"


def test_azurite_races_have_one_winner(azurite_server: AzureServer) -> None:
    azurite_server.create_container("races")
    absent = {"If-None-Match": "*"}
    created = race(lambda n: put_blob(azurite_server, "/races/k", b"%d" % n, absent)[0])
    assert sorted(created) == [201] + [409] * (RACERS - 1)
    match = {"If-Match": put_blob(azurite_server, "/races/k", b"base")[1]}
    replaced = race(lambda n: put_blob(azurite_server, "/races/k", b"%d" % n, match)[0])
    assert sorted(replaced) == [201] + [412] * (RACERS - 1)


def upload(
    server: GcsServer, name: str, body: bytes, if_generation: int | None = None
) -> tuple[int, int]:
    url = f"{server.endpoint}/upload/storage/v1/b/conditions/o?uploadType=media&name={name}"
    if if_generation is not None:
        url += f"&ifGenerationMatch={if_generation}"
    reply = send(url, method="POST", headers={"Content-Type": "text/plain"}, body=body)
    return reply.status, int(json.loads(reply.body).get("generation", 0))


def test_fake_gcs_honours_generations(fake_gcs_server: GcsServer) -> None:
    fake_gcs_server.create_bucket("conditions")
    created, generation = upload(fake_gcs_server, "k", b"1", 0)
    again, _ = upload(fake_gcs_server, "k", b"2", 0)
    fresh, _ = upload(fake_gcs_server, "k", b"3", generation)
    stale, _ = upload(fake_gcs_server, "k", b"4", generation)
    missing, _ = upload(fake_gcs_server, "none", b"5", generation)
    assert (created, again, fresh, stale, missing) == (200, 412, 200, 412, 412)


def test_fake_gcs_races_have_one_winner(fake_gcs_server: GcsServer) -> None:
    fake_gcs_server.create_bucket("conditions")
    for number in range(20):
        name = f"race-{number}"
        created = race(lambda n, name=name: upload(fake_gcs_server, name, b"%d" % n, 0)[0])  # type: ignore[misc]
        assert sorted(created) == [200] + [412] * (RACERS - 1)


def test_redis_sets_an_absent_key_once(redis_server: RunningServer) -> None:
    with redis_client.Redis(host=redis_server.host, port=redis_server.port) as client:
        assert client.set("k", "1", nx=True)
        assert not client.set("k", "2", nx=True)


def test_etcd_creates_an_absent_key_once(etcd_server: RunningServer) -> None:
    key = base64.b64encode(b"k").decode()
    absent = {"key": key, "target": "CREATE", "createRevision": "0"}
    put = {"requestPut": {"key": key, "value": base64.b64encode(b"v").decode()}}
    body = json.dumps({"compare": [absent], "success": [put]}).encode()

    def create() -> bool:
        reply = send(f"{etcd_server.endpoint}/v3/kv/txn", method="POST", body=body)
        assert reply.status == 200
        return bool(json.loads(reply.body).get("succeeded", False))

    assert [create(), create()] == [True, False]


def test_zookeeper_creates_once_and_refuses_a_stale_version(
    zookeeper_server: RunningServer,
) -> None:
    client = KazooClient(hosts=zookeeper_server.endpoint)
    client.start(timeout=DEADLINE_S)
    try:
        client.create("/k", b"1")
        with pytest.raises(NodeExistsError):
            client.create("/k", b"2")
        client.set("/k", b"3", version=0)
        with pytest.raises(BadVersionError):
            client.set("/k", b"4", version=0)
    finally:
        client.stop()
        client.close()
