"""The gate: 50,000 schedules, nothing broken, and every fault seen to strike.

A failure names the command that replays it. Chunks let several workers share the seeds.
"""

from __future__ import annotations

import pytest

from tidelock.testing.sim.campaign import Campaign, run_part
from tidelock.testing.sim.plan import Clocks, Fault
from tidelock.testing.sim.schedule import run_schedule

SCHEDULES = 50_000
CHUNK = 5_000


@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(0, SCHEDULES, CHUNK))
def test_every_promise_holds_and_every_fault_strikes(start: int) -> None:
    tally = run_part(Campaign(start, CHUNK))
    print(tally.table())
    print(tally.summary())
    assert not tally.failures, "\n" + "\n".join(tally.failures)
    assert not [fault.value for fault in Fault if not tally.count(fault)]
    assert tally.events > 250 * CHUNK


def test_without_fencing_updates_are_lost() -> None:
    """The canary: a simulator under which an unfenced register loses nothing is too kind."""
    lost = [seed for seed in range(100) if run_schedule(seed, Clocks.PROMISED).canary_lost]
    assert lost


def test_a_tally_of_parts_is_the_tally_of_the_whole() -> None:
    whole = run_part(Campaign(40, 20))
    parts = run_part(Campaign(40, 7))
    parts.add(run_part(Campaign(47, 13)))
    assert (parts.schedules, parts.events, parts.grants) == (20, whole.events, whole.grants)
    assert parts.fired == whole.fired
