"""A writer that sleeps between judgement and commit loses nobody's update when it wakes."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

ROUNDS = 10
"""Five pairs of clocks, taken for dead or not. `make zombies` runs a hundred."""

_NOBODY_JUDGES = """
import sys
from tidelock.testing.tablecrash.__main__ import main
from tidelock.txn.committing import Judge

Judge.verdict = lambda judge, view: None
sys.exit(main(sys.argv[1:]))
"""


def run_zombies(rounds: int, script: str | None = None) -> tuple[int, dict[str, int], str]:
    """Return the harness's exit code, its counts, and its words."""
    program = ["-m", "tidelock.testing.tablecrash"] if script is None else ["-c", script]
    done = subprocess.run(
        [sys.executable, *program, "zombies", "--rounds", str(rounds)],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    counts = re.findall(r"^([a-z ]+?) +(\d+)$", done.stdout, re.MULTILINE)
    said = done.stdout + done.stderr
    print(said)
    return done.returncode, {name: int(count) for name, count in counts}, said


@pytest.mark.timeout(600)
def test_a_sleeper_rebases_or_fails_whatever_the_clocks_say() -> None:
    code, counts, said = run_zombies(ROUNDS)
    assert code == 0, said
    assert counts["problems"] == 0
    assert counts.get("zombie rebased", 0) + counts.get("zombie failed", 0) == ROUNDS


@pytest.mark.timeout(600)
def test_a_writer_that_does_not_judge_again_is_caught() -> None:
    code, counts, said = run_zombies(2, _NOBODY_JUDGES)
    assert code == 1, said
    assert counts["problems"] > 0
