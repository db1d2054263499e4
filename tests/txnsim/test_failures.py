"""A failure is reported with the command that replays it; recorded seeds pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.txnsim.campaign import Campaign, run_part
from testkit.txnsim.cli import main
from testkit.txnsim.schedule import run_schedule
from tests.simulation import check_replay, recorded_seeds
from tests.txnsim.planted import later_entries_are_not_checked_for_conflicts

SEEDS = Path(__file__).parent / "seeds"


@pytest.mark.parametrize("seed", [int(line[0]) for line in recorded_seeds(SEEDS)])
def test_a_recorded_seed_passes(seed: int) -> None:
    assert run_schedule(seed).violations == ()


def test_a_failure_names_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    later_entries_are_not_checked_for_conflicts(monkeypatch)
    failures = run_part(Campaign(0, 5)).failures
    check_replay(failures, "testkit.txnsim", main, capsys)
