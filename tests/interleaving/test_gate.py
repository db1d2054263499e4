"""The gate: 5,000 cases drawn from the matrix, and the table is what the ledger's order says.

A failure names the command that replays it. Parts let several workers share the cases.
"""

from __future__ import annotations

import pytest

from tidelock.testing.interleaving.campaign import Campaign, run_part

CASES = 5_000
PARTS = 10


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_interleaving_is_the_serial_result_in_ledger_order(part: int) -> None:
    tally = run_part(Campaign(seed=1, number=CASES, part=part, parts=PARTS))
    print(tally.summary())
    assert tally.cases == CASES // PARTS
    assert tally.interleaved > tally.cases // 2
    assert tally.rebases > tally.cases // 50
    assert not tally.wrong, "\n" + tally.listed()
