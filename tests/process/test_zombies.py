"""A writer suspended between conflict check and commit loses no update when it resumes."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

ROUNDS = 10
"""Five pairs of clocks, declared dead or not. `make zombies` runs a hundred."""

_NO_CONFLICT_CHECK = """
import sys
from testkit.tablecrash.__main__ import main
from tidelock.txn.commit import ConflictChecker

ConflictChecker.check = lambda checker, view: None
sys.exit(main(sys.argv[1:]))
"""


def run_zombies(rounds: int, script: str | None = None) -> tuple[int, dict[str, int], str]:
    """Return the harness's exit status, its counts, and its output."""
    program = ["-m", "testkit.tablecrash"] if script is None else ["-c", script]
    done = subprocess.run(
        [sys.executable, *program, "zombies", "--rounds", str(rounds)],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    counts = re.findall(r"^([a-z ]+?) +(\d+)$", done.stdout, re.MULTILINE)
    output = done.stdout + done.stderr
    print(output)
    return done.returncode, {name: int(count) for name, count in counts}, output


@pytest.mark.timeout(600)
def test_suspended_writer_rebases_or_fails_with_any_clock_skew() -> None:
    code, counts, output = run_zombies(ROUNDS)
    assert code == 0, output
    assert counts["problems"] == 0
    assert counts.get("zombie rebased", 0) + counts.get("zombie failed", 0) == ROUNDS


@pytest.mark.timeout(600)
def test_writer_that_does_not_check_again_is_caught() -> None:
    code, counts, output = run_zombies(2, _NO_CONFLICT_CHECK)
    assert code == 1, output
    assert counts["problems"] > 0
