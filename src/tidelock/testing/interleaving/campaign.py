"""Running many cases and telling what came of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from tidelock.testing.interleaving.cases import Case
from tidelock.testing.interleaving.generate import complete, sampled
from tidelock.testing.interleaving.runner import Outcome, run_case
from tidelock.testing.interleaving.shrink import shrunk

_SHRUNK_MAX = 200


@dataclass
class Wrong:
    """A case that is wrong, made small, and what is wrong with it."""

    case: Case
    told: str
    found_as: Case

    @property
    def kind(self) -> tuple[str, ...]:
        """What wrong cases of one cause mostly have in common."""
        case = self.case
        acts = " ".join(f"{act.verb}{'+' + act.change if act.change else ''}" for act in case.acts)
        buckets = "bucket" if case.index == "bucket" else "keys"
        blocking = "nbcc" if case.mode == "nbcc" else ""
        return (symptom(self.told), case.kind, buckets, blocking, acts)

    def __str__(self) -> str:
        """Return the command that replays it, and what it shows."""
        return f"python -m tidelock.testing.interleaving --replay '{self.case}'\n      {self.told}"


@dataclass
class Tally:
    """How many cases there were, how their operations ended, and which are wrong."""

    cases: int = 0
    interleaved: int = 0
    rebases: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[Wrong] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take in what another part counted."""
        self.cases += other.cases
        self.interleaved += other.interleaved
        self.rebases += other.rebases
        self.ends.update(other.ends)
        self.wrong.extend(other.wrong)

    def count(self, outcome: Outcome, *, shrinks: bool = True) -> None:
        """Take in one case."""
        self.cases += 1
        self.interleaved += bool(outcome.reached)
        self.rebases += outcome.rebases
        self.ends.update(outcome.ends.values())
        if outcome.wrong:
            small = outcome.case
            if shrinks and len(self.wrong) < _SHRUNK_MAX:
                small = shrunk(outcome.case, judged)
            told = run_case(small).wrong
            self.wrong.append(Wrong(small, (told or outcome.wrong)[0], outcome.case))

    def summary(self) -> str:
        """Return the numbers."""
        ends = ", ".join(f"{number} {end}" for end, number in sorted(self.ends.items()))
        return (
            f"{self.cases} cases, {self.interleaved} of them interleaved, {self.rebases} rebases;"
            f" operations: {ends}; wrong: {len(self.wrong)}"
        )

    def listed(self) -> str:
        """Return the wrong cases, one of each kind, with how many are like it."""
        kinds: dict[tuple[str, ...], list[Wrong]] = {}
        for each in self.wrong:
            kinds.setdefault(each.kind, []).append(each)
        ordered = sorted(kinds.items(), key=lambda pair: (pair[0][0], -len(pair[1])))
        return "\n".join(f"{len(some):5} {some[0]}" for _, some in ordered)


def symptom(told: str) -> str:
    """Return in one word what is wrong: who saw it, or which error it was."""
    words = told.split()
    if words and words[0] in ("a", "b", "c"):
        return f"failed {words[4]}"
    more, less = "too many []" not in told, "missing []" not in told
    if "too many" in told and "missing" in told:
        return f"{words[0]} {'+' * more}{'-' * less}"
    return words[0] if words else ""


def judged(case: Case) -> str:
    """Return in one word what is wrong with a case; "" if nothing is."""
    wrong = run_case(case).wrong
    return symptom(wrong[0]) if wrong else ""


def run_cases(cases: Iterable[Case], *, shrinks: bool = True) -> Tally:
    """Run cases one after the other."""
    tally = Tally()
    for case in cases:
        tally.count(run_case(case), shrinks=shrinks)
    return tally


@dataclass(frozen=True, slots=True)
class Campaign:
    """Which cases: a number drawn by a seed, or with 0 the complete matrix; and which part."""

    seed: int = 0
    number: int = 0
    part: int = 0
    parts: int = 1

    def cases(self) -> Iterator[Case]:
        """Yield the cases of this part."""
        every = sampled(self.seed, self.number) if self.number else complete(self.seed)
        return islice(every, self.part, None, self.parts)


def run_part(campaign: Campaign) -> Tally:
    """Run the cases of one part."""
    return run_cases(campaign.cases())


def run_campaign(campaign: Campaign, *, processes: int, say: Callable[[str], None]) -> Tally:
    """Run all cases of a campaign in several processes, and tell how it goes."""
    parts = processes * (1 if campaign.number else 20)
    work = [Campaign(campaign.seed, campaign.number, part, parts) for part in range(parts)]
    done = Tally()
    with ProcessPoolExecutor(processes) as pool:
        for tally in pool.map(run_part, work):
            done.add(tally)
            say(f"[{os.getpid()}] {done.summary()}")
    return done
