"""Services and writers as processes, one of which is killed every second."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.servicechaos.fleet import run

LASTS_S = 12
"""`make services-chaos` runs more of them, for minutes."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_nothing_is_lost_and_nothing_stays_pending(tmp_path: Path, kind: str) -> None:
    result = run(tmp_path, kind, seconds=LASTS_S, writers=2, services=3)
    print("\n".join(result.lines()))
    assert result.problems == []
