"""The judgement of a demo, from the journals alone: what the writers said against what is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidelock.ops.lockdemo.journal import Did, Event


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be true, and whether it is."""

    passed: bool
    says: str


@dataclass(frozen=True, slots=True)
class Span:
    """How long one holder was told by its own lock that it holds it."""

    name: str
    token: int
    from_ms: int
    to_ms: int


def judge(events: Sequence[Event], *, fenced: int) -> list[Check]:
    """Check the three promises: nothing lost, tokens grow, never two believers."""
    ordered = sorted(events, key=lambda event: event.at_ms)
    return [_counted(ordered, fenced), _growing(ordered), _alone(ordered), _calm(ordered)]


def spans(events: Sequence[Event]) -> list[Span]:
    """Return the belief of every holding, in the order in which they were granted."""
    found: dict[tuple[str, int], Span] = {}
    for event in events:
        key = (event.name, event.token)
        if event.did is Did.GRANTED:
            found[key] = Span(event.name, event.token, event.at_ms, event.at_ms)
        elif event.did is Did.BELIEVES and key in found:
            began = found[key].from_ms
            found[key] = Span(event.name, event.token, began, max(began, event.at_ms))
    return sorted(found.values(), key=lambda span: span.from_ms)


def plain_acknowledged(events: Sequence[Event]) -> int:
    """Return how often a writer was told that the unguarded counter took its increment."""
    return sum(event.did is Did.WROTE_PLAIN for event in events)


def _counted(events: Sequence[Event], fenced: int) -> Check:
    """Every acknowledged increment is in the counter, and nothing else is.

    A writer that was killed between its write and its note may have added one that nobody knows.
    """
    acknowledged = sum(event.did is Did.WROTE for event in events)
    begun = sum(event.did is Did.WRITING for event in events)
    answered = acknowledged + sum(event.did is Did.REFUSED for event in events)
    most = acknowledged + max(0, begun - answered)
    says = f"the fenced counter is {fenced}, and {acknowledged} increments were acknowledged"
    return Check(acknowledged <= fenced <= most, says)


def _growing(events: Sequence[Event]) -> Check:
    tokens = [event.token for event in events if event.did is Did.GRANTED]
    grown = all(earlier < later for earlier, later in pairwise(tokens))
    first, last = (tokens[0], tokens[-1]) if tokens else (0, 0)
    return Check(
        bool(tokens) and grown, f"{len(tokens)} tokens were granted, {first} to {last}, each larger"
    )


def _alone(events: Sequence[Event]) -> Check:
    believed = spans(events)
    for earlier, later in pairwise(believed):
        if later.from_ms < earlier.to_ms:
            says = (
                f"{earlier.name} (token {earlier.token}) and {later.name} (token {later.token})"
                f" both believed for {earlier.to_ms - later.from_ms} ms"
            )
            return Check(passed=False, says=says)
    return Check(passed=True, says="no two writers believed to hold the lock at the same time")


def _calm(events: Sequence[Event]) -> Check:
    failures = [event for event in events if event.did is Did.FAILED]
    if failures:
        first = failures[0]
        return Check(passed=False, says=f"{first.name} met an error: {first.says}")
    return Check(passed=True, says="no writer met an error")
