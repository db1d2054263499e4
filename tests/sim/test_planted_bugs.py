"""Each planted bug is found, by the rule it breaks, within a bounded number of schedules.

Schedules until found when this was written, and the first violation (schedules without the faults
that a bug needs are not counted):

    the deadline counts from the reply                       2  L7
    the holder has no margin                                 2  L7
    the record expires before the holder assumes             7  exclusion
    the contender allows for no drift                        2  L2
    the deadline uses the wall clock                        13  L7
    the contender waits twice as long                       18  L9
    a waiter sleeps for a minute                             1  L9
    a refused renewal is not read back                      16  L5
    an adopted record is not renewed again                  16  L6
    a renewal is sent past the deadline                     12  L11
    a renewal is unconditional                               1  L4
    the heartbeat ignores the end of its thread             16  L10
    a renewal that lands after lost is accepted              9  L3
    a passed deadline goes unnoticed                         2  L7
    a forced release is reverted                            11  its own invariants
    acquiring twice sends two requests                      53  L5
    a grant is concluded from a read                         4  L5
    the token is stored only in the record                   1  L1
    a new range is not confirmed                           267  L1
    an unconfirmed range is offered                        267  L1
    a grant does not raise the token                         1  its own invariants
    a ghost is not released                                  4  L5
    every write has the same nonce                           1  its own invariants
    garbage is taken for a released record                   1  L8
    garbage is waited for                                    1  L8
    a release is unconditional                               1  L4
    a refused release counts as released                     1  L5
    closing reads nothing                                   10  P18
    a record that was not released is forgotten            867  P18
    a refusal that was not read back is forgotten          462  P18
"""

from __future__ import annotations

from itertools import count

import pytest

from testkit.sim.campaign import Campaign
from testkit.sim.plan import draw
from testkit.sim.schedule import Outcome, run_schedule
from tests.sim.planted import PLANTS
from tests.simulation import PlantedBug, check_found

MIXED = Campaign(0, 0)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.bug.__name__)
def test_a_planted_bug_is_found(plant: PlantedBug, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int) -> Outcome:
        return run_schedule(seed, MIXED.clocks_of(seed))

    plans = ((seed, draw(seed, MIXED.clocks_of(seed))[0]) for seed in count())
    seeds = (seed for seed, plan in plans if plant.has_faults(plan.faults))
    check_found(plant, monkeypatch, seeds, run)


def test_every_bug_is_planted_once() -> None:
    assert len({plant.bug for plant in PLANTS}) == len(PLANTS) >= 20
