"""Every metric of stores: how many requests of each verb this process has sent."""

from __future__ import annotations

from typing import Final

from tidelock.base.metrics import PROCESS
from tidelock.base.telemetry import MetricKind, MetricName

VERBS: Final = ("get", "head", "put", "delete", "list")

LINE_WAIT: Final = MetricName(
    "store.line.wait",
    MetricKind.TIMER,
    "how long a write or commit stood in line with others on its machine, in ms",
    is_hudis=False,
)

METRICS: Final = (
    *(
        MetricName(
            f"store.{verb}", MetricKind.COUNTER, f"a {verb} was sent to a store", is_hudis=False
        )
        for verb in VERBS
    ),
    LINE_WAIT,
)


def observe(verb: str) -> None:
    """Count a request."""
    PROCESS.count(f"store.{verb}")
