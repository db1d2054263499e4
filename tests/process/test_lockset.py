"""Jepsen's lock-set: pauses past the lease cost the fenced path nothing, the canary something."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SECONDS = 25


def fight(store: str) -> tuple[int, str, dict[str, dict[str, int]]]:
    """Run the fight; return its exit code, its words, and the counts of both groups."""
    command = [sys.executable, "-m", "tidelock.testing.lockset"]
    done = subprocess.run(
        [*command, "--seconds", str(SECONDS), "--ttl-ms", "2000", "--store", store],
        capture_output=True,
        text=True,
        timeout=SECONDS + 60,
        check=False,
    )
    print(done.stdout)
    counts = {}
    for line in done.stdout.splitlines():
        if found := re.match(r"(fenced|unfenced) ", line):
            numbers = re.findall(
                r"([a-z][a-z ]+?) +(\d+)\b", line.replace("largest token", "tokens")
            )
            counts[found[1]] = {name.split()[-1]: int(value) for name, value in numbers}
    return done.returncode, done.stdout + done.stderr[-2_000:], counts


def test_the_fenced_path_loses_nothing_and_the_unfenced_canary_something(tmp_path: Path) -> None:
    code, said, counts = fight(str(tmp_path / "table"))
    assert code == 0, said
    fenced, unfenced = counts["fenced"], counts["unfenced"]
    assert fenced["lost"] == 0
    assert unfenced["lost"] > 0
    # The nemesis was awake, the lock moved on, and the register had something to refuse.
    assert fenced["pauses"] >= 2
    assert fenced["grants"] > 20
    assert fenced["tokens"] >= fenced["grants"]
    assert fenced["rejected"] > 0
