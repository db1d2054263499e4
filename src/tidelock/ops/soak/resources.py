"""What the programs of a soak use of the machine, as Linux's /proc tells it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_MB: Final = os.sysconf("SC_PAGE_SIZE") / 1024 / 1024
_GROUP, _USER, _SYSTEM, _THREADS, _PAGES = 2, 11, 12, 17, 21
"""Fields of /proc/PID/stat, counted from the one behind the program's name."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one program, with the processes it started, uses at one moment."""

    memory_mb: float = 0.0
    cpu_s: float = 0.0
    threads: int = 0
    handles: int = 0


def usages(groups: Iterable[int]) -> dict[int, Usage]:
    """Return what each of these process groups uses; nothing where there is no /proc."""
    wanted = frozenset(groups)
    found: dict[int, Usage] = {}
    for group, usage in _processes(wanted):
        held = found.get(group, Usage())
        found[group] = Usage(
            held.memory_mb + usage.memory_mb,
            held.cpu_s + usage.cpu_s,
            held.threads + usage.threads,
            held.handles + usage.handles,
        )
    return found


def _processes(groups: frozenset[int]) -> Iterator[tuple[int, Usage]]:
    for folder in _PROC.iterdir() if _PROC.is_dir() else ():
        if not folder.name.isdigit():
            continue
        try:
            # The name is in brackets and may hold anything, brackets too.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            group = int(fields[_GROUP])
            if group not in groups:
                continue
            cpu_s = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS
            handles = sum(1 for _ in (folder / "fd").iterdir())
        except (OSError, IndexError):
            # It has ended since.
            continue
        yield group, Usage(int(fields[_PAGES]) * _PAGE_MB, cpu_s, int(fields[_THREADS]), handles)
