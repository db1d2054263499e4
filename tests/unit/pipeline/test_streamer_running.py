"""How a continuous run spaces its batches out, and how it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelock.pipeline.streamer.running import run_on
from tidelock.pipeline.streamer.settings import Asked
from tidelock.pipeline.streamer.sync import Streamer

BATCH = SimpleNamespace(repeated=False, rows=1, malformed=0, checkpoint="1")


class Working:
    """A streamer whose batches take some time of a clock that nobody waits for."""

    def __init__(self, took_ms: int, batches: list[Any], **given: Any) -> None:
        root = {"hoodie.streamer.source.dfs.root": "/in"}
        self.asked = Asked("/table", "JsonDFSSource", continuous=True, properties=root, **given)
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
    """Notes how long a run waits, and stops it at the last of so many waits."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.seconds: list[float] = []

    def wait(self, duration_s: float | None) -> bool:
        if duration_s:
            self.seconds.append(round(duration_s, 3))
        return len(self.seconds) >= self.most


def waited(took_ms: int, batches: list[Any], **given: Any) -> tuple[list[float], int]:
    waits, streamer = Waits(len(batches)), Working(took_ms, batches, **given)
    totals = run_on(cast("Streamer", streamer), stop=waits, tell=lambda _: None)
    return waits.seconds, totals.batches


@pytest.mark.parametrize(("took_ms", "waits_s"), [(700, 29.3), (29_999, 0.001)])
def test_batches_begin_as_far_apart_as_is_asked(took_ms: int, waits_s: float) -> None:
    found = waited(took_ms, [BATCH, BATCH], min_sync_interval_s=30.0)
    assert found == ([waits_s, waits_s], 2)


def test_a_source_without_news_is_looked_at_after_a_while() -> None:
    assert waited(10, [None]) == ([1.0], 0)
    assert waited(10, [None], min_sync_interval_s=30.0) == ([29.99], 0)
