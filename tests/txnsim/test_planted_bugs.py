"""Each planted bug is found, by the promise it breaks, within a bounded number of schedules.

Schedules until found when this was written, and what complained first (schedules without the
faults that a bug needs are not counted):

    an unclear append counts as failed                       2  T5
    a refused append counts as landed                        1  T5
    entries are written without a condition                  1  T3
    the boundary is not read after the append               16  T5
    entries behind the boundary are believed                 9  T5
    nobody judges the entries that came between              1  T14
    new keys are not compared                               60  T4
    a writer publishes its own commit first                 30  T7
    nobody helps                                             4  T7
    a roll back is not decided in the ledger               291  T12
    a completion may lie before its request                  2  T2
    entry times come from the clock alone                    2  T2
    what was rolled back may be committed                    4  T3
    the checkpoint forgets what was rolled back              1  T10
    the checkpoint forgets what was committed                1  T10
    an instant is not reserved by its name                  25  T1
    an overwrite does not look for what came since           1  T4
    what came and was replaced again is still listed        73  liveness
    a replaced file group may be written to                  3  T14
    one bucket may be begun twice                            5  T4
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import count

import pytest

from tests.txnsim.planted import PLANTS, Plant
from tidelock.testing.txnsim.plan import draw
from tidelock.testing.txnsim.schedule import Outcome, run_schedule


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.bug.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant.bug(monkeypatch)
    found = next(((n, outcome) for n, outcome in _schedules(plant) if outcome.violations), None)
    assert found is not None, f"not found in {plant.within} schedules"
    tries, outcome = found
    print(f"{plant.name:<52} {tries:>5}  {outcome.violations[0].split(':')[0]}")
    assert outcome.violations[0].startswith(plant.caught_by), outcome.violations[0]


def test_every_bug_is_planted_once() -> None:
    assert len({plant.bug for plant in PLANTS}) == len(PLANTS) >= 10


def _schedules(plant: Plant) -> Iterator[tuple[int, Outcome]]:
    tries = 0
    for seed in count():
        plan, _ = draw(seed)
        if not set(plant.needs) <= set(plan.faults) or not plant.where(plan):
            continue
        tries += 1
        if tries > plant.within:
            return
        yield tries, run_schedule(seed)
        if tries % 16 == 0:
            gc.collect()
