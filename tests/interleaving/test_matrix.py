"""5,000 cases drawn from the matrix: every table is the serial result in ledger order.

A failure names the command that replays it. Parts let several workers share the cases.
"""

from __future__ import annotations

import pytest

from testkit.interleaving.campaign import Campaign, run_part

CASES = 5_000
PARTS = 10


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_interleaving_is_the_serial_result_in_ledger_order(part: int) -> None:
    result = run_part(Campaign(seed=1, number=CASES, part=part, parts=PARTS))
    print(result.summary())
    assert result.cases == CASES // PARTS
    assert result.interleaved > result.cases // 2
    assert result.rebases > result.cases // 50
    assert not result.wrong, "\n" + result.failure_list()
