"""kill -9 at every request of a write or a roll-back: all of it is there afterwards, or nothing."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

WRITER_POINTS_MIN = 20
UNDOER_POINTS_MIN = 30
RESTORER_POINTS_MIN = 60

_NOBODY_HELPS = """
import sys
from tidelock.testing.tablecrash.__main__ import main
from tidelock.txn.publishing import Publisher

true = Publisher._publish

def publish(self, entry, fact, *, own):
    return (yield from true(self, entry, fact, own=own)) if own else False

Publisher._publish = publish
sys.exit(main(sys.argv[1:]))
"""


def crash(*arguments: str, script: str | None = None) -> tuple[int, int, str]:
    """Run the harness in a process without threads; return its points, its problems, its words."""
    program = ["-m", "tidelock.testing.tablecrash"] if script is None else ["-c", script]
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
    said = done.stdout + done.stderr
    assert numbers.keys() == {"points", "problems"}, said
    assert (done.returncode == 0) == (numbers["problems"] == 0), said
    print(said)
    return numbers["points"], numbers["problems"], said


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_writer_killed_at_any_request_has_written_all_or_nothing(kind: str) -> None:
    points, problems, said = crash("writers", "--kind", kind)
    assert problems == 0, said
    assert points >= WRITER_POINTS_MIN


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_roll_back_killed_at_any_request_is_finished_by_others(kind: str) -> None:
    points, problems, said = crash("undoers", "--kind", kind)
    assert problems == 0, said
    assert points >= UNDOER_POINTS_MIN


@pytest.mark.timeout(600)
def test_commits_that_are_kept_or_taken_back_survive_a_kill_at_any_request() -> None:
    points, problems, said = crash("restorers", "--kind", "MERGE_ON_READ")
    assert problems == 0, said
    assert points >= RESTORER_POINTS_MIN


@pytest.mark.timeout(600)
def test_a_newcomer_that_does_not_help_is_caught() -> None:
    _, problems, said = crash("writers", "--kind", "COPY_ON_WRITE", script=_NOBODY_HELPS)
    assert problems > 0, said
