"""Every cell of the documented conflict matrix, in three interleavings, as the code decides it.

The expectation is parsed from the documentation page: the words of each cell, and the consequence
of each word. Each scenario below is a pair of footprints, and the words that apply to it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import pytest

from scripts.generate_docs import matrix_page
from tests.unit.txn.bench import groups
from tidelock.hudi.timeline.instant import Action
from tidelock.txn.commit import ConflictChecker
from tidelock.txn.conflicts import Abort, PendingTxn, Preempted, Rebase, ReplanReplaced
from tidelock.txn.entries import Commit, InlineContent, LedgerEntry
from tidelock.txn.footprint import (
    NO_DEPENDENCIES,
    SERVICES,
    CommitKind,
    Footprint,
    NewKeys,
    ReadDependencies,
)
from tidelock.txn.state import View

PAIRS = list(itertools.product(CommitKind, CommitKind))
OVERWRITES = (CommitKind.OVERWRITE, CommitKind.OVERWRITE_TABLE, CommitKind.DELETE_PARTITION)
PARTITION = next(iter(groups("a")))[0]

ALWAYS: Final = frozenset({"restored", "preempt-restored", "refused"})
HARDEST_FIRST: Final = (
    "the write fails",
    "the table service is preempted and planned again",
    "the statement runs again on the current table",
    "the file groups are merged again on top of the other commit",
    "the list of replaced file groups is computed again; the data is kept",
)


@dataclass(frozen=True)
class Scenario:
    """Two concurrent operations: the footprint of each, and the words that apply.

    `replans`: the other leaves file groups that an overwrite would have to list. `later`: the other
    has the later request time.
    """

    words: frozenset[str]
    mine: dict[str, Any] = field(default_factory=dict)
    other: dict[str, Any] = field(default_factory=dict)
    replans: bool = True
    later: bool = False
    schemas: tuple[str, str] = ("", "")
    dependencies: ReadDependencies = NO_DEPENDENCIES


KEY = {PARTITION: NewKeys(frozenset({"k"}))}
SCENARIOS: Final = {
    "one file group, the other began first": Scenario(
        frozenset({"group", "read", "preempt", "preempt-base", "preempt-log", "log"}),
        {"touched": groups("a")},
        {"touched": groups("a")},
    ),
    "one file group, the other began last": Scenario(
        frozenset({"group", "read", "preempt", "preempt-base", "preempt-log", "log", "base"}),
        {"touched": groups("a")},
        {"touched": groups("a")},
        later=True,
    ),
    "log files of one group, the other began first": Scenario(
        frozenset({"group", "read", "preempt", "preempt-log"}),
        {"touched": groups("a"), "appended": groups("a")},
        {"touched": groups("a"), "appended": groups("a")},
    ),
    "a file group that was replaced": Scenario(
        frozenset({"gone", "read", "preempt", "preempt-base", "preempt-log"}),
        {"touched": groups("a")},
        {"replaced": groups("a"), "created": groups("n")},
    ),
    "one bucket that both began": Scenario(
        frozenset({"group", "read"}),
        {"created": groups("00000001-x"), "bucketed": True},
        {"created": groups("00000001-y"), "bucketed": True},
    ),
    "one new key": Scenario(
        frozenset({"key", "read"}),
        {"created": groups("m"), "inserts": KEY},
        {"created": groups("n"), "inserts": KEY},
    ),
    "a schema that changed": Scenario(
        frozenset({"schema", "preempt-schema"}), {}, {}, replans=False, schemas=("mine", "theirs")
    ),
    "a schema that changed, with the later request": Scenario(
        frozenset({"schema"}), {}, {}, replans=False, later=True, schemas=("mine", "old")
    ),
    "rows that decided what was left out": Scenario(
        frozenset({"found", "read"}),
        {},
        {"touched": groups("a")},
        dependencies=ReadDependencies(rows=frozenset({PARTITION})),
    ),
    "a bucket that was absent": Scenario(
        frozenset({"group", "read"}),
        {"bucketed": True},
        {"created": groups("00000001-y"), "bucketed": True},
        dependencies=ReadDependencies(absent=groups("00000001-x")),
    ),
    "partitions of their own": Scenario(
        frozenset({"read"}),
        {"touched": groups("p/a"), "created": groups("p/m")},
        {"touched": groups("q/a"), "created": groups("q/n")},
        replans=False,
    ),
}


@cache
def page() -> tuple[dict[tuple[str, str], frozenset[str]], dict[str, str]]:
    """Return the words of each cell, and the consequence of each word, as documented."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in matrix_page().splitlines()
        if line.startswith("| ")
    ]
    head = rows[0]
    cells, follows = {}, {}
    for name, *row in rows[1:]:
        if len(row) == len(head) - 1:
            for other, cell in zip(head[1:], row, strict=True):
                cells[name, other] = frozenset(cell.replace("`", "").split())
        elif name != "overlap":
            follows[name.strip("`")] = row[1]
    return cells, follows


