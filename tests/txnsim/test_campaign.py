"""5,000 schedules without a violation, in which every fault occurs.

A failure names the command that replays it. Chunks let several workers share the seeds.
"""

from __future__ import annotations

import pytest

from testkit.txnsim.campaign import Campaign, run_part
from testkit.txnsim.plan import Fault

SCHEDULES = 5_000
CHUNK = 1_000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", range(0, SCHEDULES, CHUNK))
def test_every_guarantee_holds_and_every_fault_occurs(start: int) -> None:
    result = run_part(Campaign(start, CHUNK))
    print(result.table())
    print(result.summary())
    assert not result.failures, "\n" + "\n".join(result.failures)
    assert not [fault.value for fault in Fault if not result.fired[fault]]
    assert result.commits > 5 * CHUNK
    assert result.rebases > CHUNK


def test_results_of_parts_add_up_to_the_result_of_the_whole() -> None:
    whole = run_part(Campaign(40, 20))
    parts = run_part(Campaign(40, 7))
    parts.add(run_part(Campaign(47, 13)))
    assert (parts.schedules, parts.events, parts.commits) == (20, whole.events, whole.commits)
    assert parts.fired == whole.fired
