"""Intervals and end of a continuous run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelock.streamer.batch import Streamer
from tidelock.streamer.config import StreamerRequest
from tidelock.streamer.run import run_continuously

BATCH = SimpleNamespace(repeated=False, rows=1, malformed=0, checkpoint="1")


class Working:
    """A streamer whose batches advance a manual clock."""

    def __init__(self, took_ms: int, batches: list[Any], **given: Any) -> None:
        root = {"hoodie.streamer.source.dfs.root": "/in"}
        self.request = StreamerRequest(
            "/table", "JsonDFSSource", continuous=True, properties=root, **given
        )
        self.now_ms = 0
        self.took_ms = took_ms
        self.batches = batches
        self.clock = self

    def now(self) -> Any:
        return SimpleNamespace(monotonic_ms=self.now_ms)

    def sync(self) -> Any:
        self.now_ms += self.took_ms
        return self.batches.pop(0)


class Waits:
    """Records the waits of a run, and stops it at the last one."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.seconds: list[float] = []

    def wait(self, duration_s: float | None) -> bool:
        if duration_s:
            self.seconds.append(round(duration_s, 3))
        return len(self.seconds) >= self.most


def waited(took_ms: int, batches: list[Any], **given: Any) -> tuple[list[float], int]:
    waits, streamer = Waits(len(batches)), Working(took_ms, batches, **given)
    totals = run_continuously(cast("Streamer", streamer), stop=waits, on_event=lambda _: None)
    return waits.seconds, totals.batches


@pytest.mark.parametrize(("took_ms", "waits_s"), [(700, 29.3), (29_999, 0.001)])
def test_batches_start_at_the_configured_interval(took_ms: int, waits_s: float) -> None:
    found = waited(took_ms, [BATCH, BATCH], min_sync_interval_s=30.0)
    assert found == ([waits_s, waits_s], 2)


def test_idle_source_is_polled_at_the_configured_interval() -> None:
    assert waited(10, [None]) == ([1.0], 0)
    assert waited(10, [None], min_sync_interval_s=30.0) == ([29.99], 0)