def footprint(commit_kind: CommitKind, fields: dict[str, Any]) -> Footprint:
    """Return the footprint of an operation; an overwrite also has a partition, or all of them."""
    if commit_kind is CommitKind.OVERWRITE_TABLE:
        return Footprint(commit_kind, **fields, intents=None)
    if commit_kind in OVERWRITES:
        return Footprint(commit_kind, **fields, intents=frozenset({PARTITION}))
    return Footprint(commit_kind, **fields)


def documented(mine: CommitKind, other: CommitKind, scenario: Scenario) -> str:
    """Return the documented consequence; "" if both commit."""
    cells, follows = page()
    words = cells[mine, other]
    applicable = set(scenario.words & words)
    applicable |= ALWAYS & words
    if scenario.replans or (mine is CommitKind.OVERWRITE_TABLE and scenario.other):
        applicable |= {"replan"} & words if mine in OVERWRITES else set()
    if other in SERVICES and not scenario.later:
        applicable.discard("schema")  # it sets no schema, and this request is the later one
    if other in OVERWRITES and mine is CommitKind.READ_WRITE:
        applicable.add("read")  # it overwrites a partition, even if that was empty
    found = {follows[word] for word in applicable}
    return next((each for each in HARDEST_FIRST if each in found), "")


def named(verdict: object) -> str:
    """Return a verdict in the words of the page."""
    match verdict:
        case Abort():
            return HARDEST_FIRST[0]
        case Preempted():
            return HARDEST_FIRST[1]
        case Rebase(rerun=True):
            return HARDEST_FIRST[2]
        case Rebase():
            return HARDEST_FIRST[3]
        case ReplanReplaced():
            return HARDEST_FIRST[4]
        case _:
            raise AssertionError(f"{verdict} is not in the matrix")


def at(number: int) -> str:
    """Return a time."""
    return f"{20260101000000000 + number}"


def after(view: View, instant: str, done: Footprint, schema: str) -> View:
    """Return the ledger with one more commit."""
    fact = Commit(instant, Action.COMMIT, 1, done, InlineContent(b""), schema)
    position = view.position + 1
    return view.after(
        LedgerEntry(position, at(90 + position), "other", str(position), view.state.nonce, 0, fact)
    )


def outcome(mine: CommitKind, other: CommitKind, scenario: Scenario, *, overlapping: bool) -> str:
    """Let the other commit, then check mine, which began before or after that."""
    view = after(View(), at(1), Footprint(CommitKind.BULK_INSERT, created=groups("a")), "old")
    base = view.position
    ours, theirs = scenario.schemas
    instants = (at(20), at(30)) if scenario.later else (at(30), at(20))
    view = after(view, instants[1], footprint(other, scenario.other), theirs or "old")
    if not overlapping:
        base, instants = view.position, (at(99), "")
    done = footprint(mine, scenario.mine)
    candidate = PendingTxn(instants[0], done, ours or "old", "old", "me", scenario.dependencies)
    conflict = ConflictChecker(candidate, base).check(view)
    return "" if conflict is None else named(conflict.verdict)


@pytest.mark.parametrize(("mine", "other"), PAIRS)
def test_earlier_commit_never_conflicts_with_a_later_begin(
    mine: CommitKind, other: CommitKind
) -> None:
    for name, scenario in SCENARIOS.items():
        assert outcome(mine, other, scenario, overlapping=False) == "", name


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_second_of_two_overlapping_commits_gets_the_documented_outcome(
    first: CommitKind, second: CommitKind
) -> None:
    for name, scenario in SCENARIOS.items():
        expected = documented(second, first, scenario)
        assert outcome(second, first, scenario, overlapping=True) == expected, name


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_reversed_order_gives_the_documented_outcome_of_the_other(
    first: CommitKind, second: CommitKind
) -> None:
    for name, scenario in SCENARIOS.items():
        expected = documented(first, second, scenario)
        assert outcome(first, second, scenario, overlapping=True) == expected, name


def test_every_word_of_the_page_is_covered() -> None:
    """A word that no scenario triggers would be untested."""
    _, follows = page()
    covered = frozenset().union(*(scenario.words for scenario in SCENARIOS.values()))
    assert follows.keys() == covered | ALWAYS | {"replan"}
    assert {*follows.values()} == {*HARDEST_FIRST}
