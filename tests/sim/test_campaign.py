"""50,000 schedules without a violation, in which every fault occurs.

A failure names the command that replays it. Chunks let several workers share the seeds.
"""

from __future__ import annotations

import pytest

from testkit.sim.campaign import Campaign, run_part
from testkit.sim.plan import Clocks, Fault
from testkit.sim.schedule import run_schedule

SCHEDULES = 50_000
CHUNK = 5_000


@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(0, SCHEDULES, CHUNK))
def test_every_guarantee_holds_and_every_fault_occurs(start: int) -> None:
    result = run_part(Campaign(start, CHUNK))
    print(result.table())
    print(result.summary())
    assert not result.failures, "\n" + "\n".join(result.failures)
    assert not [fault.value for fault in Fault if not result.count(fault)]
    assert result.events > 250 * CHUNK


def test_without_fencing_updates_are_lost() -> None:
    """The canary: if an unfenced register loses no update, the simulator has too few faults."""
    lost = [seed for seed in range(100) if run_schedule(seed, Clocks.PROMISED).canary_lost]
    assert lost


def test_results_of_parts_add_up_to_the_result_of_the_whole() -> None:
    whole = run_part(Campaign(40, 20))
    parts = run_part(Campaign(40, 7))
    parts.add(run_part(Campaign(47, 13)))
    assert (parts.schedules, parts.events, parts.grants) == (20, whole.events, whole.grants)
    assert parts.fired == whole.fired
