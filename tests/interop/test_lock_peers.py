"""Our providers and the clients they are compatible with exclude each other.

Curator's recipe, Amazon's lock client, Hudi's Java providers and client-go's leader election run
unmodified in their own processes. Redis is used as Dapr's component uses it, etcd through its own
lock API.
"""

from __future__ import annotations

import base64
import os
import random
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from testkit.java.peers import LockPeer, LockPeers, lock_peer, lock_peers
from testkit.leasepeer import lease_peer
from testkit.servers import KubernetesServer, RunningServer, ServerUnavailable
from tidelock.core.errors import HoldingLost
from tidelock.core.system import SystemClock
from tidelock.lock.provider import LockProvider
from tidelock.lock.providers.json_api import JsonService
from tidelock.lock.providers.registry import open_provider

SECTIONS = 12
FREE_S = 60
"""The patience with a lock that is free; only a loaded machine needs it."""
HUDI = "org.apache.hudi.client.transaction.lock"


@pytest.fixture(scope="session")
def peers() -> LockPeers:
    """Return the Java locks; skip where Java, Maven or the artefacts are unavailable."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        reason = f"other people's locks need {', '.join(missing)}: install a JDK of 17 and Maven"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    try:
        return lock_peers()
    except ServerUnavailable as error:
        pytest.skip(str(error))


@dataclass(frozen=True, slots=True)
class LockPair:
    """One lock, with our client and a third-party client."""

    peer: LockPeer
    ours: LockProvider
    marker: Path


def our_sections(pair: LockPair) -> int:
    """Run critical sections as `LockPeer.java` does; return how many overlapped."""
    overlaps = done = 0
    while done < SECTIONS:
        if not pair.ours.try_lock(20_000):
            continue
        done += 1
        try:
            pair.marker.touch(exist_ok=False)
        except FileExistsError:
            overlaps += 1
        time.sleep(random.uniform(0.001, 0.006))  # the critical section
        pair.marker.unlink(missing_ok=True)
        pair.ours.unlock()
        time.sleep(random.uniform(0, 0.02))  # lets the peer acquire the lock
    return overlaps


def check_exclusion(pair: LockPair) -> None:
    """Check that each holder excludes the other; then let both contend."""
    check_turns(pair)
    pair.peer.sections(SECTIONS, pair.marker)
    assert our_sections(pair) == 0
    assert pair.peer.overlaps() == 0


def check_turns(pair: LockPair) -> None:
    """Acquire the lock alternately; the side that does not hold it is refused."""
    assert pair.peer.lock(FREE_S)
    assert not pair.ours.try_lock(300)
    assert pair.ours.holder() is not None
    pair.peer.unlock()
    assert pair.ours.try_lock(1_000 * FREE_S)
    assert not pair.peer.lock(0.3)
    pair.ours.unlock()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Return the exit stack that closes providers and peers."""
    with ExitStack() as stack:
        yield stack


def pair_of(
    stack: ExitStack,
    peers: LockPeers,
    settings: Mapping[str, object],
    arguments: list[str],
    marker: Path,
) -> LockPair:
    """Open both clients."""
    ours = stack.enter_context(closing(open_provider(settings)))
    return LockPair(stack.enter_context(lock_peer(peers, *arguments)), ours, marker)


def zookeeper_settings(server: RunningServer, **more: str) -> dict[str, object]:
    return {
        "hoodie.write.lock.zookeeper.url": server.endpoint,
        "hoodie.write.lock.zookeeper.session_timeout_ms": "10000",
        **more,
    }


def hudi_arguments(name: str, settings: Mapping[str, object]) -> list[str]:
    """Return our settings as those of Hudi's provider: they are the same."""
    return ["hudi", name, *(f"{key}={value}" for key, value in settings.items())]


def test_curator_and_our_zookeeper_lock_exclude_each_other(
    peers: LockPeers, zookeeper_server: RunningServer, stack: ExitStack, tmp_path: Path
) -> None:
    name = uuid.uuid4().hex
    settings = {
        "hoodie.write.lock.provider": f"{HUDI}.ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.base_path": "/peers",
        "hoodie.write.lock.zookeeper.lock_key": name,
        **zookeeper_settings(zookeeper_server),
    }
    arguments = ["curator", zookeeper_server.endpoint, f"/peers/{name}"]
    check_exclusion(pair_of(stack, peers, settings, arguments, tmp_path / "inside"))


