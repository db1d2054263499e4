"""The checker of lock histories: who was inside when, under which token.

One pass over the sections in token order decides everything: tokens must strictly increase (L1),
and each section must begin after the one before it has ended. That is O(n log n), and it is the
whole of mutual exclusion: sections that are ordered and do not touch their neighbours touch nobody.
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
    """One critical section, timed by the machine's one monotonic clock."""

    who: str
    token: int
    began_ns: int
    ended_ns: int

    def __str__(self) -> str:
        """Return it for a message."""
        return f"{self.who} under token {self.token} [{self.began_ns}, {self.ended_ns}]"


def violations(sections: Iterable[Section]) -> Iterator[str]:
    """Yield what contradicts a lock with fencing tokens."""
    ordered = sorted(sections, key=lambda section: (section.token, section.began_ns))
    for section in ordered:
        if section.ended_ns < section.began_ns:
            yield f"a section that ended before it began: {section}"
    for earlier, later in pairwise(ordered):
        if later.token == earlier.token:
            yield f"L1: one token, two sections: {earlier}; {later}"
        elif later.ended_ns <= earlier.began_ns:
            yield f"L1: the larger token came first: {later}; {earlier}"
        elif later.began_ns < earlier.ended_ns:
            yield f"two at once: {earlier}; {later}"


def hand_overs_ms(sections: Iterable[Section]) -> list[float]:
    """Return how long the lock was free between one section and the next, sorted."""
    ordered = sorted(sections, key=lambda section: section.token)
    return sorted((later.began_ns - earlier.ended_ns) / 1e6 for earlier, later in pairwise(ordered))


def fairness(sections: Iterable[Section]) -> float:
    """Return Jain's index of sections per contender: 1 is equal shares, 1/n is one takes all."""
    shares = list(Counter(section.who for section in sections).values())
    if not shares:
        return 1.0
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def write_section(path: Path, section: Section) -> None:
    """Append a section to a contender's own file."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(section)) + "\n")


def read_sections(folder: Path) -> list[Section]:
    """Return the sections of every contender's file below `folder`."""
    return [
        Section(**json.loads(line))
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
