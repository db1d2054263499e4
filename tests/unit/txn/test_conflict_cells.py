"""Every cell of the documented matrix, in three interleavings, as the ledger's judge decides it.

What is expected is read from the page of the documentation: which words a cell has, and what
follows from a word. Each meeting below is a pair of footprints, and the words that look at it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import pytest

from tests.unit.txn.bench import groups
from tidelock.table.timeline.instant import Action
from tidelock.txn.committing import Judge
from tidelock.txn.content import Inline
from tidelock.txn.entry import Commit, Entry
from tidelock.txn.footprint import (
    NO_RELIANCE,
    SERVICES,
    Deed,
    Footprint,
    NewKeys,
    Reliance,
)
from tidelock.txn.matrix import matrix_page
from tidelock.txn.rules import Candidate
from tidelock.txn.verdict import Rebase, Refuse, ReplanReplaced, Yield
from tidelock.txn.view import View

PAIRS = list(itertools.product(Deed, Deed))
OVERWRITES = (Deed.OVERWRITE, Deed.OVERWRITE_TABLE, Deed.DELETE_PARTITION)
PARTITION = next(iter(groups("a")))[0]

ALWAYS: Final = frozenset({"restored", "give-way", "refused"})
HARDEST_FIRST: Final = (
    "refused",
    "the table service gives way",
    "the statement runs again on the table as it is",
    "the file groups are written again on top of the other commit",
    "the list of replaced file groups is made again; the data stands",
)


@dataclass(frozen=True)
class Meeting:
    """Two operations at work at once: what each does, and which words are about that.

    `replans` says that the other leaves file groups where an overwrite would have to list them.
    `later` says that the other has the later request time.
    """

    words: frozenset[str]
    mine: dict[str, Any] = field(default_factory=dict)
    other: dict[str, Any] = field(default_factory=dict)
    replans: bool = True
    later: bool = False
    schemas: tuple[str, str] = ("", "")
    reliance: Reliance = NO_RELIANCE


KEY = {PARTITION: NewKeys(frozenset({"k"}))}
MEETINGS: Final = {
    "one file group, the other began first": Meeting(
        frozenset({"group", "read", "yield", "yield-base", "yield-log", "log"}),
        {"touched": groups("a")},
        {"touched": groups("a")},
    ),
    "one file group, the other began last": Meeting(
        frozenset({"group", "read", "yield", "yield-base", "yield-log", "log", "base"}),
        {"touched": groups("a")},
        {"touched": groups("a")},
        later=True,
    ),
    "log files of one group, the other began first": Meeting(
        frozenset({"group", "read", "yield", "yield-log"}),
        {"touched": groups("a"), "appended": groups("a")},
        {"touched": groups("a"), "appended": groups("a")},
    ),
    "a file group that was replaced": Meeting(
        frozenset({"gone", "read", "yield", "yield-base", "yield-log"}),
        {"touched": groups("a")},
        {"replaced": groups("a"), "created": groups("n")},
    ),
    "one bucket that both began": Meeting(
        frozenset({"group", "read"}),
        {"created": groups("00000001-x"), "bucketed": True},
        {"created": groups("00000001-y"), "bucketed": True},
    ),
    "one new key": Meeting(
        frozenset({"key", "read"}),
        {"created": groups("m"), "inserts": KEY},
        {"created": groups("n"), "inserts": KEY},
    ),
    "a schema that changed": Meeting(
        frozenset({"schema", "yield-schema"}), {}, {}, replans=False, schemas=("mine", "theirs")
    ),
    "a schema that changed, with the later request": Meeting(
        frozenset({"schema"}), {}, {}, replans=False, later=True, schemas=("mine", "old")
    ),
    "rows that decided what was left out": Meeting(
        frozenset({"found", "read"}),
        {},
        {"touched": groups("a")},
        reliance=Reliance(rows=frozenset({PARTITION})),
    ),
    "a bucket that was absent": Meeting(
        frozenset({"group", "read"}),
        {"bucketed": True},
        {"created": groups("00000001-y"), "bucketed": True},
        reliance=Reliance(absent=groups("00000001-x")),
    ),
    "partitions of their own": Meeting(
        frozenset({"read"}),
        {"touched": groups("p/a"), "created": groups("p/m")},
        {"touched": groups("q/a"), "created": groups("q/n")},
        replans=False,
    ),
}


@cache
def page() -> tuple[dict[tuple[str, str], frozenset[str]], dict[str, str]]:
    """Return the words of each cell, and what follows from each word, as documented."""
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
        elif name != "word":
            follows[name.strip("`")] = row[1]
    return cells, follows


def footprint(deed: Deed, fields: dict[str, Any]) -> Footprint:
    """Return what a deed does; an overwrite also means a partition, or all of them."""
    if deed is Deed.OVERWRITE_TABLE:
        return Footprint(deed, **fields, intents=None)
    if deed in OVERWRITES:
        return Footprint(deed, **fields, intents=frozenset({PARTITION}))
    return Footprint(deed, **fields)


def documented(mine: Deed, other: Deed, meeting: Meeting) -> str:
    """Return what follows by the page; "" if both stand."""
    cells, follows = page()
    words = cells[mine, other]
    told = set(meeting.words & words)
    told |= ALWAYS & words
    if meeting.replans or (mine is Deed.OVERWRITE_TABLE and meeting.other):
        told |= {"replan"} & words if mine in OVERWRITES else set()
    if other in SERVICES and not meeting.later:
        told.discard("schema")  # it sets no schema, and this one's request is the later
    if other in OVERWRITES and mine is Deed.READ_WRITE:
        told.add("read")  # it means a partition, even if there was nothing in it
    found = {follows[word] for word in told}
    return next((each for each in HARDEST_FIRST if each in found), "")


def named(verdict: object) -> str:
    """Return a verdict in the words of the page."""
    match verdict:
        case Refuse():
            return HARDEST_FIRST[0]
        case Yield():
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
    fact = Commit(instant, Action.COMMIT, 1, done, Inline(b""), schema)
    place = view.position + 1
    return view.after(Entry(place, at(90 + place), "other", str(place), view.fold.nonce, 0, fact))


def judged(mine: Deed, other: Deed, meeting: Meeting, *, overlapping: bool) -> str:
    """Let the other commit, then ask whether mine may, begun before that or after it."""
    view = after(View(), at(1), Footprint(Deed.BULK_INSERT, created=groups("a")), "old")
    base = view.position
    ours, theirs = meeting.schemas
    instants = (at(20), at(30)) if meeting.later else (at(30), at(20))
    view = after(view, instants[1], footprint(other, meeting.other), theirs or "old")
    if not overlapping:
        base, instants = view.position, (at(99), "")
    done = footprint(mine, meeting.mine)
    candidate = Candidate(instants[0], done, ours or "old", "old", "me", meeting.reliance)
    overtaken = Judge(candidate, base).verdict(view)
    return "" if overtaken is None else named(overtaken.verdict)


@pytest.mark.parametrize(("mine", "other"), PAIRS)
def test_what_was_committed_before_one_began_never_stands_against_it(
    mine: Deed, other: Deed
) -> None:
    for name, meeting in MEETINGS.items():
        assert judged(mine, other, meeting, overlapping=False) == "", name


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_that_overlap_the_second_to_commit_gets_what_the_page_says(
    first: Deed, second: Deed
) -> None:
    for name, meeting in MEETINGS.items():
        expected = documented(second, first, meeting)
        assert judged(second, first, meeting, overlapping=True) == expected, name


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_had_the_other_been_first_the_page_speaks_for_the_other(first: Deed, second: Deed) -> None:
    for name, meeting in MEETINGS.items():
        expected = documented(first, second, meeting)
        assert judged(first, second, meeting, overlapping=True) == expected, name


def test_every_word_of_the_page_is_met() -> None:
    """A word that no meeting triggers would be proven by nothing."""
    _, follows = page()
    met = frozenset().union(*(meeting.words for meeting in MEETINGS.values()))
    assert follows.keys() == met | ALWAYS | {"replan"}
    assert {*follows.values()} == {*HARDEST_FIRST}
