"""The lock's settings: Hudi's keys, defaults, aliases and checks, and ours below `tidelock.`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelock.base.config import ConfigKey, declare
from tidelock.base.errors import ConfigInvalid
from tidelock.base.limits import RENEWALS_PER_VALIDITY, VALIDITY_S_MIN
from tidelock.lock.lease import Lease

_G = "Lock"

PROVIDER = declare(
    ConfigKey(
        "hoodie.write.lock.provider",
        str,
        None,
        "class name of the lock provider; Hudi's Java names are accepted",
        group=_G,
    )
)
BASE_PATH = declare(
    ConfigKey("hoodie.base.path", str, None, "base path of the table whose lock is taken", group=_G)
)
WAIT_TIME_MS = declare(
    ConfigKey(
        "hoodie.write.lock.wait_time_ms",
        int,
        60_000,
        "how long one call waits for the lock",
        group=_G,
    )
)
WAIT_BETWEEN_RETRIES_MS = declare(
    ConfigKey(
        "hoodie.write.lock.wait_time_ms_between_retry",
        int,
        1_000,
        "first pause between retries of providers with a client of their own; the storage lock"
        " paces itself",
        group=_G,
    )
)
WAIT_BETWEEN_RETRIES_MAX_MS = declare(
    ConfigKey(
        "hoodie.write.lock.max_wait_time_ms_between_retry",
        int,
        16_000,
        "longest pause between retries of providers with a client of their own",
        group=_G,
    )
)
NUM_RETRIES = declare(
    ConfigKey(
        "hoodie.write.lock.num_retries",
        int,
        15,
        "retries inside providers with a client of their own",
        group=_G,
    )
)
CLIENT_NUM_RETRIES = declare(
    ConfigKey(
        "hoodie.write.lock.client.num_retries",
        int,
        50,
        "how often a writer asks its provider again after a failed wait",
        group=_G,
    )
)
CLIENT_WAIT_BETWEEN_RETRIES_MS = declare(
    ConfigKey(
        "hoodie.write.lock.client.wait_time_ms_between_retry",
        int,
        5_000,
        "pause between a writer's tries with its provider",
        aliases=("hoodie.write.lock.client.wait_time_ms",),
        group=_G,
    )
)
HEARTBEAT_INTERVAL_MS = declare(
    ConfigKey(
        "hoodie.write.lock.heartbeat_interval_ms",
        int,
        60_000,
        "heartbeat of the Hive metastore provider",
        group=_G,
    )
)
VALIDITY_S = declare(
    ConfigKey(
        "hoodie.write.lock.storage.validity.timeout.secs",
        int,
        300,
        "how long a storage lock is valid without renewal; at least 10, and 10 renewals",
        group=_G,
    )
)
RENEW_S = declare(
    ConfigKey(
        "hoodie.write.lock.storage.renew.interval.secs",
        int,
        30,
        "how often a storage lock is renewed; at least 1",
        aliases=("hoodie.write.lock.storage.heartbeat.poll.secs",),
        group=_G,
    )
)
DRIFT_MS = declare(
    ConfigKey(
        "tidelock.lock.clock.drift.ms",
        int,
        500,
        "largest difference between the clocks of contenders; may be raised, never lowered",
        group=_G,
    )
)
METRICS_PREFIX = declare(
    ConfigKey(
        "hoodie.metrics.reporter.metricsname.prefix",
        str,
        "",
        "put before every metric's name",
        group="Metrics",
    )
)


@dataclass(frozen=True, slots=True)
class LockSettings:
    """The settings of one storage lock, checked."""

    lease: Lease
    wait_time_ms: int
    metrics_prefix: str

    @staticmethod
    def read(settings: Mapping[str, object]) -> LockSettings:
        """Read and check; the checks and their order are Hudi's.

        Raises: `ConfigInvalid`.
        """
        validity_s = VALIDITY_S.required(settings)
        renew_s = RENEW_S.required(settings)
        if validity_s < RENEWALS_PER_VALIDITY * renew_s:
            raise ConfigInvalid(
                f"{VALIDITY_S.key} = {validity_s} must be at least {RENEWALS_PER_VALIDITY} times"
                f" {RENEW_S.key} = {renew_s}",
                hint="lengthen the validity or renew more often",
            )
        if validity_s < VALIDITY_S_MIN:
            raise ConfigInvalid(
                f"{VALIDITY_S.key} = {validity_s} must be at least {VALIDITY_S_MIN} seconds"
            )
        if renew_s < 1:
            raise ConfigInvalid(f"{RENEW_S.key} = {renew_s} must be at least 1 second")
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
