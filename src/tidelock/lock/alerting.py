"""Alerts: what an operator wants to be woken for, and how they are told (`tidelock.alerts.*`).

An alert goes to the log, to every callback, and to a webhook if one is set. Telling never fails
and never waits: whoever raises an alert has something more urgent to do.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import urllib3

from tidelock.base.config import ConfigKey, boolean, declare
from tidelock.base.metrics import PROCESS
from tidelock.base.runtime import DaemonPool
from tidelock.base.telemetry import EventName, tell

logger = logging.getLogger(__name__)

_GROUP: Final = "Alerts"
_TRIES: Final = 3

LOG = declare(
    ConfigKey(
        "tidelock.alerts.log", boolean, default=True, doc="write alerts to the log", group=_GROUP
    )
)
WEBHOOK = declare(
    ConfigKey(
        "tidelock.alerts.webhook.url",
        str,
        default=None,
        doc="where alerts are sent to, as a POST of JSON",
        group=_GROUP,
    )
)
WEBHOOK_TOKEN = declare(
    ConfigKey(
        "tidelock.alerts.webhook.token",
        str,
        default=None,
        doc="sent with alerts as a bearer token",
        secret=True,
        group=_GROUP,
    )
)
WEBHOOK_TIMEOUT_MS = declare(
    ConfigKey(
        "tidelock.alerts.webhook.timeout.ms",
        int,
        default=5_000,
        doc="how long the webhook may take",
        group=_GROUP,
    )
)
RETRIES = declare(
    ConfigKey(
        "tidelock.alerts.commit.retries",
        int,
        default=5,
        doc="how often a write is overtaken before that is an alert",
        group=_GROUP,
    )
)


class AlertKind(StrEnum):
    """What can be alarming."""

    LOCK_LOST = "lock.lost"
    FENCED = "writer.fenced"
    FOREIGN = "foreign.unlocked"
    STARVED = "heartbeat.starved"
    RETRIES = "commit.retries"

    @property
    def meaning(self) -> str:
        """The kind in a sentence."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    AlertKind.LOCK_LOST: "a holder lost its lock: what it wrote since must be checked by its token",
    AlertKind.FENCED: "a writer that was given up for dead came back, and was kept from committing",
    AlertKind.FOREIGN: "somebody who keeps no ledger committed without the table's lock",
    AlertKind.STARVED: "a running write's heartbeat is not refreshed: others will take it for dead",
    AlertKind.RETRIES: "a write was overtaken more often than `tidelock.alerts.commit.retries`",
}

ALERT = EventName(
    "alert", logging.WARNING, "an alert was raised", ("kind", "about", "writer", "instant")
)
EVENTS: Final = (ALERT,)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alarm: what happened, to which table or lock, in whose hands."""

    kind: AlertKind
    about: str
    message: str
    at_epoch_ms: int
    writer: str = ""
    instant: str = ""

    def facts(self) -> dict[str, object]:
        """Return the alert as a webhook is sent it."""
        return {
            "kind": self.kind.value,
            "about": self.about,
            "message": self.message,
            "meaning": self.kind.meaning,
            "at_epoch_ms": self.at_epoch_ms,
            "writer": self.writer,
            "instant": self.instant,
        }


Callback = Callable[[Alert], object]

_callbacks: list[Callback] = []
_mutex = threading.Lock()
_pool = DaemonPool("tidelock-alerts", 2)


def on_alert(callback: Callback) -> Callable[[], None]:
    """Call `callback` with every alert of this process; return what ends that.

    It is called in the thread that raises the alert, so it must not take long.
    """
    with _mutex:
        _callbacks.append(callback)

    def leave() -> None:
        with _mutex:
            if callback in _callbacks:
                _callbacks.remove(callback)

    return leave


@dataclass(frozen=True, slots=True)
class Alerts:
    """Where the alerts of one component go, by its settings."""

    log: bool = True
    webhook: str | None = None
    token: str | None = None
    timeout_ms: int = 5_000
    retries_max: int = 5

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> Alerts:
        """Read the settings. Raises: `ConfigInvalid`."""
        return cls(
            LOG.required(settings),
            WEBHOOK.value(settings),
            WEBHOOK_TOKEN.value(settings),
            WEBHOOK_TIMEOUT_MS.required(settings),
            RETRIES.required(settings),
        )

    def fire(self, alert: Alert) -> None:
        """Tell everybody; never raises."""
        PROCESS.count("alerts.raised")
        if self.log:
            fields = {"writer": alert.writer, "instant": alert.instant}
            message = "%s: %s"
            told = {"kind": alert.kind.value, "about": alert.about, **fields}
            tell(logger, ALERT, message, alert.about, alert.message, **told)
        with _mutex:
            callbacks = tuple(_callbacks)
        for callback in callbacks:
            try:
                callback(alert)
            except Exception:
                PROCESS.count("alerts.undelivered")
                logger.exception("a callback for alerts failed")
        if self.webhook is not None:
            _pool.submit(lambda: self._post(alert))

    def _post(self, alert: Alert) -> None:
        assert self.webhook is not None
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        timeout = urllib3.Timeout(self.timeout_ms / 1000)
        retries = urllib3.Retry(_TRIES - 1, backoff_factor=0.2, redirect=0, allowed_methods=None)
        try:
            with urllib3.PoolManager(timeout=timeout, retries=retries) as http:
                body = json.dumps(alert.facts()).encode()
                reply = http.request("POST", self.webhook, body=body, headers=headers)
            problem = "" if reply.status < 300 else f"status {reply.status}"
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            problem = type(error).__name__
        if problem:
            PROCESS.count("alerts.undelivered")
            logger.warning("the webhook for alerts did not take one: %s", problem)
