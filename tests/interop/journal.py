"""The journal that all contenders of one lock append to, and its check for exclusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: contender, action, time. The token is 0 for Java, which has none."""

    monotonic_ns: int
    event: str
    name: str
    token: int


@dataclass(frozen=True, slots=True)
class Section:
    """One critical section."""

    name: str
    token: int
    begin_ns: int
    end_ns: int


def read(path: Path) -> list[Entry]:
    """Return the entries in append order."""
    entries = []
    for line in path.read_text().splitlines():
        time, event, name, token = line.split()
        entries.append(Entry(int(time), event, name, int(token)))
    return entries


def sections(entries: Sequence[Entry]) -> list[Section]:
    """Return the critical sections by their start; each must have ended."""
    open_since: dict[str, Entry] = {}
    done = []
    for entry in entries:
        if entry.event == "begin":
            assert entry.name not in open_since, f"{entry.name} began twice"
            open_since[entry.name] = entry
        elif entry.event == "end":
            began = open_since.pop(entry.name)
            done.append(Section(entry.name, entry.token, began.monotonic_ns, entry.monotonic_ns))
    assert not open_since, f"never ended: {sorted(open_since)}"
    return sorted(done, key=lambda section: section.begin_ns)


def overlaps(entries: Sequence[Entry]) -> list[str]:
    """Return every overlap of two contenders, by marker, by order and by clock."""
    signs = [f"{e.name} met a marker" for e in entries if e.event == "overlap"]
    inside: list[str] = []
    for entry in entries:
        if entry.event == "begin":
            if inside:
                signs.append(f"{entry.name} began inside {inside[-1]}")
            inside.append(entry.name)
        elif entry.event == "end" and entry.name in inside:
            inside.remove(entry.name)
    by_time = sections(entries)
    for before, after in pairwise(by_time):
        if after.begin_ns < before.end_ns:
            signs.append(f"{after.name} began before {before.name} ended")
    return signs


def handovers(done: Sequence[Section], *, prefix: str) -> int:
    """Return how often the lock changed between contenders with this prefix and others."""
    sides = [section.name.startswith(prefix) for section in done]
    return sum(a != b for a, b in pairwise(sides))
