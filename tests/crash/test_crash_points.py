"""SIGKILL at every point: the next process finds the old or the new object, and no stuck lock."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from testkit.crash import StraceUnavailable, find_strace
from testkit.servers import ServerUnavailable

EFFECTS_MIN = 50
CALLS_MIN = 100
FAULTS_MIN = 60


@pytest.fixture(scope="module")
def strace() -> None:
    """Skip where tracing is not permitted; fail in continuous integration if strace is missing."""
    try:
        find_strace()
    except StraceUnavailable as error:
        pytest.skip(str(error))
    except ServerUnavailable as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def crash(*arguments: str) -> tuple[int, int, str]:
    """Run the harness in a process without threads; return its points, problems and output."""
    done = subprocess.run(
        [sys.executable, "-m", "testkit.crash", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
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


def test_kill_before_or_after_any_request_is_survived() -> None:
    points, problems, output = crash("requests")
    assert problems == 0, output
    assert points >= EFFECTS_MIN


@pytest.mark.usefixtures("strace")
def test_kill_at_any_writing_system_call_is_survived() -> None:
    points, problems, output = crash("calls", "--every", "2")
    assert problems == 0, output
    assert points >= CALLS_MIN


@pytest.mark.usefixtures("strace")
def test_failing_system_call_is_reported_correctly() -> None:
    points, problems, output = crash("faults")
    assert problems == 0, output
    assert points >= FAULTS_MIN


@pytest.mark.usefixtures("strace")
def test_store_that_writes_in_place_is_caught() -> None:
    _, problems, output = crash("calls", "--every", "3", "--store", "in-place")
    assert problems > 0
    assert "which was never written" in output
