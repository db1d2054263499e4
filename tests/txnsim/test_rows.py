"""Real tables in the simulation: every read matches the ledger, and planted bugs are found.

A failure names the command that replays it. Chunks let several workers share the seeds.

Schedules until each planted bug was found when this was written, and the first violation:

    a base file may precede a compaction without it                 5  R3
    file groups created by both are not compared                    8  T13
    a base file counts as a blind log file                          1  R3
    a delete reads only existing partitions                         9  R3
    a delete without a bucket depends on nothing                   12  R3
    schemas are not compared                                        4  R2
    a read as of shows groups replaced later                        1  R3
    tokens of another counter are compared                          1  liveness
    commits without an entry are ignored                            1  R1
    properties are read once                                        1  R7
    nothing prevents reading changes                                1  R7
"""

from __future__ import annotations

import hashlib
from itertools import count

import pytest

from testkit.txnsim.campaign import Campaign, run_part
from testkit.txnsim.cli import main
from testkit.txnsim.plan import Fault, draw
from testkit.txnsim.rows.scene import run_schedule
from testkit.txnsim.schedule import Outcome
from tests.simulation import check_found, hash_in_new_process
from tests.txnsim.planted_rows import PLANTS, Plant

SCHEDULES = 180
CHUNK = 60

SEEDS = range(900, 904)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(0, SCHEDULES, CHUNK))
def test_every_read_matches_the_ledger(start: int) -> None:
    result = run_part(Campaign(start, CHUNK, rows=True))
    print(result.table())
    print(result.summary())
    assert not result.failures, "\n" + "\n".join(result.failures)
    # An archive whose entries are deleted concurrently is rare in so few schedules.
    rare = (Fault.STALE, Fault.GHOST, Fault.ARCHIVE)
    assert not [fault.value for fault in Fault if fault not in rare and not result.fired[fault]]
    assert result.commits > 4 * CHUNK
    assert result.services > CHUNK // 4


def hash_of_traces() -> str:
    digest = hashlib.sha256()
    for seed in SEEDS:
        trace: list[str] = []
        outcome = run_schedule(seed, trace)
        digest.update("\n".join(trace).encode())
        digest.update(repr(outcome.violations).encode())
    return digest.hexdigest()


@pytest.mark.timeout(300)
def test_a_seed_repeats_itself_in_this_process_and_in_another() -> None:
    first = hash_of_traces()
    assert hash_of_traces() == first
    assert hash_in_new_process("tests.txnsim.test_rows", hash_seed="4711") == first


def test_the_trace_changes_nothing() -> None:
    for seed in SEEDS[:3]:
        plain, traced = run_schedule(seed), run_schedule(seed, trace=[])
        assert plain == traced


def test_replaying_a_seed_prints_the_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seed", "901", "--rows"])
    assert "last upsert p/a@20=9000" in capsys.readouterr().out


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.bug.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int) -> Outcome:
        return run_schedule(seed, parameters=plant.parameters_of(seed))

    seeds = (seed for seed in count() if plant.matches(draw(seed)[0]))
    check_found(plant, monkeypatch, seeds, run)


def test_every_bug_is_planted_once() -> None:
    assert len({plant.bug for plant in PLANTS}) == len(PLANTS)