@pytest.mark.parametrize(
    "provider", ["ZookeeperBasedLockProvider", "ZookeeperBasedImplicitBasePathLockProvider"]
)
def test_hudi_zookeeper_providers_and_ours_exclude_each_other_with_the_same_settings(
    peers: LockPeers,
    zookeeper_server: RunningServer,
    stack: ExitStack,
    tmp_path: Path,
    provider: str,
) -> None:
    settings = zookeeper_settings(
        zookeeper_server,
        **{
            "hoodie.write.lock.provider": f"{HUDI}.{provider}",
            "hoodie.write.lock.zookeeper.base_path": "/peers",
            "hoodie.write.lock.zookeeper.lock_key": uuid.uuid4().hex,
            "hoodie.base.path": f"s3a://lake/{uuid.uuid4().hex}/of-a-name-beyond-32-bytes",
            "hoodie.table.name": "orders",
        },
    )
    arguments = hudi_arguments(f"{HUDI}.{provider}", settings)
    check_exclusion(pair_of(stack, peers, settings, arguments, tmp_path / "inside"))


def test_amazon_lock_client_and_our_dynamodb_lock_exclude_each_other(
    peers: LockPeers, dynamodb_server: RunningServer, stack: ExitStack, tmp_path: Path
) -> None:
    key = uuid.uuid4().hex
    settings = {
        "hoodie.write.lock.provider": "org.apache.hudi.aws.transaction.lock"
        ".DynamoDBBasedLockProvider",
        "hoodie.write.lock.dynamodb.endpoint_url": dynamodb_server.endpoint,
        "hoodie.write.lock.dynamodb.region": "us-east-1",
        "hoodie.write.lock.dynamodb.partition_key": key,
        "hoodie.write.lock.wait_time_ms": 36_000,
        "hoodie.aws.access.key": "tidelock",
        "hoodie.aws.secret.key": "tidelock",
    }
    # Amazon's client adds the other's lease to its waiting time, so a refusal takes that long.
    lease_ms = "6000"
    ours = stack.enter_context(closing(open_provider(settings)))
    assert ours.try_lock(1_000 * FREE_S)  # creates the table
    ours.unlock()
    arguments = ["amazon", dynamodb_server.endpoint, "hudi_locks", key, lease_ms]
    peer = stack.enter_context(lock_peer(peers, *arguments))
    assert peer.lock(FREE_S)
    assert not ours.try_lock(10_000)  # it renews every two seconds
    peer.unlock()
    assert ours.try_lock(1_000 * FREE_S)
    ours.unlock()
    pair = LockPair(peer, ours, tmp_path / "inside")
    peer.sections(SECTIONS, pair.marker)
    assert our_sections(pair) == 0
    assert peer.overlaps() == 0
    assert peer.lock(FREE_S)
    peer.kill()
    began_s = time.monotonic()
    assert ours.try_lock(80_000)  # the item must be unchanged for its own lease, not for ours
    assert 2 < time.monotonic() - began_s < 32


def test_hudi_filesystem_provider_and_ours_respect_each_others_file(
    peers: LockPeers, stack: ExitStack, tmp_path: Path
) -> None:
    """They do not race here: Hudi's provider checks, then creates, and may truncate our file."""
    name = f"{HUDI}.FileSystemBasedLockProvider"
    settings = {
        "hoodie.write.lock.provider": name,
        "hoodie.base.path": str(tmp_path / "table"),
        "hoodie.write.lock.filesystem.path": str(tmp_path / "table" / ".hoodie"),
        "hoodie.write.lock.filesystem.expire": "1",
    }
    arguments = hudi_arguments(name, settings)
    pair = pair_of(stack, peers, settings, arguments, tmp_path / "inside")
    check_turns(pair)
    assert pair.peer.lock(FREE_S)
    assert pair.ours.force_release()
    assert pair.ours.try_lock(0)
    # Java's unlock deletes any file at the path; our holder notices and does not claim the next
    # one.
    pair.peer.unlock()
    with pytest.raises(HoldingLost):
        pair.ours.unlock()


