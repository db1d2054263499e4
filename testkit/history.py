"""Checker of lock histories: critical sections with their times and tokens.

One pass over the sections in token order is enough: tokens must strictly increase (L1), and each
section must begin after the end of the previous one. This takes O(n log n) and proves mutual
exclusion: ordered sections that do not overlap their neighbours do not overlap at all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Section:
    """One critical section, timed by the monotonic clock of the machine."""

    who: str
    token: int
    began_ns: int
    ended_ns: int

    def __str__(self) -> str:
        """Return the section as text."""
        return f"{self.who} under token {self.token} [{self.began_ns}, {self.ended_ns}]"


def violations(sections: Iterable[Section]) -> Iterator[str]:
    """Yield violations of a lock with fencing tokens."""
    ordered = sorted(sections, key=lambda section: (section.token, section.began_ns))
    for section in ordered:
        if section.ended_ns < section.began_ns:
            yield f"a section that ended before it began: {section}"
    for earlier, later in pairwise(ordered):
        if later.token == earlier.token:
            yield f"L1: two sections with one token: {earlier}; {later}"
        elif later.ended_ns <= earlier.began_ns:
            yield f"L1: the larger token came first: {later}; {earlier}"
        elif later.began_ns < earlier.ended_ns:
            yield f"overlap: {earlier}; {later}"


def hand_overs_ms(sections: Iterable[Section]) -> list[float]:
    """Return how long the lock was free between one section and the next, sorted."""
    ordered = sorted(sections, key=lambda section: section.token)
    return sorted((later.began_ns - earlier.ended_ns) / 1e6 for earlier, later in pairwise(ordered))


def fairness(sections: Iterable[Section]) -> float:
    """Return Jain's fairness index of sections per contender: 1 is equal, 1/n is one contender."""
    shares = list(Counter(section.who for section in sections).values())
    if not shares:
        return 1.0
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def write_section(path: Path, section: Section) -> None:
    """Append a section to the file of its contender."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(section)) + "\n")


def read_sections(folder: Path) -> list[Section]:
    """Return the sections in all files in `folder`."""
    return [
        Section(**json.loads(line))
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
