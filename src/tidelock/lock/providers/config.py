"""Settings of the lock providers: Hudi's keys and defaults, and Tidelock's under `tidelock.`.

They are declared here, not in the modules of the providers, so that misspelled keys are detected
without loading every provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelock.core.clock import Clock
from tidelock.core.config import ConfigKey, ConfigSection
from tidelock.core.errors import ConfigInvalid, Throttled, Unavailable
from tidelock.core.ids import IdSource
from tidelock.core.retry import Backoff
from tidelock.lock.config import (
    BASE_PATH,
    DATABASE_NAME,
    NUM_RETRIES,
    TABLE_NAME,
    WAIT_BETWEEN_RETRIES_MAX_MS,
    WAIT_BETWEEN_RETRIES_MS,
)
from tidelock.lock.providers.backend import HeldByOther, LeaseTerms

_RENEWALS = 10


RESOURCE = ConfigSection.LOCK.declare(
    "tidelock.lock.resource",
    "name of the lock in the lock service, for any provider; default: the provider's own key, else"
    " the table name, else the base path",
    parse=str,
)
TTL_MS = ConfigSection.LOCK.declare(
    "tidelock.lock.ttl.ms",
    "validity of a lock in Redis, etcd, Kubernetes or a state store that is not renewed; it is"
    " renewed every tenth of that time",
    default=30_000,
)

ZK_URL = ConfigSection.ZOOKEEPER_LOCK.declare(
    "hoodie.write.lock.zookeeper.url",
    "ZooKeeper's connect string: host:port,host:port/chroot",
    parse=str,
)
ZK_PORT = ConfigSection.ZOOKEEPER_LOCK.declare(
    "hoodie.write.lock.zookeeper.port",
    "port of the hosts in the connect string that have none",
    parse=int,
)
ZK_BASE_PATH = ConfigSection.ZOOKEEPER_LOCK.declare(
    "hoodie.write.lock.zookeeper.base_path", "parent node of the locks", parse=str
)
ZK_LOCK_KEY = ConfigSection.ZOOKEEPER_LOCK.declare(
    "hoodie.write.lock.zookeeper.lock_key",
    "node of this table's lock under the base path; default: hoodie.table.name",
    parse=str,
)
ZK_SESSION_MS = ConfigSection.ZOOKEEPER_LOCK.declare(
    "hoodie.write.lock.zookeeper.session_timeout_ms",
    "session timeout: how long the lock of a dead holder remains",
    default=60_000,
)
ZK_CONNECT_MS = ConfigSection.ZOOKEEPER_LOCK.declare(
    "hoodie.write.lock.zookeeper.connection_timeout_ms", "connection timeout", default=15_000
)
APPLICATION_ID = ConfigSection.ZOOKEEPER_LOCK.declare(
    "hoodie.write.application.id",
    "name of the writing application, stored in the lock node",
    default="Unknown",
)

DDB_TABLE = ConfigSection.DYNAMODB_LOCK.declare(
    "hoodie.write.lock.dynamodb.table", "table of locks", default="hudi_locks"
)
DDB_PARTITION_KEY = ConfigSection.DYNAMODB_LOCK.declare(
    "hoodie.write.lock.dynamodb.partition_key",
    "value of the item's `key`; default: hoodie.table.name",
    parse=str,
)
DDB_REGION = ConfigSection.DYNAMODB_LOCK.declare(
    "hoodie.write.lock.dynamodb.region",
    "region; default: from the AWS configuration, else us-east-1",
    parse=str,
)
DDB_ENDPOINT = ConfigSection.DYNAMODB_LOCK.declare(
    "hoodie.write.lock.dynamodb.endpoint_url",
    "URL of a DynamoDB-compatible server; default: AWS in the region",
    parse=str,
)
DDB_BILLING = ConfigSection.DYNAMODB_LOCK.declare(
    "hoodie.write.lock.dynamodb.billing_mode",
    "billing mode for a new table: PAY_PER_REQUEST or PROVISIONED",
    default="PAY_PER_REQUEST",
    choices=("PAY_PER_REQUEST", "PROVISIONED"),
)
DDB_READ = ConfigSection.DYNAMODB_LOCK.declare(
    "hoodie.write.lock.dynamodb.read_capacity",
    "read capacity units of a PROVISIONED table",
    default=20,
)
DDB_WRITE = ConfigSection.DYNAMODB_LOCK.declare(
    "hoodie.write.lock.dynamodb.write_capacity",
    "write capacity units of a PROVISIONED table",
    default=10,
)
DDB_CREATION_MS = ConfigSection.DYNAMODB_LOCK.declare(
    "hoodie.write.lock.dynamodb.table_creation_timeout",
    "how long to wait for the creation of the table, in ms",
    default=120_000,
)

HMS_DATABASE = ConfigSection.HIVE_LOCK.declare(
    "hoodie.write.lock.hivemetastore.database",
    "database of the table to lock; default: hoodie.database.name, else default",
    parse=str,
)
HMS_TABLE = ConfigSection.HIVE_LOCK.declare(
    "hoodie.write.lock.hivemetastore.table", "table to lock; default: hoodie.table.name", parse=str
)
HMS_URIS = ConfigSection.HIVE_LOCK.declare(
    "hoodie.write.lock.hivemetastore.uris",
    "URI of the metastore, thrift://host:port, several separated by commas; default:"
    " hive.metastore.uris in the hive-site.xml found through HIVE_CONF_DIR, HIVE_HOME,"
    " HADOOP_CONF_DIR, HADOOP_HOME, SPARK_CONF_DIR, SPARK_HOME or CLASSPATH",
    parse=str,
)
HMS_TIMEOUT_MS = ConfigSection.HIVE_LOCK.declare(
    "tidelock.hive.txn.timeout.ms",
    "the metastore's hive.txn.timeout: how long the lock of a dead holder remains",
    default=300_000,
)

FS_PATH = ConfigSection.FILESYSTEM_LOCK.declare(
    "hoodie.write.lock.filesystem.path",
    "folder of the lock file; default: .hoodie under the base path",
    parse=str,
)
FS_EXPIRE_MIN = ConfigSection.FILESYSTEM_LOCK.declare(
    "hoodie.write.lock.filesystem.expire",
    "minutes after which a lock that is not renewed may be taken over; 0: never",
    default=0,
)

REDIS_URL = ConfigSection.REDIS_LOCK.declare(
    "tidelock.redis.url",
    "URL of the server: redis://[user:password@]host:port/db, or rediss:// for TLS",
    parse=str,
    secret=True,
)
REDIS_PREFIX = ConfigSection.REDIS_LOCK.declare(
    "tidelock.redis.key.prefix",
    "prefix of the lock key; Dapr's lock.redis uses lock||<app id>||",
    default="lock||",
)
ETCD_URL = ConfigSection.ETCD_LOCK.declare(
    "tidelock.etcd.url", "URL of etcd's client port (JSON gateway)", parse=str
)
ETCD_PREFIX = ConfigSection.ETCD_LOCK.declare(
    "tidelock.etcd.key.prefix", "prefix of the lock name", default=""
)
ETCD_USER = ConfigSection.ETCD_LOCK.declare(
    "tidelock.etcd.user", "user name, if etcd has authentication enabled", parse=str
)
ETCD_PASSWORD = ConfigSection.ETCD_LOCK.declare(
    "tidelock.etcd.password", "password of the user", parse=str, secret=True
)
ETCD_CA_FILE = ConfigSection.ETCD_LOCK.declare(
    "tidelock.etcd.ca.file", "CA certificates for etcd", parse=str
)

K8S_URL = ConfigSection.KUBERNETES_LOCK.declare(
    "tidelock.kubernetes.url",
    "URL of the API server, for example of `kubectl proxy`; default: the cluster of this pod",
    parse=str,
)
K8S_NAMESPACE = ConfigSection.KUBERNETES_LOCK.declare(
    "tidelock.kubernetes.namespace",
    "namespace of the Lease; default: the namespace of the pod, else `default`",
    parse=str,
)
K8S_TOKEN_FILE = ConfigSection.KUBERNETES_LOCK.declare(
    "tidelock.kubernetes.token.file",
    "file with the bearer token, read for each request; default: the pod's service account",
    parse=str,
)
K8S_CA_FILE = ConfigSection.KUBERNETES_LOCK.declare(
    "tidelock.kubernetes.ca.file",
    "CA certificates for the API server; default: the pod's service account",
    parse=str,
)
STATE_URL = ConfigSection.STATE_STORE_LOCK.declare(
    "tidelock.statestore.url",
    "location of the lock state: a path, or a file, s3, gs or abfss URI; default:"
    " .hoodie/.tidelock/locks under the base path",
    parse=str,
)
SERVICE_URL = ConfigSection.LOCK_SERVICE.declare(
    "tidelock.lockservice.url", "URL of a lock service (`tidelock serve`)", parse=str
)
SERVICE_STORE = ConfigSection.LOCK_SERVICE.declare(
    "tidelock.lockservice.store",
    "lock store of the service; optional if it has only one",
    parse=str,
)
SERVICE_TOKEN = ConfigSection.LOCK_SERVICE.declare(
    "tidelock.lockservice.token",
    "API token; default: the environment variable TIDELOCK_API_TOKEN",
    parse=str,
    secret=True,
)


def first_set(settings: Mapping[str, object], *keys: ConfigKey[str]) -> str | None:
    """Return the first value that is set and not empty; None if there is none."""
    return next((value for key in keys if (value := key.explicit(settings))), None)


def resource_name(settings: Mapping[str, object]) -> str:
    """Return the name of the lock: resource, else table name (as in Hudi), else base path.

    Raises: `ConfigInvalid` if none of them is set.
    """
    found = first_set(settings, RESOURCE, TABLE_NAME, BASE_PATH)
    if found:
        return found
    names = f"{RESOURCE.key}, {TABLE_NAME.key}"
    raise ConfigInvalid(
        f"the lock has no name: {names} and {BASE_PATH.key} are not set", hint=f"set one of {names}"
    )


def of_table(
    settings: Mapping[str, object], base_path: str, *, name: str = "", database: str = ""
) -> dict[str, object]:
    """Return `settings` with defaults for the lock of the table at `base_path`."""
    known = {BASE_PATH.key: base_path, TABLE_NAME.key: name, DATABASE_NAME.key: database}
    return {**{key: value for key, value in known.items() if value}, **settings}


def ttl_terms(settings: Mapping[str, object]) -> LeaseTerms:
    """Return the lease terms of a service that accepts any TTL. Raises: `ConfigInvalid`."""
    ttl_ms = TTL_MS.required(settings)
    if ttl_ms < 1_000:
        raise ConfigInvalid(
            f"{TTL_MS.key}: expected at least 1000 ms, got {ttl_ms}",
            hint=f"set {TTL_MS.key} to 1000 or more",
        )
    return LeaseTerms(ttl_ms, ttl_ms // _RENEWALS)


_POLL_FIRST_MS = 10
_POLL_FACTOR = 1.6


@dataclass(frozen=True, slots=True)
class PollingPolicy:
    """Pauses between polls of a held lock, and between retries of an unreachable service.

    `hoodie.write.lock.wait_time_ms_between_retry` is the longest pause between polls and the first
    pause between failures; `…max_wait_time_ms_between_retry` is the longest pause between failures.
    After `…num_retries` consecutive failures a call gives up, even if its waiting time is not over.
    """

    between_ms: int
    between_max_ms: int
    retries: int

    @staticmethod
    def read(settings: Mapping[str, object]) -> PollingPolicy:
        """Read and validate the settings. Raises: `ConfigInvalid`."""
        between_ms = WAIT_BETWEEN_RETRIES_MS.required(settings)
        between_max_ms = WAIT_BETWEEN_RETRIES_MAX_MS.required(settings)
        retries = NUM_RETRIES.required(settings)
        if between_ms < 1 or retries < 0:
            raise ConfigInvalid(
                f"{WAIT_BETWEEN_RETRIES_MS.key}: expected at least 1, got {between_ms};"
                f" {NUM_RETRIES.key}: expected at least 0, got {retries}",
                hint="correct the one that is too small",
            )
        return PollingPolicy(between_ms, max(between_ms, between_max_ms), retries)


class RetryState:
    """The state of one wait: time left, refusals and failures so far."""

    def __init__(self, polling: PollingPolicy, clock: Clock, ids: IdSource, wait_ms: float) -> None:
        """Start a wait of up to `wait_ms`."""
        self._clock = clock
        self._ids = ids
        self._polling = polling
        self._until_ms = clock.now().monotonic_ms + wait_ms
        self._poll_backoff = Backoff(
            first_ms=min(_POLL_FIRST_MS, polling.between_ms),
            max_ms=polling.between_ms,
            factor=_POLL_FACTOR,
        )
        self._failure_backoff = Backoff(first_ms=polling.between_ms, max_ms=polling.between_max_ms)
        self._last_owner = ""
        self._same_owner = 0
        self._failures = 0

    def after_refusal(self, refusal: HeldByOther) -> float | None:
        """Return the pause after a refusal; None if the time is over.

        The pause grows while the owner stays the same, and starts over when it changes.
        """
        self._failures = 0
        self._same_owner = self._same_owner + 1 if refusal.owner == self._last_owner else 0
        self._last_owner = refusal.owner
        pause_ms = self._poll_backoff.delay_ms(self._same_owner, self._ids.jitter())
        if refusal.poll_after_ms is not None:
            pause_ms = min(pause_ms, max(refusal.poll_after_ms, self._poll_backoff.first_ms / 2))
        return self._within(pause_ms)

    def after_failure(self, error: Unavailable) -> float | None:
        """Return the pause after a failure; None if the time or the retries are used up."""
        self._failures += 1
        if self._failures > self._polling.retries:
            return None
        pause_ms = self._failure_backoff.delay_ms(self._failures - 1, self._ids.jitter())
        if isinstance(error, Throttled):
            pause_ms = max(pause_ms, error.retry_after_ms or 0)
        return self._within(pause_ms)

    def after_unclear(self) -> float | None:
        """Return the pause after an unclear reply; None if the time or the retries are used up."""
        self._failures += 1
        if self._failures > self._polling.retries:
            return None
        return self._within(self._poll_backoff.first_ms)

    def _within(self, pause_ms: float) -> float | None:
        left_ms = self._until_ms - self._clock.now().monotonic_ms
        return None if left_ms <= 0 else min(pause_ms, left_ms)
