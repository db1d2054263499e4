"""Streaming queries that are killed repeatedly. The long run is `make sink-chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.sinkchaos import run


@pytest.mark.timeout(600)
def test_killed_streams_store_every_record_once_in_both_tables(
    tmp_path: Path,
) -> None:
    found = run(2_000, 2, tmp_path, batches=5, seed=7, spread_s=2.0)
    assert found.is_good, found
    assert found.kills >= 1
    assert found.runs == found.kills + found.failed + 1
