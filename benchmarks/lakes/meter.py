"""The cost of a step: CPU, memory, files and requests. Independent of this project."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

APART = "spark"
"""Folders in which Spark keeps temporary files; they are not part of a table."""

_IDLE = slice(3, 5)
"""The columns of /proc/stat with idle time and time waiting for I/O."""


def cpu_s() -> float:
    """Return the CPU seconds of this process and its descendants, including ended ones."""
    ticks = sum(sum(int(field) for field in fields[11:15]) for _, fields in _family())
    return ticks / os.sysconf("SC_CLK_TCK")


def machine_s() -> float:
    """Return the CPU seconds of all processes on the machine."""
    first = Path("/proc/stat").read_text().partition("\n")[0]
    # The guest times, at the end, are included in the user times.
    times = [int(each) for each in first.split()[1:9]]
    return (sum(times) - sum(times[_IDLE])) / os.sysconf("SC_CLK_TCK")


def forget_peaks() -> None:
    """Reset the peak memory of each process."""
    for process, _ in _family():
        try:
            (process / "clear_refs").write_text("5")
        except OSError:
            continue


def peak_mb() -> float:
    """Return the sum of the peak memory of each process since the reset.

    The peaks may be at different times, and processes share some of the memory.
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
    """Files that a step created or rewrote, and their size."""

    files: int
    mb: float


def files_below(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return the state of each file by path: inode, modification time and size."""
    found = {}
    for location, folders, names in os.walk(folder):
        if location == str(folder) or Path(location).parent == folder:
            folders[:] = [each for each in folders if each != APART]
        for name in names:
            path = f"{location}/{name}"
            try:
                state = Path(path).stat()
            except FileNotFoundError:
                continue
            found[path] = (state.st_ino, state.st_mtime_ns, state.st_size)
    return found


def written(
    before: Mapping[str, tuple[int, int, int]], after: Mapping[str, tuple[int, int, int]]
) -> Written:
    """Return the files written between two states of a folder."""
    fresh = [state for path, state in after.items() if before.get(path) != state]
    return Written(len(fresh), sum(state[2] for state in fresh) / 2**20)


def store_requests() -> dict[str, int]:
    """Return the number of store requests by verb, if this process runs this project."""
    metrics = sys.modules.get("tidelock.core.telemetry")
    if metrics is None:
        return {}
    counters: dict[str, int] = metrics.PROCESS.snapshot().counters
    verbs = ("get", "head", "put", "delete", "list")
    return {verb: counters[f"store.{verb}"] for verb in verbs if f"store.{verb}" in counters}


def _family() -> Iterator[tuple[Path, list[str]]]:
    """Yield this process and its descendants, with the fields of /proc/PID/stat after the name."""
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
