"""Table services in the simulation: 5,000 schedules, and every planted bug is found.

A failure names the command that replays it. Chunks let several workers share the seeds.
"""

from __future__ import annotations

from itertools import count, islice

import pytest

from testkit.txnsim.campaign import Campaign, run_part
from testkit.txnsim.cli import main
from testkit.txnsim.plan import Fault, draw
from testkit.txnsim.schedule import Outcome
from testkit.txnsim.services.parameters import draw_parameters
from testkit.txnsim.services.scene import run_schedule
from tests.simulation import check_found
from tests.txnsim.planted_services import PLANTS, Plant

SCHEDULES = 5_000
CHUNK = 1_000

RECORDED_SEEDS = (2693, 3245, 3284, 3516, 4705)
"""Seeds that found a bug each.

Two processes used the same request time. The archive passed a request time before its plan was
written. A request time was released while its plan could still land. A paused clean removed a plan
that another process had claimed meanwhile. A file landed after its plan was archived.
"""

RECORDED_SEEDS_WITH_JAVA = (10220,)
"""A log file was written after a plan, but completed before it by a clock that was behind."""

GHOSTS_WITHIN = 120
"""Schedules with late requests and an archive until a deleted entry is created again."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(0, SCHEDULES, CHUNK))
def test_every_guarantee_holds_with_services_and_every_fault_occurs(start: int) -> None:
    result = run_part(Campaign(start, CHUNK, services=True))
    print(result.table())
    print(result.summary())
    assert not result.failures, "\n" + "\n".join(result.failures)
    common = [fault for fault in Fault if fault is not Fault.GHOST]
    assert not [fault.value for fault in common if not result.fired[fault]]
    assert result.commits > 5 * CHUNK
    assert result.services > 2 * CHUNK


@pytest.mark.timeout(300)
def test_every_guarantee_holds_with_services_and_an_external_writer() -> None:
    result = run_part(Campaign(0, 250, services=True, java=True))
    print(result.summary())
    assert not result.failures, "\n" + "\n".join(result.failures)
    assert result.services > 250


def test_the_rarest_fault_occurs_and_every_guarantee_holds() -> None:
    likely = (s for s in count() if {Fault.DELAYED, Fault.ARCHIVE} <= set(draw(s)[0].faults))
    for seed in islice(likely, GHOSTS_WITHIN):
        outcome = run_schedule(seed)
        assert outcome.violations == (), outcome.replay
        if outcome.fired[Fault.GHOST]:
            return
    pytest.fail(f"the fault did not occur in {GHOSTS_WITHIN} schedules")


@pytest.mark.parametrize("seed", RECORDED_SEEDS)
def test_a_recorded_seed_passes(seed: int) -> None:
    assert run_schedule(seed).violations == ()


@pytest.mark.parametrize("seed", RECORDED_SEEDS_WITH_JAVA)
def test_a_recorded_seed_with_java_passes(seed: int) -> None:
    assert run_schedule(seed, java=True).violations == ()


def test_a_seed_repeats_itself() -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        for seed in range(900, 905):
            run_schedule(seed, trace)
    assert traces[0] == traces[1]


def test_replaying_a_seed_prints_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "901", "--services"]) == 0
    assert "executed" in capsys.readouterr().out


@pytest.mark.timeout(300)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.bug.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int) -> Outcome:
        return run_schedule(seed, java=plant.java)

    drawn = ((seed, *draw(seed)) for seed in count())
    seeds = (seed for seed, plan, rng in drawn if plant.matches(plan, draw_parameters(rng)))
    check_found(plant, monkeypatch, seeds, run)


def test_every_bug_is_planted_once() -> None:
    assert len({plant.bug for plant in PLANTS}) == len(PLANTS) >= 15
