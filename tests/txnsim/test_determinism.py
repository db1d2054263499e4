"""The same seed tells the same story, in this process and in any other."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from tidelock.testing.txnsim.cli import main
from tidelock.testing.txnsim.schedule import run_schedule

SEEDS = range(900, 915)
_PRINT_HASH = """
from tests.txnsim.test_determinism import hash_of_traces
print(hash_of_traces())
"""


def hash_of_traces() -> str:
    told = hashlib.sha256()
    for seed in SEEDS:
        trace: list[str] = []
        outcome = run_schedule(seed, trace)
        told.update("\n".join(trace).encode())
        told.update(repr(sorted((f.name, n) for f, n in outcome.fired.items())).encode())
    return told.hexdigest()


def test_a_seed_repeats_itself() -> None:
    assert hash_of_traces() == hash_of_traces()


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_a_seed_repeats_itself_in_another_process(hash_seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PRINT_HASH],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == hash_of_traces()


def test_a_seed_repeats_itself_under_any_process_number(monkeypatch: pytest.MonkeyPatch) -> None:
    told = hash_of_traces()
    monkeypatch.setattr(os, "getpid", lambda: 4_194_303)
    assert hash_of_traces() == told


def test_the_trace_changes_nothing() -> None:
    for seed in SEEDS:
        plain, traced = run_schedule(seed), run_schedule(seed, trace=[])
        assert plain == traced


def test_different_seeds_tell_different_stories() -> None:
    stories = set()
    for seed in SEEDS:
        trace: list[str] = []
        run_schedule(seed, trace=trace)
        stories.add("\n".join(trace[1:]))
    assert len(stories) == len(SEEDS)


def test_replaying_a_seed_prints_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "901"]) == 0
    told = capsys.readouterr().out
    assert "asks put .hoodie/.tidelock/ledger/" in told
    assert "Committed" in told


def test_many_schedules_end_with_a_table_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schedules", "20", "--start", "17", "--processes", "1"]) == 0
    told = capsys.readouterr().out
    assert "F5 genuine 412" in told
    assert "20 schedules" in told
    assert "0 failures" in told
