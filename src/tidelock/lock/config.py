"""Settings of the storage lock: Hudi's keys, defaults, aliases and checks, and `tidelock.*`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelock.core.config import ConfigSection
from tidelock.core.errors import ConfigInvalid
from tidelock.core.limits import RENEWALS_PER_VALIDITY, VALIDITY_S_MIN
from tidelock.lock.lease import Lease

PROVIDER = ConfigSection.LOCK.declare(
    "hoodie.write.lock.provider",
    "lock provider, by class name with package: Hudi's Java class, such as"
    " `org.apache.hudi.client.transaction.lock.StorageBasedLockProvider`, Tidelock's, or"
    " `module:Class` of your own, see docs/lock-providers.md; default: none for writes, whose"
    " commits the ledger orders alone, or the ZooKeeper lock if its URL is set; `tidelock lock`"
    " takes the storage lock",
    parse=str,
)
BASE_PATH = ConfigSection.LOCK.declare(
    "hoodie.base.path", "base path of the table to lock", parse=str
)
TABLE_NAME = ConfigSection.TABLES.declare(
    "hoodie.table.name",
    "name of the table",
    parse=str,
    aliases=("hoodie.datasource.write.table.name",),
)
DATABASE_NAME = ConfigSection.TABLES.declare(
    "hoodie.database.name", "database that the table belongs to", default="default"
)
WAIT_TIME_MS = ConfigSection.LOCK.declare(
    "hoodie.write.lock.wait_time_ms", "how long one acquire waits for the lock", default=60_000
)
WAIT_BETWEEN_RETRIES_MS = ConfigSection.LOCK.declare(
    "hoodie.write.lock.wait_time_ms_between_retry",
    "first pause between retries of providers over a lock service; unused by the storage lock",
    default=1_000,
)
WAIT_BETWEEN_RETRIES_MAX_MS = ConfigSection.LOCK.declare(
    "hoodie.write.lock.max_wait_time_ms_between_retry",
    "longest pause between retries of providers over a lock service",
    default=16_000,
)
NUM_RETRIES = ConfigSection.LOCK.declare(
    "hoodie.write.lock.num_retries",
    "consecutive failures after which a provider over a lock service gives up",
    default=15,
)
CLIENT_NUM_RETRIES = ConfigSection.LOCK.declare(
    "hoodie.write.lock.client.num_retries",
    "how often a writer retries an acquire that timed out",
    default=50,
)
CLIENT_WAIT_BETWEEN_RETRIES_MS = ConfigSection.LOCK.declare(
    "hoodie.write.lock.client.wait_time_ms_between_retry",
    "pause between the retries of a writer",
    default=5_000,
    aliases=("hoodie.write.lock.client.wait_time_ms",),
)
HIVE_HEARTBEAT_INTERVAL_MS = ConfigSection.LOCK.declare(
    "hoodie.write.lock.heartbeat_interval_ms",
    "heartbeat interval of the Hive metastore provider",
    default=60_000,
)
VALIDITY_S = ConfigSection.LOCK.declare(
    "hoodie.write.lock.storage.validity.timeout.secs",
    "validity of a storage lock without renewal; at least 10, and 10 renewal intervals",
    default=300,
)
RENEW_S = ConfigSection.LOCK.declare(
    "hoodie.write.lock.storage.renew.interval.secs",
    "renewal interval of a storage lock; at least 1",
    default=30,
    aliases=("hoodie.write.lock.storage.heartbeat.poll.secs",),
)
DRIFT_MS = ConfigSection.LOCK.declare(
    "tidelock.lock.clock.drift.ms",
    "largest clock difference between writers; may be increased, not decreased",
    default=500,
)
ALERT_LOG = ConfigSection.ALERTS.declare(
    "tidelock.alerts.log", "write alerts to the log", default=True
)
ALERT_WEBHOOK = ConfigSection.ALERTS.declare(
    "tidelock.alerts.webhook.url", "URL that receives alerts, as a POST with a JSON body", parse=str
)
ALERT_WEBHOOK_TOKEN = ConfigSection.ALERTS.declare(
    "tidelock.alerts.webhook.token", "bearer token for the webhook", parse=str, secret=True
)
ALERT_WEBHOOK_TIMEOUT_MS = ConfigSection.ALERTS.declare(
    "tidelock.alerts.webhook.timeout.ms", "timeout of a request to the webhook", default=5_000
)
ALERT_RETRIES = ConfigSection.ALERTS.declare(
    "tidelock.alerts.commit.retries",
    "number of conflicts of one write after which an alert is raised",
    default=5,
)
METRICS_PREFIX = ConfigSection.METRICS.declare(
    "hoodie.metrics.reporter.metricsname.prefix", "prefix of all metric names", default=""
)


@dataclass(frozen=True, slots=True)
class LockSettings:
    """The validated settings of one storage lock."""

    lease: Lease
    wait_time_ms: int
    metrics_prefix: str

    @staticmethod
    def read(settings: Mapping[str, object]) -> LockSettings:
        """Read the settings; the checks are in Hudi's order. Raises: `ConfigInvalid`."""
        validity_s = VALIDITY_S.required(settings)
        renew_s = RENEW_S.required(settings)
        if validity_s < RENEWALS_PER_VALIDITY * renew_s:
            raise ConfigInvalid(
                f"{VALIDITY_S.key}: expected at least {RENEWALS_PER_VALIDITY} times {RENEW_S.key}"
                f" ({renew_s}), got {validity_s}",
                hint="increase the validity, or renew more often",
            )
        if validity_s < VALIDITY_S_MIN:
            raise ConfigInvalid(
                f"{VALIDITY_S.key}: expected at least {VALIDITY_S_MIN} seconds, got {validity_s}",
                hint=f"set {VALIDITY_S.key} to {VALIDITY_S_MIN} or more",
            )
        if renew_s < 1:
            raise ConfigInvalid(
                f"{RENEW_S.key}: expected at least 1 second, got {renew_s}",
                hint=f"set {RENEW_S.key} to 1 or more",
            )
        lease = Lease(
            validity_ms=validity_s * 1000,
            renew_ms=renew_s * 1000,
            drift_ms=DRIFT_MS.required(settings),
        )
        return LockSettings(
            lease=lease,
            wait_time_ms=WAIT_TIME_MS.required(settings),
            metrics_prefix=METRICS_PREFIX.required(settings),
        )
