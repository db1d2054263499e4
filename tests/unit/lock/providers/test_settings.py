"""Settings of the providers: Hudi's keys, defaults and checks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tidelock.core.errors import ConfigInvalid, ResourceInvalid, Unsupported
from tidelock.lock.providers import config
from tidelock.lock.providers.backend import LeaseTerms
from tidelock.lock.providers.config import PollingPolicy
from tidelock.lock.providers.kubernetes import lease_name
from tidelock.lock.providers.leased import LeasedProvider
from tidelock.lock.providers.registry import HUDI, PROVIDERS, open_provider
from tidelock.lock.providers.storage import StorageLockProvider

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


def opened(name: str, **changed: object) -> LeasedProvider:
    settings = {**COMPLETE, "hoodie.write.lock.provider": name}
    settings.update({key.replace("__", "."): value for key, value in changed.items()})
    provider = open_provider({key: value for key, value in settings.items() if value is not None})
    assert isinstance(provider, LeasedProvider)
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
            "tidelock.lock.providers.redis.RedisLockProvider",
            "redis://cache:6380/lock||orders",
        ),
        ("tidelock.lock.providers.etcd.EtcdLockProvider", "https://etcd:2379/orders"),
    ],
)
def test_hudi_settings_give_the_lock_name_of_hudi(name: str, uri: str) -> None:
    with closing(opened(name)) as provider:
        assert provider.uri == uri


def test_every_java_name_maps_to_a_provider_that_opens() -> None:
    for name in HUDI:
        if "StorageBased" not in name:
            with closing(opened(name)) as provider:
                assert provider.uri


def test_both_names_of_the_in_process_provider_are_one_lock() -> None:
    one = opened(f"{CLIENT}.InProcessLockProvider")
    two = opened("org.apache.hudi.core.transaction.lock.InProcessLockProvider")
    assert one.uri == two.uri
    assert PROVIDERS["tidelock.lock.providers.inprocess.InProcessLockProvider"]


@pytest.mark.parametrize(
    ("name", "missing", "message"),
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
            ["hoodie.write.lock.hivemetastore.table", "hoodie.table.name"],
            "table",
        ),
        (
            "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
            ["hoodie.write.lock.hivemetastore.uris"],
            "uris",
        ),
        (f"{CLIENT}.FileSystemBasedLockProvider", ["hoodie.base.path"], "hoodie.base.path"),
        (f"{CLIENT}.InProcessLockProvider", ["hoodie.base.path"], "hoodie.base.path"),
        (
            "tidelock.lock.providers.redis.RedisLockProvider",
            ["tidelock.redis.url"],
            "tidelock.redis.url",
        ),
        (
            "tidelock.lock.providers.kubernetes.KubernetesLockProvider",
            ["tidelock.kubernetes.url"],
            "kubectl proxy",
        ),
    ],
)
def test_missing_setting_is_reported(
    monkeypatch: pytest.MonkeyPatch, name: str, missing: list[str], message: str
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigInvalid, match=message):
        open_provider(without(name, *missing))


@pytest.mark.parametrize(
    ("name", "key", "value", "error"),
    [
        (f"{CLIENT}.FileSystemBasedLockProvider", config.FS_EXPIRE_MIN.key, -1, ConfigInvalid),
        (f"{CLIENT}.FileSystemBasedLockProvider", config.FS_PATH.key, "s3://b/t", Unsupported),
        (f"{AWS}.DynamoDBBasedLockProvider", config.DDB_BILLING.key, "FREE", ConfigInvalid),
        (f"{AWS}.DynamoDBBasedLockProvider", config.DDB_ENDPOINT.key, "ftp://x", ConfigInvalid),
        (f"{CLIENT}.ZookeeperBasedLockProvider", config.ZK_BASE_PATH.key, "/a/../b", ConfigInvalid),
        (f"{CLIENT}.ZookeeperBasedLockProvider", config.ZK_URL.key, " , ", ConfigInvalid),
        (
            "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
            config.HMS_URIS.key,
            "hms1:9083",
            ConfigInvalid,
        ),
        (
            "tidelock.lock.providers.redis.RedisLockProvider",
            config.REDIS_URL.key,
            "x",
            ConfigInvalid,
        ),
        (
            "tidelock.lock.providers.redis.RedisLockProvider",
            config.RESOURCE.key,
            "a||b",
            ResourceInvalid,
        ),
        ("tidelock.lock.providers.redis.RedisLockProvider", config.TTL_MS.key, 999, ConfigInvalid),
        (
            "tidelock.lock.providers.kubernetes.KubernetesLockProvider",
            config.K8S_NAMESPACE.key,
            "../x",
            ConfigInvalid,
        ),
    ],
)
def test_setting_that_breaks_a_rule_is_refused(
    name: str, key: str, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        open_provider({**COMPLETE, "hoodie.write.lock.provider": name, key: value})


def test_one_backend_gives_locks_of_any_name() -> None:
    settings = {**COMPLETE, "hoodie.write.lock.provider": f"{CLIENT}.ZookeeperBasedLockProvider"}
    provider = open_provider(settings, resource="nightly")
    assert isinstance(provider, LeasedProvider)
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


def test_dynamodb_lease_is_the_wait_time_of_hudi() -> None:
    provider = opened(f"{AWS}.DynamoDBBasedLockProvider")
    assert provider._backend.terms == LeaseTerms(60_000, 20_000)


def test_zookeeper_lease_is_the_session() -> None:
    provider = opened(f"{CLIENT}.ZookeeperBasedLockProvider")
    assert provider._backend.terms.validity_ms == 60_000


def test_names_contain_no_password() -> None:
    provider = opened("tidelock.lock.providers.redis.RedisLockProvider")
    assert "password" not in provider.uri


def test_hudi_retry_settings_set_the_pace() -> None:
    assert PollingPolicy.read({}) == PollingPolicy(1_000, 16_000, 15)
    chosen = {
        "hoodie.write.lock.wait_time_ms_between_retry": "200",
        "hoodie.write.lock.max_wait_time_ms_between_retry": "100",
        "hoodie.write.lock.num_retries": "2",
    }
    assert PollingPolicy.read(chosen) == PollingPolicy(200, 200, 2)
    with pytest.raises(ConfigInvalid):
        PollingPolicy.read({"hoodie.write.lock.num_retries": -1})


@pytest.mark.parametrize(
    ("validity_ms", "renew_ms"), [(1_000, 600), (400, 10), (1_000, 0), (None, 0)]
)
def test_impossible_lease_settings_are_refused(validity_ms: int | None, renew_ms: int) -> None:
    with pytest.raises(ConfigInvalid):
        LeaseTerms(validity_ms, renew_ms)


def test_resource_that_is_an_invalid_lease_name_gets_a_derived_name() -> None:
    assert lease_name("orders-lock") == "orders-lock"
    odd = [lease_name(name) for name in ("s3://lake/Orders", "s3://lake/orders", "", "é", "x" * 70)]
    assert len(set(odd)) == len(odd)
    assert all(len(name) <= 63 and name[0].isalnum() and name[-1].isalnum() for name in odd)
    assert all(name == name.lower() for name in odd)


HIVE = "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider"
URIS = "hoodie.write.lock.hivemetastore.uris"
SITE = """<?xml version="1.0"?>
<configuration>
  <property><name>hive.exec.parallel</name><value>true</value></property>
  <property><name> {name} </name><value>
    {uris}
  </value></property>
