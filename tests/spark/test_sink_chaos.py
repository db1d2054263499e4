"""Streams killed while records flow. The long run is `make sink-chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.testing.sinkchaos import run


@pytest.mark.timeout(600)
def test_every_record_arrives_once_in_both_tables_though_the_streams_are_killed(
    tmp_path: Path,
) -> None:
    found = run(2_000, 2, tmp_path, batches=5, seed=7, spread_s=2.0)
    assert found.is_good, found
    assert found.kills >= 1
    assert found.lives == found.kills + found.ended + 1
