"""Alerts for operators, and how they are delivered (`tidelock.alerts.*`).

An alert goes to the log, to every callback, and to a webhook if one is configured. Raising an alert
never fails; the webhook is called in the background.
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

from tidelock.core.telemetry import PROCESS, EventName, log_event
from tidelock.core.threads import DaemonPool
from tidelock.lock.config import (
    ALERT_LOG,
    ALERT_RETRIES,
    ALERT_WEBHOOK,
    ALERT_WEBHOOK_TIMEOUT_MS,
    ALERT_WEBHOOK_TOKEN,
)

logger = logging.getLogger(__name__)

_TRIES: Final = 3


class AlertKind(StrEnum):
    """Kinds of alerts."""

    LOCK_LOST = "lock.lost"
    FENCED = "writer.fenced"
    EXTERNAL_UNLOCKED = "foreign.unlocked"
    STARVED = "heartbeat.starved"
    RETRIES = "commit.retries"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS: Final = {
    AlertKind.LOCK_LOST: "a holder lost its lock: check its later writes by their token",
    AlertKind.FENCED: "a writer that was considered dead resumed, and could not commit",
    AlertKind.EXTERNAL_UNLOCKED: "an external writer committed without the lock of the table",
    AlertKind.STARVED: "the heartbeat of a running write is late: others will consider it dead",
    AlertKind.RETRIES: "a write conflicted more often than `tidelock.alerts.commit.retries`",
}

ALERT = EventName(
    "alert", logging.WARNING, "an alert was raised", ("kind", "about", "writer", "instant")
)
EVENTS: Final = (ALERT,)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: what happened, to which table or lock, and which writer."""

    kind: AlertKind
    about: str
    message: str
    at_epoch_ms: int
    writer: str = ""
    instant: str = ""

    def facts(self) -> dict[str, object]:
        """Return the fields of the alert, as sent to a webhook."""
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
    """Call `callback` with every alert of this process; return a function that removes it.

    It runs in the thread that raises the alert, so it must be fast.
    """
    with _mutex:
        _callbacks.append(callback)

    def remove() -> None:
        with _mutex:
            if callback in _callbacks:
                _callbacks.remove(callback)

    return remove


@dataclass(frozen=True, slots=True)
class Alerts:
    """Delivery of the alerts of one component, by its settings."""

    log: bool
    webhook: str | None
    token: str | None
    timeout_ms: int
    retries_max: int

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> Alerts:
        """Read the settings. Raises: `ConfigInvalid`."""
        return cls(
            log=ALERT_LOG.required(settings),
            webhook=ALERT_WEBHOOK.value(settings),
            token=ALERT_WEBHOOK_TOKEN.value(settings),
            timeout_ms=ALERT_WEBHOOK_TIMEOUT_MS.required(settings),
            retries_max=ALERT_RETRIES.required(settings),
        )

    def fire(self, alert: Alert) -> None:
        """Deliver an alert; never raises."""
        PROCESS.count("alerts.raised")
        if self.log:
            event = {name: str(getattr(alert, name)) for name in ALERT.fields}
            log_event(logger, ALERT, "%s: %s", alert.about, alert.message, **event)
        with _mutex:
            callbacks = tuple(_callbacks)
        for callback in callbacks:
            try:
                callback(alert)
            except Exception:
                PROCESS.count("alerts.undelivered")
                logger.exception("an alert callback failed")
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
            logger.warning("an alert was not delivered to the webhook: %s", problem)
