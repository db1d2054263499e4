"""Hudi's keys, defaults and checks, for every provider that has some."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import pytest

from tidelock.base.errors import ConfigInvalid, ResourceInvalid, Unsupported
from tidelock.lockproviders import keys
from tidelock.lockproviders.backend import Terms
from tidelock.lockproviders.kept import KeptLease
from tidelock.lockproviders.kubernetes import lease_name
from tidelock.lockproviders.pace import Pace
from tidelock.lockproviders.registry import HUDI, PROVIDERS, open_provider
from tidelock.lockproviders.storage import StorageLockProvider

CLIENT = "org.apache.hudi.client.transaction.lock"
AWS = "org.apache.hudi.aws.transaction.lock"

COMPLETE: dict[str, object] = {
    "hoodie.base.path": "/tmp/hudi/table",
    "hoodie.table.name": "orders",
    "hoodie.write.lock.zookeeper.url": "zk1,zk2:2182/chroot",
    "hoodie.write.lock.zookeeper.base_path": "/locks/",
    "hoodie.aws.access.key": "key",
    "hoodie.aws.secret.key": "secret",
    "hoodie.write.lock.dynamodb.region": "eu-west-1",
    "hoodie.write.lock.hivemetastore.database": "sales",
    "hoodie.write.lock.hivemetastore.table": "orders",
    "hoodie.write.lock.hivemetastore.uris": "thrift://hms1:9083, thrift://[::1]",
    "tidelock.redis.url": "redis://user:password@cache:6380/2",
    "tidelock.etcd.url": "https://etcd:2379",
    "tidelock.kubernetes.url": "http://127.0.0.1:8001",
}
"""Settings of one table under every provider at once."""


def opened(name: str, **changed: object) -> KeptLease:
    settings = {**COMPLETE, "hoodie.write.lock.provider": name}
    settings.update({key.replace("__", "."): value for key, value in changed.items()})
    provider = open_provider({key: value for key, value in settings.items() if value is not None})
    assert isinstance(provider, KeptLease)
    return provider


def without(name: str, *missing: str) -> Mapping[str, object]:
    kept = {key: value for key, value in COMPLETE.items() if key not in missing}
    return {**kept, "hoodie.write.lock.provider": name}


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        (f"{CLIENT}.ZookeeperBasedLockProvider", "zookeeper://zk1:2181,zk2:2182/locks/orders"),
        (
            f"{CLIENT}.ZookeeperBasedImplicitBasePathLockProvider",
            "zookeeper://zk1:2181,zk2:2182/tmp/B4C082A4F9D6182F/lock_key",
        ),
        (
            f"{AWS}.DynamoDBBasedLockProvider",
            "dynamodb://dynamodb.eu-west-1.amazonaws.com/hudi_locks/orders",
        ),
        (
            f"{AWS}.DynamoDBBasedImplicitPartitionKeyLockProvider",
            "dynamodb://dynamodb.eu-west-1.amazonaws.com/hudi_locks/B4C082A4F9D6182F",
        ),
        (
            "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
            "thrift://hms1:9083/sales.orders",
        ),
        (f"{CLIENT}.FileSystemBasedLockProvider", "file:///tmp/hudi/table/.hoodie/lock"),
        (
            "tidelock.lockproviders.redis.RedisLockProvider",
            "redis://cache:6380/lock||/tmp/hudi/table",
        ),
        ("tidelock.lockproviders.etcd.EtcdLockProvider", "https://etcd:2379//tmp/hudi/table"),
    ],
)
def test_hudi_s_settings_name_hudi_s_lock(name: str, uri: str) -> None:
    with closing(opened(name)) as provider:  # type: ignore[type-var]
        assert provider.uri == uri


def test_every_java_name_stands_for_a_provider_that_opens() -> None:
    for name in HUDI:
        if "StorageBased" not in name:
            opened(name).close()  # type: ignore[attr-defined]


def test_the_application_moved_the_in_process_lock_and_both_names_are_one() -> None:
    one = opened(f"{CLIENT}.InProcessLockProvider")
    two = opened("org.apache.hudi.core.transaction.lock.InProcessLockProvider")
    assert one.uri == two.uri
    assert PROVIDERS["tidelock.lockproviders.inprocess.InProcessLockProvider"]


@pytest.mark.parametrize(
    ("name", "missing", "says"),
    [
        (f"{CLIENT}.ZookeeperBasedLockProvider", ["hoodie.write.lock.zookeeper.url"], "url"),
        (
            f"{CLIENT}.ZookeeperBasedLockProvider",
            ["hoodie.write.lock.zookeeper.base_path"],
            "base_path",
        ),
        (f"{CLIENT}.ZookeeperBasedLockProvider", ["hoodie.table.name"], "lock_key"),
        (
            f"{CLIENT}.ZookeeperBasedImplicitBasePathLockProvider",
            ["hoodie.base.path"],
            "hoodie.base.path",
        ),
        (f"{AWS}.DynamoDBBasedLockProvider", ["hoodie.table.name"], "partition_key"),
        (
            "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
            ["hoodie.write.lock.hivemetastore.database"],
            "database",
        ),
        (f"{CLIENT}.FileSystemBasedLockProvider", ["hoodie.base.path"], "hoodie.base.path"),
        (f"{CLIENT}.InProcessLockProvider", ["hoodie.base.path"], "hoodie.base.path"),
        (
            "tidelock.lockproviders.redis.RedisLockProvider",
            ["tidelock.redis.url"],
            "tidelock.redis.url",
        ),
        (
            "tidelock.lockproviders.kubernetes.KubernetesLockProvider",
            ["tidelock.kubernetes.url"],
            "kubectl proxy",
        ),
    ],
)
def test_a_missing_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, missing: list[str], says: str
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigInvalid, match=says):
        open_provider(without(name, *missing))


@pytest.mark.parametrize(
    ("name", "key", "value", "error"),
    [
        (f"{CLIENT}.FileSystemBasedLockProvider", keys.FS_EXPIRE_MIN.key, -1, ConfigInvalid),
        (f"{CLIENT}.FileSystemBasedLockProvider", keys.FS_PATH.key, "s3://b/t", Unsupported),
        (f"{AWS}.DynamoDBBasedLockProvider", keys.DDB_BILLING.key, "FREE", ConfigInvalid),
        (f"{AWS}.DynamoDBBasedLockProvider", keys.DDB_ENDPOINT.key, "ftp://x", ConfigInvalid),
        (f"{CLIENT}.ZookeeperBasedLockProvider", keys.ZK_BASE_PATH.key, "/a/../b", ConfigInvalid),
        (f"{CLIENT}.ZookeeperBasedLockProvider", keys.ZK_URL.key, " , ", ConfigInvalid),
        (
            "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
            keys.HMS_URIS.key,
            "hms1:9083",
            ConfigInvalid,
        ),
        ("tidelock.lockproviders.redis.RedisLockProvider", keys.REDIS_URL.key, "x", ConfigInvalid),
        (
            "tidelock.lockproviders.redis.RedisLockProvider",
            keys.RESOURCE.key,
            "a||b",
            ResourceInvalid,
        ),
        ("tidelock.lockproviders.redis.RedisLockProvider", keys.TTL_MS.key, 999, ConfigInvalid),
        (
            "tidelock.lockproviders.kubernetes.KubernetesLockProvider",
            keys.K8S_NAMESPACE.key,
            "../x",
            ConfigInvalid,
        ),
    ],
)
def test_a_setting_that_breaks_a_rule_is_refused(
    name: str, key: str, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        open_provider({**COMPLETE, "hoodie.write.lock.provider": name, key: value})


def test_one_backend_gives_locks_of_any_name() -> None:
    settings = {**COMPLETE, "hoodie.write.lock.provider": f"{CLIENT}.ZookeeperBasedLockProvider"}
    provider = open_provider(settings, resource="nightly")
    assert isinstance(provider, KeptLease)
    assert provider.uri.endswith("/locks/nightly")


@pytest.mark.parametrize("name", sorted({*HUDI.values()}))
def test_l13_two_names_are_two_locks_and_one_name_is_one(name: str) -> None:
    settings = {
        **COMPLETE,
        "hoodie.base.path": "memory://settings/table",
        "hoodie.write.lock.provider": name.replace(":", "."),
    }
    if "filesystem" in name:
        settings["hoodie.base.path"] = "/tmp/hudi/table"

    def uri(resource: str) -> str:
        provider = open_provider(settings, resource=resource)
        return provider.lock.uri if isinstance(provider, StorageLockProvider) else provider.uri  # type: ignore[attr-defined]

    assert uri("a/x") == uri("a/x")
    assert uri("a/x") != uri("b/x")


def test_dynamodb_s_lease_is_hudi_s_waiting_time() -> None:
    provider = opened(f"{AWS}.DynamoDBBasedLockProvider")
    assert provider._backend.terms == Terms(60_000, 20_000)


def test_zookeeper_s_lease_is_the_session() -> None:
    provider = opened(f"{CLIENT}.ZookeeperBasedLockProvider")
    assert provider._backend.terms.validity_ms == 60_000


def test_a_password_is_in_no_name() -> None:
    provider = opened("tidelock.lockproviders.redis.RedisLockProvider")
    assert "password" not in provider.uri


def test_hudi_s_retry_settings_are_the_pace() -> None:
    assert Pace.read({}) == Pace(1_000, 16_000, 15)
    chosen = {
        "hoodie.write.lock.wait_time_ms_between_retry": "200",
        "hoodie.write.lock.max_wait_time_ms_between_retry": "100",
        "hoodie.write.lock.num_retries": "2",
    }
    assert Pace.read(chosen) == Pace(200, 200, 2)
    with pytest.raises(ConfigInvalid):
        Pace.read({"hoodie.write.lock.num_retries": -1})


@pytest.mark.parametrize(
    ("validity_ms", "renew_ms"), [(1_000, 600), (400, 10), (1_000, 0), (None, 0)]
)
def test_terms_that_nobody_could_keep_are_refused(validity_ms: int | None, renew_ms: int) -> None:
    with pytest.raises(ConfigInvalid):
        Terms(validity_ms, renew_ms)


def test_a_resource_that_cannot_name_a_lease_gets_a_name_of_its_own() -> None:
    assert lease_name("orders-lock") == "orders-lock"
    odd = [lease_name(name) for name in ("s3://lake/Orders", "s3://lake/orders", "", "é", "x" * 70)]
    assert len(set(odd)) == len(odd)
    assert all(len(name) <= 63 and name[0].isalnum() and name[-1].isalnum() for name in odd)
    assert all(name == name.lower() for name in odd)
