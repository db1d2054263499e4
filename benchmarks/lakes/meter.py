"""What a step cost: CPU, memory, files, and requests. Needs nothing of this project."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

APART = "spark"
"""Where Spark keeps what it needs for a while in a folder of work; no table is made of that."""

_IDLE = slice(3, 5)
"""Of the machine's times in /proc/stat, those in which it had nothing to do or waited for disks."""


def cpu_s() -> float:
    """Return the CPU seconds of this process and all below it, ended ones included."""
    ticks = sum(sum(int(field) for field in fields[11:15]) for _, fields in _family())
    return ticks / os.sysconf("SC_CLK_TCK")


def machine_s() -> float:
    """Return the CPU seconds of everything that runs on the machine."""
    first = Path("/proc/stat").read_text().partition("\n")[0]
    # The times of guests, at the end, are in those of users already.
    times = [int(each) for each in first.split()[1:9]]
    return (sum(times) - sum(times[_IDLE])) / os.sysconf("SC_CLK_TCK")


def forget_peaks() -> None:
    """Let the most memory that each process had count from now."""
    for process, _ in _family():
        try:
            (process / "clear_refs").write_text("5")
        except OSError:
            continue


def peak_mb() -> float:
    """Return the most memory that each process had since then, all together.

    They need not have had it at the same moment, and share some of it.
    """
    total = 0
    for process, _ in _family():
        try:
            lines = (process / "status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return total / 1024


@dataclass(frozen=True, slots=True)
class Written:
    """Files that a step left behind, made or written anew, and their size."""

    files: int
    mb: float


def files_below(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return by its path what tells one state of a file from another, its size last."""
    found = {}
    for place, folders, names in os.walk(folder):
        if place == str(folder) or Path(place).parent == folder:
            folders[:] = [each for each in folders if each != APART]
        for name in names:
            path = f"{place}/{name}"
            try:
                state = Path(path).stat()
            except FileNotFoundError:
                continue
            found[path] = (state.st_ino, state.st_mtime_ns, state.st_size)
    return found


def written(
    before: Mapping[str, tuple[int, int, int]], after: Mapping[str, tuple[int, int, int]]
) -> Written:
    """Return what was written between two looks at a folder."""
    fresh = [state for path, state in after.items() if before.get(path) != state]
    return Written(len(fresh), sum(state[2] for state in fresh) / 2**20)


def store_requests() -> dict[str, int]:
    """Return how many requests of each verb this process has sent, if it is this project's."""
    metrics = sys.modules.get("tidelock.base.metrics")
    if metrics is None:
        return {}
    counters: dict[str, int] = metrics.PROCESS.snapshot().counters
    verbs = ("get", "head", "put", "delete", "list")
    return {verb: counters[f"store.{verb}"] for verb in verbs if f"store.{verb}" in counters}


def _family() -> Iterator[tuple[Path, list[str]]]:
    """Yield this process and all below it, with the fields of their state after the name."""
    below: dict[int, list[int]] = {}
    known: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        below.setdefault(int(fields[1]), []).append(int(entry.name))
        known[int(entry.name)] = fields
    todo = [os.getpid()]
    while todo:
        one = todo.pop()
        if one in known:
            yield Path("/proc") / str(one), known[one]
        todo += below.get(one, [])
