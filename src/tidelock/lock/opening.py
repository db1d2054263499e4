"""From a URI to a lock."""

from __future__ import annotations

from collections.abc import Mapping

from tidelock.base.clock import SystemClock
from tidelock.base.config import unknown_keys
from tidelock.base.errors import ConfigInvalid
from tidelock.base.limits import REQUEST_TIMEOUT_MS
from tidelock.base.metrics import Metrics
from tidelock.lock.alerting import Alert, AlertKind, Alerts
from tidelock.lock.config import RENEW_S, VALIDITY_S, LockSettings
from tidelock.lock.driver import Lock
from tidelock.store.options import REQUEST_TIMEOUT
from tidelock.store.uri import open_store

_TIMEOUT_SHARE = 5
"""As in Hudi, one request may take a fifth of the validity: four more can follow before the end."""


def lock(
    uri: str,
    *,
    settings: Mapping[str, object] | None = None,
    validity_s: int | None = None,
    renew_s: int | None = None,
    wait_s: float | None = None,
    bind_thread: bool = True,
    metrics: Metrics | None = None,
) -> Lock:
    """Return the lock of a table or of any other resource, not yet acquired.

    `uri` is a path, `file://`, `s3://`, `gs://`, `abfss://` or `memory://`. `settings` takes Hudi's
    keys (`hoodie.write.lock.storage.*` …); the keyword arguments win over them. `wait_s` is how
    long `with` and `async with` wait; None waits for ever.

        with tl.lock("s3://lake/orders") as held:
            publish(held.token)

    Raises: `ResourceInvalid`, `ConfigInvalid`, `Unsupported`, `MissingExtra`.
    """
    chosen = dict(settings or {})
    if validity_s is not None:
        chosen[VALIDITY_S.key] = validity_s
    if renew_s is not None:
        chosen[RENEW_S.key] = renew_s
    elif validity_s is not None and RENEW_S.value(settings or {}) == RENEW_S.default:
        chosen[RENEW_S.key] = max(1, min(30, validity_s // 10))
    refuse_unknown(chosen)
    read = LockSettings.read(chosen)
    share_ms = read.lease.validity_ms // _TIMEOUT_SHARE
    chosen.setdefault(REQUEST_TIMEOUT.key, min(REQUEST_TIMEOUT_MS, share_ms))
    alerts, clock = Alerts.read(chosen), SystemClock()
    made = Lock(
        open_store(uri, chosen),
        read.lease,
        wait_s=wait_s,
        bind_thread=bind_thread,
        metrics=metrics or Metrics(read.metrics_prefix),
    )

    place, owner = made.uri, made.owner

    def lost(cause: str) -> None:
        now_ms = clock.now().wall_epoch_ms
        alerts.fire(Alert(AlertKind.LOCK_LOST, place, cause, now_ms, owner))

    made.on_lost(lost)
    return made


def refuse_unknown(settings: Mapping[str, object]) -> None:
    """Raise `ConfigInvalid` for a misspelt key; keys of other parts of Hudi pass."""
    for name, near in unknown_keys(settings, prefixes=("tidelock.", "hoodie.write.lock.")).items():
        hint = f"did you mean {near}?" if near else "see docs/configuration.md"
        raise ConfigInvalid(f"unknown setting {name}", hint=hint)
