"""The simulator covers every transition of the machine."""

from __future__ import annotations

from collections import Counter

import pytest

from testkit.sim.campaign import Campaign, run_part
from testkit.sim.plan import Clocks, Fault, draw
from tidelock.lock import events as e
from tidelock.lock import machine, session
from tidelock.lock.state import LockClientState, Phase, Step


def test_every_row_of_the_table_with_a_handler_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: Counter[tuple[Phase, type[e.Event]]] = Counter()

    def counting(state: LockClientState, event: e.Event) -> Step:
        reached[state.phase, type(event)] += 1
        return machine.step(state, event)

    monkeypatch.setattr(session, "step", counting)
    assert not run_part(Campaign(0, 2_500)).failures
    missed = [
        f"{event.__name__} while {phase.name}"
        for (phase, event), row in machine.TABLE.items()
        if row.handler is not machine._stay and not reached[phase, event]
    ]
    assert not missed


def test_schedules_enable_different_faults() -> None:
    plans = [draw(seed, Clocks.PROMISED)[0] for seed in range(200)]
    assert len({plan.faults for plan in plans}) > 150
    assert {plan.clients for plan in plans} == {2, 3, 4, 5, 6, 8}
    assert not [p for p in plans if {Fault.STALE, Fault.DELETED} <= set(p.faults)]


def test_java_peers_take_part_in_a_share_of_the_schedules() -> None:
    with_java = [draw(seed, Clocks.PROMISED)[0].java_peers > 0 for seed in range(500)]
    assert 0.1 < sum(with_java) / len(with_java) < 0.4