def test_client_go_leader_election_and_our_lease_exclude_each_other(
    kubernetes_server: KubernetesServer, stack: ExitStack, tmp_path: Path
) -> None:
    name = f"peers-{uuid.uuid4().hex}"
    settings = {
        "hoodie.write.lock.provider": "tidelock.lock.providers.kubernetes.KubernetesLockProvider",
        "tidelock.kubernetes.url": kubernetes_server.endpoint,
        "tidelock.kubernetes.ca.file": str(kubernetes_server.ca_file),
        "tidelock.kubernetes.token.file": str(kubernetes_server.token_file),
        "tidelock.lock.resource": name,
        "tidelock.lock.ttl.ms": 4_000,
        "hoodie.write.lock.wait_time_ms_between_retry": 50,
    }
    ours = stack.enter_context(closing(open_provider(settings)))
    peer = stack.enter_context(lease_peer(kubernetes_server, name))
    check_exclusion(LockPair(peer, ours, tmp_path / "inside"))
    assert ours.try_lock(1_000 * FREE_S)
    first = ours.check()
    ours.unlock()
    assert peer.lock(FREE_S)
    held = ours.holder()
    assert held is not None
    assert held.owner.startswith("client-go-")
    assert held.token is not None
    assert held.token > first  # client-go continues our counter
    peer.kill()
    assert ours.try_lock(1_000 * FREE_S)  # two seconds without a renewal, and the grace period
    assert ours.check() > held.token


DAPR_UNLOCK = """
local there = redis.call('GET', KEYS[1])
if there == false then return -1 elseif there ~= ARGV[1] then return -2 end
redis.call('DEL', KEYS[1]) return 1
"""


def test_dapr_redis_lock_and_ours_exclude_each_other(
    redis_server: RunningServer, stack: ExitStack
) -> None:
    resource = uuid.uuid4().hex
    settings = {
        "hoodie.write.lock.provider": "tidelock.lock.providers.redis.RedisLockProvider",
        "tidelock.redis.url": f"redis://{redis_server.endpoint}/0",
        "tidelock.redis.key.prefix": "lock||orders-app||",
        "tidelock.lock.resource": resource,
    }
    ours = stack.enter_context(closing(open_provider(settings)))
    dapr = stack.enter_context(
        closing(redis.Redis(host=redis_server.host, port=redis_server.port, decode_responses=True))
    )
    key = f"lock||orders-app||{resource}"
    assert dapr.set(key, "an owner", nx=True, ex=30)
    assert not ours.try_lock(50)
    held = ours.holder()
    assert held is not None
    assert held.owner == "an owner"
    assert dapr.eval(DAPR_UNLOCK, 1, key, "an owner") == 1
    assert ours.try_lock(0)
    assert dapr.set(key, "an owner", nx=True, ex=30) is None
    assert dapr.eval(DAPR_UNLOCK, 1, key, "an owner") == -2  # belongs to others
    ours.unlock()
    assert dapr.eval(DAPR_UNLOCK, 1, key, "an owner") == -1  # does not exist


def test_etcd_lock_api_and_ours_wait_in_one_queue(
    etcd_server: RunningServer, stack: ExitStack
) -> None:
    name = f"peers/{uuid.uuid4().hex}"
    settings = {
        "hoodie.write.lock.provider": "tidelock.lock.providers.etcd.EtcdLockProvider",
        "tidelock.etcd.url": etcd_server.endpoint,
        "tidelock.lock.resource": name,
    }
    ours = stack.enter_context(closing(open_provider(settings)))
    service = JsonService(etcd_server.endpoint, clock=SystemClock(), timeout_ms=1_000 * FREE_S)
    stack.enter_context(closing(service))
    encoded = base64.b64encode(name.encode()).decode()
    lease = service.query("POST", "/v3/lease/grant", {"TTL": "30"}).body["ID"]
    request = {"name": encoded, "lease": lease}
    theirs = service.query("POST", "/v3/lock/lock", request)
    assert theirs.ok
    assert not ours.try_lock(100)
    held = ours.holder()
    assert held is not None
    assert held.waiters == 0  # our place in the queue was given up
    assert service.query("POST", "/v3/lock/unlock", {"key": theirs.body["key"]}).ok
    assert ours.try_lock(1_000 * FREE_S)
    revision = ours.check()
    assert revision > int(theirs.body["header"]["revision"])
    # etcd waits for us, as for its own clients, until its caller gives up.
    impatient = JsonService(etcd_server.endpoint, clock=SystemClock(), timeout_ms=400)
    stack.enter_context(closing(impatient))
    assert not isinstance(impatient.send("POST", "/v3/lock/lock", request), type(theirs))
    ours.unlock()
    again = service.query("POST", "/v3/lock/lock", request)
    assert again.ok
