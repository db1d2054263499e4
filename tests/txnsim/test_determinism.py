"""The same seed gives the same trace, in this process and in any other."""

from __future__ import annotations

import hashlib
import os

import pytest

from testkit.txnsim.cli import main
from testkit.txnsim.schedule import run_schedule
from tests.simulation import (
    check_trace_has_no_effect,
    check_traces_differ,
    hash_in_new_process,
)

SEEDS = range(900, 915)


def hash_of_traces() -> str:
    digest = hashlib.sha256()
    for seed in SEEDS:
        trace: list[str] = []
        outcome = run_schedule(seed, trace)
        digest.update("\n".join(trace).encode())
        digest.update(repr(sorted((f.name, n) for f, n in outcome.fired.items())).encode())
    return digest.hexdigest()


def test_a_seed_repeats_itself() -> None:
    assert hash_of_traces() == hash_of_traces()


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_a_seed_repeats_itself_in_another_process(hash_seed: str) -> None:
    assert (
        hash_in_new_process("tests.txnsim.test_determinism", hash_seed=hash_seed)
        == hash_of_traces()
    )


def test_a_seed_repeats_itself_under_any_process_number(monkeypatch: pytest.MonkeyPatch) -> None:
    first = hash_of_traces()
    monkeypatch.setattr(os, "getpid", lambda: 4_194_303)
    assert hash_of_traces() == first


def test_the_trace_changes_nothing() -> None:
    check_trace_has_no_effect(SEEDS, run_schedule)


def test_different_seeds_have_different_traces() -> None:
    check_traces_differ(SEEDS, run_schedule)


def test_replaying_a_seed_prints_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "901"]) == 0
    output = capsys.readouterr().out
    assert "sends put .hoodie/.tidelock/ledger/" in output
    assert "Committed" in output


def test_many_schedules_end_with_a_table_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schedules", "20", "--start", "17", "--processes", "1"]) == 0
    output = capsys.readouterr().out
    assert "F5 genuine 412" in output
    assert "20 schedules" in output
    assert "0 failures" in output
