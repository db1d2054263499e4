"""A failure is reported with the command that replays it; recorded seeds pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.sim.campaign import Campaign, run_part
from testkit.sim.cli import main
from testkit.sim.plan import Clocks
from testkit.sim.schedule import run_schedule
from tests.sim.planted import a_refused_release_counts_as_released
from tests.simulation import check_replay, recorded_seeds


@pytest.mark.parametrize(("seed", "world"), recorded_seeds(Path(__file__).parent / "seeds"))
def test_a_recorded_seed_passes(seed: str, world: str) -> None:
    assert run_schedule(int(seed), Clocks(world)).violations == ()


def test_a_failure_names_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_refused_release_counts_as_released(monkeypatch)
    failures = run_part(Campaign(0, 50)).failures
    check_replay(failures, "testkit.sim", main, capsys)
