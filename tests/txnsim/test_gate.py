"""The gate: 5,000 schedules, nothing broken, and every fault seen to strike.

A failure names the command that replays it. Chunks let several workers share the seeds.
"""

from __future__ import annotations

import pytest

from tidelock.testing.txnsim.campaign import Campaign, run_part
from tidelock.testing.txnsim.plan import Fault

SCHEDULES = 5_000
CHUNK = 1_000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", range(0, SCHEDULES, CHUNK))
def test_every_promise_holds_and_every_fault_strikes(start: int) -> None:
    tally = run_part(Campaign(start, CHUNK))
    print(tally.table())
    print(tally.summary())
    assert not tally.failures, "\n" + "\n".join(tally.failures)
    assert not [fault.value for fault in Fault if not tally.fired[fault]]
    assert tally.commits > 5 * CHUNK
    assert tally.rebases > CHUNK


def test_a_tally_of_parts_is_the_tally_of_the_whole() -> None:
    whole = run_part(Campaign(40, 20))
    parts = run_part(Campaign(40, 7))
    parts.add(run_part(Campaign(47, 13)))
    assert (parts.schedules, parts.events, parts.commits) == (20, whole.events, whole.commits)
    assert parts.fired == whole.fired
