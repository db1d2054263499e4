"""Each planted bug is found, by the promise it breaks, within a bounded number of schedules.

Schedules until found when this was written, and what complained first (schedules without the
faults that a bug needs are not counted):

    the deadline counts from the answer                      2  L7
    the holder keeps no margin                               2  L7
    the record promises less than its holder believes        7  exclusion
    the taker allows for no drift                            2  L2
    the deadline is kept on the wall clock                  13  L7
    the taker waits twice as long                           18  L9
    a waiter sleeps for a minute                             1  L9
    a refused renewal is not read back                      16  L5
    an adopted record is not renewed again                  16  L6
    a renewal is sent past the deadline                     12  L11
    a renewal carries no condition                           1  L4
    the heartbeat ignores the death of its thread           16  L10
    a renewal that lands after lost is believed              9  L3
    a passed deadline goes unnoticed                         2  L7
    a forced release is taken back                          11  its own invariants
    asking again acquires again                             53  L5
    a grant is concluded from a read                         4  L5
    the token stands only in the record                      1  L1
    a new range is not confirmed                           267  L1
    an unconfirmed range is offered                        267  L1
    a grant does not raise the token                         1  its own invariants
    a ghost is not released                                  4  L5
    every write carries the same nonce                       1  its own invariants
    garbage is taken for a released record                   1  L8
    garbage is waited for                                    1  L8
    a release carries no condition                           1  L4
    a refused release counts as released                     1  L5
    closing looks for nothing                               10  P18
    what could not be given back is forgotten              867  P18
    a refusal that could not be read back is forgotten     462  P18
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
