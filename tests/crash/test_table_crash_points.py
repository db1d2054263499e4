"""SIGKILL at every request of a write or a rollback: afterwards all of it is there, or nothing."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

WRITER_POINTS_MIN = 20
UNDOER_POINTS_MIN = 30
RESTORER_POINTS_MIN = 60

_NO_HELPING = """
import sys
from testkit.tablecrash.__main__ import main
from tidelock.txn.ledger_io import Publisher

true = Publisher._publish

def publish(self, entry, fact, *, own):
    return (yield from true(self, entry, fact, own=own)) if own else False

Publisher._publish = publish
sys.exit(main(sys.argv[1:]))
"""


def crash(*arguments: str, script: str | None = None) -> tuple[int, int, str]:
    """Run the harness in a process without threads; return its points, problems and output."""
    program = ["-m", "testkit.tablecrash"] if script is None else ["-c", script]
    done = subprocess.run(
        [sys.executable, *program, *arguments],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    numbers = {
        name: int(count)
        for name, count in re.findall(r"^(points|problems) +(\d+)$", done.stdout, re.MULTILINE)
    }
    output = done.stdout + done.stderr
    assert numbers.keys() == {"points", "problems"}, output
    assert (done.returncode == 0) == (numbers["problems"] == 0), output
    print(output)
    return numbers["points"], numbers["problems"], output


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_writer_killed_at_any_request_is_atomic(kind: str) -> None:
    points, problems, output = crash("writers", "--kind", kind)
    assert problems == 0, output
    assert points >= WRITER_POINTS_MIN


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_rollback_killed_at_any_request_is_finished_by_others(kind: str) -> None:
    points, problems, output = crash("rollbacks", "--kind", kind)
    assert problems == 0, output
    assert points >= UNDOER_POINTS_MIN


@pytest.mark.timeout(600)
def test_acknowledged_commits_and_rollbacks_survive_a_kill_at_any_request() -> None:
    points, problems, output = crash("restores", "--kind", "MERGE_ON_READ")
    assert problems == 0, output
    assert points >= RESTORER_POINTS_MIN


@pytest.mark.timeout(600)
def test_process_that_does_not_help_is_caught() -> None:
    _, problems, output = crash("writers", "--kind", "COPY_ON_WRITE", script=_NO_HELPING)
    assert problems > 0, output
