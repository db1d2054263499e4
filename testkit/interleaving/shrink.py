"""Shrinks a failing case to a simpler one with the same symptom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from testkit.interleaving.cases import ACTORS, Case, Step

Judge = Callable[[Case], str]
"""Returns a one-word symptom of a case; "" if it passes."""


_PLAIN: Final = {
    "end": ("",),
    "view": ("fresh", "stale"),
    "history": ("empty", "base", "logs"),
    "mode": ("single", "occ"),
    "ordering": ("event", "commit"),
    "index": ("simple", "none"),
    "kind": ("cow",),
}
"""For each word of a case the simpler alternatives, simplest first."""


def shrunk(case: Case, judge: Judge) -> Case:
    """Return the simplest case with the same symptom."""
    symptom = judge(case)
    smaller = True
    while smaller:
        smaller = False
        for other in _simpler(case):
            if other.is_possible and judge(other) == symptom:
                case, smaller = other, True
                break
    return case


def _simpler(case: Case) -> Iterator[Case]:
    """Yield simpler cases, much simpler ones first."""
    if len(case.acts) > 1:
        for number in range(len(case.acts)):
            yield _without(case, number)
    for number in range(len(case.steps)):
        steps = case.steps[:number] + case.steps[number + 1 :]
        if steps:
            yield replace(case, steps=steps)
    for name, values in _PLAIN.items():
        value = str(getattr(case, name))
        # Omitting a word is simpler than any alternative.
        for simpler in values[: values.index(value)] if value in values else values:
            yield replace(case, **{name: simpler})  # type: ignore[arg-type] # words of a Case
    for number, act in enumerate(case.acts):
        if act.change:
            yield _with(case, number, change="")
        if act.apart:
            yield _with(case, number, apart=False)
        if act.spot in ("bkt", "prt", "gone"):
            yield _with(case, number, spot="new")


def _with(case: Case, number: int, **values: object) -> Case:
    acts = list(case.acts)
    acts[number] = replace(acts[number], **values)  # type: ignore[arg-type] # fields of an Act
    return replace(case, acts=tuple(acts))


def _without(case: Case, number: int) -> Case:
    names = {name: ACTORS[at - (at > number)] for at, name in enumerate(ACTORS) if at != number}
    acts = case.acts[:number] + case.acts[number + 1 :]
    steps = [Step(names[s.actor], s.until) for s in case.steps if s.actor in names]
    return replace(case, acts=acts, steps=tuple(steps))
