"""kill -9 at every point: a newcomer finds the old object or the new one, and no stuck lock."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tidelock.testing.crash import StraceUnavailable, find_strace
from tidelock.testing.servers import ServerUnavailable

EFFECTS_MIN = 50
CALLS_MIN = 100
FAULTS_MIN = 60


@pytest.fixture(scope="module")
def strace() -> None:
    """Skip where nobody may trace; fail in continuous integration if the tool is missing."""
    try:
        find_strace()
    except StraceUnavailable as error:
        pytest.skip(str(error))
    except ServerUnavailable as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def crash(*arguments: str) -> tuple[int, int, str]:
    """Run the harness in a process without threads; return its points, its problems, its words."""
    done = subprocess.run(
        [sys.executable, "-m", "tidelock.testing.crash", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
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


def test_a_kill_before_or_after_any_request_is_survived() -> None:
    points, problems, said = crash("effects")
    assert problems == 0, said
    assert points >= EFFECTS_MIN


@pytest.mark.usefixtures("strace")
def test_a_kill_at_any_write_class_call_is_survived() -> None:
    points, problems, said = crash("calls", "--every", "2")
    assert problems == 0, said
    assert points >= CALLS_MIN


@pytest.mark.usefixtures("strace")
def test_a_call_that_fails_is_reported_as_what_it_is() -> None:
    points, problems, said = crash("faults")
    assert problems == 0, said
    assert points >= FAULTS_MIN


@pytest.mark.usefixtures("strace")
def test_a_store_that_writes_in_place_is_caught() -> None:
    _, problems, said = crash("calls", "--every", "3", "--store", "in-place")
    assert problems > 0
    assert "which nobody wrote whole" in said or "cannot be read" in said
