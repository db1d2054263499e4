"""Each planted bug is found, by the guarantee it breaks, within a bounded number of schedules.

Schedules until found when this was written, and the first violation (schedules without the faults
that a bug needs are not counted):

    an unclear append counts as failed                       2  T5
    a refused append counts as landed                        1  T5
    entries are written without a condition                  1  T3
    the boundary is not read after the append               16  T5
    entries below the boundary are trusted                   9  T5
    later entries are not checked for conflicts              1  T14
    new keys are not compared                               60  T4
    a writer publishes its own commit first                 30  T7
    commits of others are not published                      4  T7
    a rollback is not in the ledger                        291  T12
    a completion may precede its request                     2  T2
    entry times are not monotonic                            2  T2
    a rolled back write may be committed                     4  T3
    the checkpoint forgets rollbacks                         1  T10
    the checkpoint forgets commits                           1  T10
    an instant is not reserved by its name                  25  T1
    an overwrite ignores later commits                       1  T4
    a replaced file group may be written to                  3  T14
    one bucket may be created twice                          5  T4
"""

from __future__ import annotations

from itertools import count

import pytest

from testkit.txnsim.plan import draw
from testkit.txnsim.schedule import run_schedule
from tests.simulation import check_found
from tests.txnsim.planted import PLANTS, Plant


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.bug.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = (seed for seed in count() if plant.matches(draw(seed)[0]))
    check_found(plant, monkeypatch, seeds, run_schedule)


def test_every_bug_is_planted_once() -> None:
    assert len({plant.bug for plant in PLANTS}) == len(PLANTS) >= 10
