"""Each planted bug is found, by the promise it breaks, within a bounded number of schedules.

Seeds until found, when this was written (schedules without the faults a bug needs not counted):

TABLE
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import count

import pytest

from tests.sim.planted import PLANTS, Plant
from tidelock.testing.sim.campaign import Campaign
from tidelock.testing.sim.plan import Clocks, draw
from tidelock.testing.sim.schedule import Outcome, run_schedule


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.bug.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant.bug(monkeypatch)
    found = next(((n, outcome) for n, outcome in _schedules(plant) if outcome.violations), None)
    assert found is not None, f"not found in {plant.within} schedules"
    tries, outcome = found
    print(f"{plant.name:<52} {tries:>5}  {outcome.violations[0].split(':')[0]}")
    assert outcome.violations[0].startswith(plant.caught_by), outcome.violations[0]


def test_every_bug_is_planted_once() -> None:
    assert len({plant.bug for plant in PLANTS}) == len(PLANTS) >= 20


def _schedules(plant: Plant) -> Iterator[tuple[int, Outcome]]:
    mixed, tries = Campaign(0, 0), 0
    for seed in count():
        clocks: Clocks = mixed.clocks_of(seed)
        plan, _ = draw(seed, clocks)
        if not set(plant.needs) <= set(plan.faults):
            continue
        tries += 1
        if tries > plant.within:
            return
        yield tries, run_schedule(seed, clocks)
        if tries % 64 == 0:
            gc.collect()
