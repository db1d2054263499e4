"""A failure is one line that replays it; seeds that ever failed are run for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.planted import a_refused_release_counts_as_released
from tidelock.testing.sim.campaign import Campaign, run_part
from tidelock.testing.sim.cli import main
from tidelock.testing.sim.plan import Clocks
from tidelock.testing.sim.schedule import run_schedule


def _kept_seeds() -> list[tuple[int, str]]:
    """Read `seed world  # what failed` from each line of each file."""
    lines = [
        line.partition("#")[0].split()
        for path in sorted(Path(__file__).parent.joinpath("seeds").glob("*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return [(int(words[0]), words[1]) for words in lines if words]


@pytest.mark.parametrize(("seed", "world"), _kept_seeds())
def test_a_seed_that_once_failed_holds(seed: int, world: str) -> None:
    assert run_schedule(seed, Clocks(world)).violations == ()


def test_a_failure_names_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_refused_release_counts_as_released(monkeypatch)
    failures = run_part(Campaign(0, 50)).failures
    assert failures
    command, _, complaint = failures[0].partition("  # ")
    module, *arguments = command.removeprefix("python -m ").split()
    assert module == "tidelock.testing.sim"
    assert main(arguments) == 1
    assert f"DOES NOT HOLD  {complaint}" in capsys.readouterr().out
