"""Every metric of the lock service: its name, its kind and when it moves.

`docs/metrics.md` is generated from this list.
"""

from __future__ import annotations

from typing import Final

from tidelock.base.telemetry import MetricKind, MetricName

_C, _G, _T = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.TIMER

_NAMES: Final = (
    ("lockservice.beats", _C, "it looked whether another instance took over"),
    ("lockservice.journal.batches", _C, "it made a batch of decisions durable"),
    (
        "lockservice.journal.write",
        _T,
        "how long that took, in ms; everybody in the batch waits for it",
    ),
    ("lockservice.opened", _C, "an instance took over a lock store"),
    ("lockservice.granted", _C, "a lock was granted"),
    ("lockservice.retimed", _C, "a lock got another time to live"),
    ("lockservice.ended", _C, "a lock was given back, ran out, was lost or was taken away"),
    ("lockservice.held", _G, "locks that are held, of each lock store"),
    ("lockservice.waiting", _G, "those who wait for a lock, of each lock store"),
    ("lockservice.cursor", _G, "the number of the last decision, of each lock store"),
    ("lockservice.streams", _G, "streams that are open"),
)

METRICS: Final = tuple(MetricName(name, kind, doc, is_hudis=False) for name, kind, doc in _NAMES)