</configuration>
"""
PLACES = ("HIVE_CONF_DIR", "HIVE_HOME", "HADOOP_CONF_DIR", "HADOOP_HOME", "SPARK_CONF_DIR",
          "SPARK_HOME", "CLASSPATH")  # fmt: skip


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Remove all Hive settings of this machine."""
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def hive_uri(**changed: object) -> str:
    with closing(opened(HIVE, **changed)) as provider:
        return provider.uri


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("HIVE_CONF_DIR", ""),
        ("HIVE_HOME", "conf"),
        ("HADOOP_CONF_DIR", ""),
        ("HADOOP_HOME", "etc/hadoop"),
        ("SPARK_CONF_DIR", ""),
        ("SPARK_HOME", "conf"),
    ],
)
def test_metastore_is_found_in_hive_site_xml(
    nowhere: pytest.MonkeyPatch, tmp_path: Path, variable: str, below: str
) -> None:
    folder = tmp_path / below
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hive-site.xml").write_text(
        SITE.format(name="hive.metastore.uris", uris="thrift://site:9083,thrift://other")
    )
    nowhere.setenv(variable, str(tmp_path))
    assert hive_uri(**{URIS: None}) == "thrift://site:9083/sales.orders"
    assert hive_uri() == "thrift://hms1:9083/sales.orders", "what the settings say wins"


def test_metastore_is_found_on_the_classpath_by_its_newer_name(
    nowhere: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = SITE.format(name="metastore.thrift.uris", uris="thrift://newer:1")
    (tmp_path / "hive-site.xml").write_text(site)
    nowhere.setenv("CLASSPATH", os.pathsep.join(["", "/nowhere/x.jar", str(tmp_path)]))
    assert hive_uri(**{URIS: ""}) == "thrift://newer:1/sales.orders"


def test_unusable_hive_site_xml_is_reported(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere.setenv("HIVE_CONF_DIR", str(tmp_path))
    file = tmp_path / "hive-site.xml"
    file.write_text("<configuration>")
    with pytest.raises(ConfigInvalid, match=re.escape(str(file))):
        hive_uri(**{URIS: None})
    file.write_text(SITE.format(name="hive.metastore.uris", uris="http://wrong"))
    with pytest.raises(ConfigInvalid, match=r"hive.metastore.uris in .*http://wrong"):
        hive_uri(**{URIS: None})
    file.write_text(SITE.format(name="hive.other", uris="x"))
    with pytest.raises(ConfigInvalid, match=URIS):
        hive_uri(**{URIS: None})


def test_lock_name_defaults_to_the_table_name() -> None:
    bare: dict[str, object] = {
        "hoodie.write.lock.hivemetastore.database": None,
        "hoodie.write.lock.hivemetastore.table": None,
    }
    assert hive_uri(**bare) == "thrift://hms1:9083/default.orders"
    assert hive_uri(**{**bare, "hoodie.database.name": "shop"}).endswith("/shop.orders")
    redis = "tidelock.lock.providers.redis.RedisLockProvider"
    with closing(opened(redis, **{"hoodie.table.name": None})) as provider:
        assert provider.uri.endswith("lock||/tmp/hudi/table"), "no name: the base path"
    with closing(opened(redis, **{"tidelock.lock.resource": "r"})) as provider:
        assert provider.uri.endswith("lock||r"), "a name of its own wins"
    kubernetes = "tidelock.lock.providers.kubernetes.KubernetesLockProvider"
    with closing(opened(kubernetes)) as provider:
        assert provider.uri.endswith("/orders")
