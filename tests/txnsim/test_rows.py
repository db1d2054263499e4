"""Real tables in the simulation: what is read is what the ledger says, and mistakes are found.

A failure names the command that replays it. Chunks let several workers share the seeds.

Schedules until a planted mistake was found when this was written, and what complained first:

    a base file may lie below a compaction that lacks it            5  R3
    file groups that both began are not compared                    8  T13
    a base file passes for a log file that was written unread       1  R3
    a delete looks only into partitions that were there             9  R3
    a delete that found no bucket depends on nothing               12  R3
    schemas are not compared                                        4  R2
    a look back keeps what was replaced later                       1  R3
    tokens of another counter are compared                          1  liveness
    nobody looks for commits without an entry                       1  R1
    properties are read once                                        1  R7
    nothing is in the way of changes                                1  R7
"""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count

import pytest

from tests.txnsim.planted_rows import PLANTS, Plant
from tidelock.testing.txnsim.campaign import Campaign, run_part
from tidelock.testing.txnsim.cli import main
from tidelock.testing.txnsim.plan import Fault, draw
from tidelock.testing.txnsim.rows.scene import run_schedule
from tidelock.testing.txnsim.schedule import Outcome

SCHEDULES = 180
CHUNK = 60

SEEDS = range(900, 904)
_PRINT_HASH = """
from tests.txnsim.test_rows import hash_of_traces
print(hash_of_traces())
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(0, SCHEDULES, CHUNK))
def test_every_read_is_what_the_ledger_says(start: int) -> None:
    tally = run_part(Campaign(start, CHUNK, rows=True))
    print(tally.table())
    print(tally.summary())
    assert not tally.failures, "\n" + "\n".join(tally.failures)
    # An archive behind whose back entries are deleted is rare among so few schedules.
    rare = (Fault.STALE, Fault.GHOST, Fault.ARCHIVE)
    assert not [fault.value for fault in Fault if fault not in rare and not tally.fired[fault]]
    assert tally.commits > 4 * CHUNK
    assert tally.services > CHUNK // 4


def hash_of_traces() -> str:
    told = hashlib.sha256()
    for seed in SEEDS:
        trace: list[str] = []
        outcome = run_schedule(seed, trace)
        told.update("\n".join(trace).encode())
        told.update(repr(outcome.violations).encode())
    return told.hexdigest()


@pytest.mark.timeout(300)
def test_a_seed_repeats_itself_in_this_process_and_in_another() -> None:
    told = hash_of_traces()
    assert hash_of_traces() == told
    done = subprocess.run(
        [sys.executable, "-c", _PRINT_HASH],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.strip() == told


def test_the_trace_changes_nothing() -> None:
    for seed in SEEDS[:3]:
        plain, traced = run_schedule(seed), run_schedule(seed, trace=[])
        assert plain == traced


def test_replaying_a_seed_prints_what_the_ledger_says(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seed", "901", "--rows"])
    told = capsys.readouterr().out
    assert "last upsert p/a@20=9000" in told


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.bug.__name__)
def test_a_planted_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant.bug(monkeypatch)
    found = next(((n, outcome) for n, outcome in _schedules(plant) if outcome.violations), None)
    assert found is not None, f"not found in {plant.within} schedules"
    tries, outcome = found
    print(f"{plant.bug.__name__:<60} {tries:>5}  {outcome.violations[0].split(':')[0]}")
    assert outcome.violations[0].startswith(plant.caught_by), outcome.violations[0]


def test_every_mistake_is_planted_once() -> None:
    assert len({plant.bug for plant in PLANTS}) == len(PLANTS)


def _schedules(plant: Plant) -> Iterator[tuple[int, Outcome]]:
    tries = 0
    for seed in count():
        plan, _ = draw(seed)
        if not set(plant.needs) <= set(plan.faults) or not plant.where(plan):
            continue
        tries += 1
        if tries > plant.within:
            return
        yield tries, run_schedule(seed, terms=plant.terms_of(seed))
        if tries % 16 == 0:
            gc.collect()
