"""The settings of the providers: Hudi's names, defaults and meaning, and ours below `tidelock.`.

They are declared here and not in the providers' own files, because a misspelt name must be
recognised without loading any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from tidelock.base.config import ConfigKey, declare
from tidelock.base.errors import ConfigInvalid
from tidelock.lock.config import BASE_PATH
from tidelock.lockproviders.backend import Terms

_T = TypeVar("_T")
_RENEWALS = 10


def _key(
    name: str,
    parse: Callable[[str], _T],
    default: _T | None,
    doc: str,
    group: str,
    *,
    secret: bool = False,
) -> ConfigKey[_T]:
    return declare(ConfigKey(name, parse, default, doc, group=group, secret=secret))


_LOCK, _ZK, _DDB, _HMS = "Lock", "ZooKeeper lock", "DynamoDB lock", "Hive metastore lock"
_FS, _REDIS, _ETCD = "Filesystem lock", "Redis lock", "etcd lock"
_K8S, _STATE = "Kubernetes lock", "State store lock"
_SERVICE = "Lock service client"

RESOURCE = _key(
    "tidelock.lock.resource",
    str,
    None,
    "name of the lock in a lock server, wherever the provider's own key would say it; default: that"
    " key, else the table's name, else the base path",
    _LOCK,
)
TTL_MS = _key(
    "tidelock.lock.ttl.ms",
    int,
    30_000,
    "how long a lock of Redis, etcd, Kubernetes or a state store outlives a silent holder; it is"
    " renewed ten times as often",
    _LOCK,
)
TABLE_NAME: ConfigKey[str] = ConfigKey("hoodie.table.name", str, None, "name of the table")
"""A key of tables, which declare it; a lock takes its name from it where it has no other."""
DATABASE_NAME: ConfigKey[str] = ConfigKey("hoodie.database.name", str, None, "its database")
"""Likewise, for locks that are named by database and table."""

ZK_URL = _key(
    "hoodie.write.lock.zookeeper.url",
    str,
    None,
    "ZooKeeper's connect string: host:port,host:port/chroot",
    _ZK,
)
ZK_PORT = _key(
    "hoodie.write.lock.zookeeper.port",
    int,
    None,
    "port for those hosts of the connect string that name none",
    _ZK,
)
ZK_BASE_PATH = _key(
    "hoodie.write.lock.zookeeper.base_path", str, None, "node below which locks lie", _ZK
)
ZK_LOCK_KEY = _key(
    "hoodie.write.lock.zookeeper.lock_key",
    str,
    None,
    "node of this table's lock below the base path; default: hoodie.table.name",
    _ZK,
)
ZK_SESSION_MS = _key(
    "hoodie.write.lock.zookeeper.session_timeout_ms",
    int,
    60_000,
    "how long a session, and so a lock, outlives a silent holder",
    _ZK,
)
ZK_CONNECT_MS = _key(
    "hoodie.write.lock.zookeeper.connection_timeout_ms",
    int,
    15_000,
    "how long to wait for a connection",
    _ZK,
)
APPLICATION_ID = _key(
    "hoodie.write.application.id",
    str,
    "Unknown",
    "name of the writing application, shown in the lock's node",
    _ZK,
)

DDB_TABLE = _key("hoodie.write.lock.dynamodb.table", str, "hudi_locks", "table of locks", _DDB)
DDB_PARTITION_KEY = _key(
    "hoodie.write.lock.dynamodb.partition_key",
    str,
    None,
    "value of the item's `key`; default: hoodie.table.name",
    _DDB,
)
DDB_REGION = _key(
    "hoodie.write.lock.dynamodb.region",
    str,
    None,
    "region; default: the usual AWS chain, then us-east-1",
    _DDB,
)
DDB_ENDPOINT = _key(
    "hoodie.write.lock.dynamodb.endpoint_url",
    str,
    None,
    "URL of a DynamoDB-compatible server; default: AWS of the region",
    _DDB,
)
DDB_BILLING = _key(
    "hoodie.write.lock.dynamodb.billing_mode",
    str,
    "PAY_PER_REQUEST",
    "PAY_PER_REQUEST or PROVISIONED, when the table is created",
    _DDB,
)
DDB_READ = _key(
    "hoodie.write.lock.dynamodb.read_capacity", int, 20, "read units of a PROVISIONED table", _DDB
)
DDB_WRITE = _key(
    "hoodie.write.lock.dynamodb.write_capacity", int, 10, "write units of a PROVISIONED table", _DDB
)
DDB_CREATION_MS = _key(
    "hoodie.write.lock.dynamodb.table_creation_timeout",
    int,
    120_000,
    "how long to wait for a table that is being created, in ms",
    _DDB,
)

HMS_DATABASE = _key(
    "hoodie.write.lock.hivemetastore.database",
    str,
    None,
    "database of the table to lock; default: hoodie.database.name, else default",
    _HMS,
)
HMS_TABLE = _key(
    "hoodie.write.lock.hivemetastore.table",
    str,
    None,
    "table to lock; default: hoodie.table.name",
    _HMS,
)
HMS_URIS = _key(
    "hoodie.write.lock.hivemetastore.uris",
    str,
    None,
    "thrift://host:port of the metastore, several separated by commas; default: hive.metastore.uris"
    " of the hive-site.xml that HIVE_CONF_DIR, HADOOP_CONF_DIR, SPARK_CONF_DIR, their homes or the"
    " CLASSPATH lead to",
    _HMS,
)
HMS_TIMEOUT_MS = _key(
    "tidelock.hive.txn.timeout.ms",
    int,
    300_000,
    "the metastore's hive.txn.timeout: how long its locks outlive a silent holder",
    _HMS,
)

FS_PATH = _key(
    "hoodie.write.lock.filesystem.path",
    str,
    None,
    "folder of the lock file; default: .hoodie below the base path",
    _FS,
)
FS_EXPIRE_MIN = _key(
    "hoodie.write.lock.filesystem.expire",
    int,
    0,
    "minutes after which the lock of a silent holder may be taken; 0 is never",
    _FS,
)

REDIS_URL = _key(
    "tidelock.redis.url",
    str,
    None,
    "redis://[user:password@]host:port/db, rediss:// for TLS",
    _REDIS,
    secret=True,
)
REDIS_PREFIX = _key(
    "tidelock.redis.key.prefix",
    str,
    "lock||",
    "put before the resource; Dapr's lock.redis has lock||<app id>||",
    _REDIS,
)
ETCD_URL = _key("tidelock.etcd.url", str, None, "URL of etcd's client port, for its gateway", _ETCD)
ETCD_PREFIX = _key(
    "tidelock.etcd.key.prefix", str, "", "put before the resource to make the lock's name", _ETCD
)
ETCD_USER = _key("tidelock.etcd.user", str, None, "user, where etcd asks for one", _ETCD)
ETCD_PASSWORD = _key(
    "tidelock.etcd.password", str, None, "password of the user", _ETCD, secret=True
)
ETCD_CA_FILE = _key("tidelock.etcd.ca.file", str, None, "authorities of etcd's certificate", _ETCD)

K8S_URL = _key(
    "tidelock.kubernetes.url",
    str,
    None,
    "URL of the API server (`kubectl proxy` gives one); default: the cluster this pod runs in",
    _K8S,
)
K8S_NAMESPACE = _key(
    "tidelock.kubernetes.namespace",
    str,
    None,
    "namespace of the Lease; default: the pod's, then `default`",
    _K8S,
)
K8S_TOKEN_FILE = _key(
    "tidelock.kubernetes.token.file",
    str,
    None,
    "file with the bearer token, read again for each request; default: the pod's service account",
    _K8S,
)
K8S_CA_FILE = _key(
    "tidelock.kubernetes.ca.file",
    str,
    None,
    "authorities of the API server's certificate; default: the pod's service account",
    _K8S,
)
STATE_URL = _key(
    "tidelock.statestore.url",
    str,
    None,
    "place of the locks' states: a path, file, s3, gs or abfss; default: .hoodie/.tidelock/locks"
    " below the base path",
    _STATE,
)
SERVICE_URL = _key(
    "tidelock.lockservice.url", str, None, "URL of a lock service (`tidelock serve`)", _SERVICE
)
SERVICE_STORE = _key(
    "tidelock.lockservice.store", str, None, "its lock store; default: the only one", _SERVICE
)
SERVICE_TOKEN = _key(
    "tidelock.lockservice.token",
    str,
    None,
    "API token; default: TIDELOCK_API_TOKEN in the environment",
    _SERVICE,
    secret=True,
)


def resource_name(settings: Mapping[str, object]) -> str:
    """Return the name of the lock: our key, else the table's name as in Hudi, else the base path.

    Raises: `ConfigInvalid` when none of them is set.
    """
    for key in (RESOURCE, TABLE_NAME, BASE_PATH):
        value = key.value(settings)
        if value:
            return value
    names = f"{RESOURCE.key}, {TABLE_NAME.key}"
    raise ConfigInvalid(f"the lock has no name: none of {names} is set", hint=f"set {names}")


def of_table(
    settings: Mapping[str, object], base_path: str, *, name: str = "", database: str = ""
) -> dict[str, object]:
    """Return the settings of a lock of the table at `base_path`, by whose name it goes.

    What the settings say themselves wins.
    """
    known = {BASE_PATH.key: base_path, TABLE_NAME.key: name, DATABASE_NAME.key: database}
    return {**{key: value for key, value in known.items() if value}, **settings}


def ttl_terms(settings: Mapping[str, object]) -> Terms:
    """Return the terms of a service that takes any time to live.

    Raises: `ConfigInvalid`.
    """
    ttl_ms = TTL_MS.required(settings)
    if ttl_ms < 1_000:
        raise ConfigInvalid(f"{TTL_MS.key} = {ttl_ms} must be at least 1000 ms")
    return Terms(ttl_ms, ttl_ms // _RENEWALS)
