"""A failure is one line that replays it; seeds that ever failed are run for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.txnsim.planted import nobody_judges_the_entries_that_came_between
from tidelock.testing.txnsim.campaign import Campaign, run_part
from tidelock.testing.txnsim.cli import main
from tidelock.testing.txnsim.schedule import run_schedule


def _kept_seeds() -> list[int]:
    """Read `seed  # what failed` from each line of each file."""
    lines = [
        line.partition("#")[0].split()
        for path in sorted(Path(__file__).parent.joinpath("seeds").glob("*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return [int(words[0]) for words in lines if words]


@pytest.mark.parametrize("seed", _kept_seeds())
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    assert run_schedule(seed).violations == ()


def test_a_failure_names_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody_judges_the_entries_that_came_between(monkeypatch)
    failures = run_part(Campaign(0, 5)).failures
    assert failures
    command, _, complaint = failures[0].partition("  # ")
    module, *arguments = command.removeprefix("python -m ").split()
    assert module == "tidelock.testing.txnsim"
    assert main(arguments) == 1
    assert f"DOES NOT HOLD  {complaint}" in capsys.readouterr().out
