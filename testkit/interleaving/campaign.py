"""Runs many cases and reports the results."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from testkit.interleaving.cases import Case
from testkit.interleaving.generate import complete, sampled
from testkit.interleaving.runner import Outcome, run_case
from testkit.interleaving.shrink import shrunk

_SHRUNK_MAX = 200


@dataclass
class FailedCase:
    """A failing case, shrunk, and what is wrong with it."""

    case: Case
    finding: str
    found_as: Case

    @property
    def kind(self) -> tuple[str, ...]:
        """The properties that failing cases with the same cause share."""
        case = self.case
        acts = " ".join(f"{act.verb}{'+' + act.change if act.change else ''}" for act in case.acts)
        buckets = "bucket" if case.index == "bucket" else "keys"
        blocking = "nbcc" if case.mode == "nbcc" else ""
        return (symptom(self.finding), case.kind, buckets, blocking, acts)

    def __str__(self) -> str:
        """Return the command that replays it, and its findings."""
        return f"python -m testkit.interleaving --replay '{self.case}'\n      {self.finding}"


@dataclass
class MatrixResult:
    """The number of cases, how their operations ended, and the failing cases."""

    cases: int = 0
    interleaved: int = 0
    rebases: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[FailedCase] = field(default_factory=list)

    def add(self, other: MatrixResult) -> None:
        """Add the counts of another part."""
        self.cases += other.cases
        self.interleaved += other.interleaved
        self.rebases += other.rebases
        self.ends.update(other.ends)
        self.wrong.extend(other.wrong)

    def count(self, outcome: Outcome, *, shrinks: bool = True) -> None:
        """Add one case."""
        self.cases += 1
        self.interleaved += bool(outcome.reached)
        self.rebases += outcome.rebases
        self.ends.update(outcome.ends.values())
        if outcome.wrong:
            small = outcome.case
            if shrinks and len(self.wrong) < _SHRUNK_MAX:
                small = shrunk(outcome.case, check_case)
            finding = run_case(small).wrong
            self.wrong.append(FailedCase(small, (finding or outcome.wrong)[0], outcome.case))

    def summary(self) -> str:
        """Return the counts."""
        ends = ", ".join(f"{number} {end}" for end, number in sorted(self.ends.items()))
        return (
            f"{self.cases} cases, {self.interleaved} of them interleaved, {self.rebases} rebases;"
            f" operations: {ends}; wrong: {len(self.wrong)}"
        )

    def failure_list(self) -> str:
        """Return the failing cases, one of each kind, with the number of similar ones."""
        kinds: dict[tuple[str, ...], list[FailedCase]] = {}
        for each in self.wrong:
            kinds.setdefault(each.kind, []).append(each)
        ordered = sorted(kinds.items(), key=lambda pair: (pair[0][0], -len(pair[1])))
        return "\n".join(f"{len(some):5} {some[0]}" for _, some in ordered)


def symptom(finding: str) -> str:
    """Return a one-word symptom: which reader saw it, or which error it was."""
    words = finding.split()
    if words and words[0] in ("a", "b", "c"):
        return f"failed {words[4]}"
    more, less = "too many []" not in finding, "missing []" not in finding
    if "too many" in finding and "missing" in finding:
        return f"{words[0]} {'+' * more}{'-' * less}"
    return words[0] if words else ""


def check_case(case: Case) -> str:
    """Return a one-word symptom of a case; "" if it passes."""
    wrong = run_case(case).wrong
    return symptom(wrong[0]) if wrong else ""


def run_cases(cases: Iterable[Case], *, shrinks: bool = True) -> MatrixResult:
    """Run cases one after the other."""
    result = MatrixResult()
    for case in cases:
        result.count(run_case(case), shrinks=shrinks)
    return result


@dataclass(frozen=True, slots=True)
class Campaign:
    """The cases: a number drawn by a seed, or with 0 the complete matrix; and the part to run."""

    seed: int = 0
    number: int = 0
    part: int = 0
    parts: int = 1

    def cases(self) -> Iterator[Case]:
        """Yield the cases of this part."""
        every = sampled(self.seed, self.number) if self.number else complete(self.seed)
        return islice(every, self.part, None, self.parts)


def run_part(campaign: Campaign) -> MatrixResult:
    """Run the cases of one part."""
    return run_cases(campaign.cases())


def run_campaign(
    campaign: Campaign, *, processes: int, report: Callable[[str], None]
) -> MatrixResult:
    """Run all cases of a campaign in several processes; `report` is called with the progress."""
    parts = processes * (1 if campaign.number else 20)
    work = [Campaign(campaign.seed, campaign.number, part, parts) for part in range(parts)]
    done = MatrixResult()
    with ProcessPoolExecutor(processes) as pool:
        for result in pool.map(run_part, work):
            done.add(result)
            report(f"[{os.getpid()}] {done.summary()}")
    return done
