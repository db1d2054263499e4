"""Metrics of stores: the number of requests of each verb that this process has sent."""

from __future__ import annotations

from typing import Final

from tidelock.core.telemetry import MetricKind, MetricName

VERBS: Final = ("get", "head", "put", "delete", "list")

QUEUE_WAIT: Final = MetricName(
    "store.line.wait",
    MetricKind.TIMER,
    "how long a write or commit waited in the local queue of its machine, in ms",
)

METRICS: Final = (
    *(
        MetricName(f"store.{verb}", MetricKind.COUNTER, f"a {verb} request was sent to a store")
        for verb in VERBS
    ),
    QUEUE_WAIT,
)
