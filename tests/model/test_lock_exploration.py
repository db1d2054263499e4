"""Every interleaving of two clients, their requests, faults and time, on the production machine.

Each scene is searched to its end. The planted mistakes show that the search would have found one.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import pytest

from tidelock.lock.machine import TABLE
from tidelock.testing.explore import MUTANTS, SCENES, Bounds, Found, Violation, replay, search
from tidelock.testing.explore import checks as explore_checks
from tidelock.testing.explore.__main__ import counterexample, main

# One worker does all searches, so that what they covered together can be asked about.
pytestmark = pytest.mark.xdist_group("exploration")

STATES_MIN = 500_000

FAULTS_AND_OTHERS = {
    "412 after success",
    "429 or 409",
    "a late grant lands",
    "a late release lands",
    "a late renewal lands",
    "a late token range lands",
    "cut short",
    "deletes the lock object",
    "its thread ends",
    "its wall clock jumps",
    "no reply",
    "read failed",
    "releases by force",
    "reply lost",
    "spoils the lock object",
    "the grant is refused",
    "the release is refused",
    "the renewal is refused",
    "the token range is refused",
    "tick",
    "time passes",
}


@cache
def searched(scene: str) -> Found:
    return search(SCENES[scene])


def violation_of(name: str) -> Violation:
    mutant = MUTANTS[name]
    with mutant.plant():
        found = search(mutant.bounds)
    assert found.violation is not None, f"{found.states} states, and nobody noticed {name!r}"
    return found.violation


@pytest.mark.parametrize("scene", SCENES)
def test_no_interleaving_breaks_an_invariant(scene: str) -> None:
    found = searched(scene)
    if found.violation:
        pytest.fail("\n".join(counterexample(found.violation, found.bounds)))
    assert found.complete


def test_half_a_million_states_are_searched_to_the_end() -> None:
    assert searched("contention").states >= STATES_MIN


def test_every_fault_and_every_other_party_took_part() -> None:
    fired: Counter[str] = Counter()
    for scene in SCENES:
        for says, times in searched(scene).fired.items():
            fired[says.partition(": ")[2] or says] += times
    assert not {kind for kind in FAULTS_AND_OTHERS if not fired[kind]}
    assert {"takes", "renews", "releases"} <= fired.keys()


def test_every_row_of_the_table_leads_everywhere_it_says_and_nowhere_else() -> None:
    reached = {row for scene in SCENES for row in searched(scene).rows}
    stated = {
        (phase, event.__name__, to) for (phase, event), row in TABLE.items() for to in row.leads_to
    }
    assert reached == stated


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_found(name: str) -> None:
    violation = violation_of(name)
    assert len(violation.lines) in (len(violation.path), len(violation.path) + 1)


@pytest.mark.parametrize(
    "bounds",
    [
        bounds
        for bounds in dict.fromkeys(mutant.bounds for mutant in MUTANTS.values())
        if bounds not in SCENES.values()
    ],
    ids=lambda bounds: f"{bounds.starts[0]}-{bounds.operations}-{bounds.faults}-{bounds.meddlings}",
)
def test_without_the_planted_mistake_nothing_is_found(bounds: Bounds) -> None:
    found = search(bounds)
    assert found.complete
    assert found.violation is None


@contextmanager
def only_exclusion() -> Iterator[None]:
    """Silence every rule that usually speaks before two owners believe at the same time."""
    rules = ("_grant_landing", "grant", "granted", "there", "belief", "renewal", "request")
    with ExitStack() as silence:
        for rule in rules:
            silence.enter_context(patch.object(explore_checks, rule))
        silence.enter_context(patch.object(explore_checks, "deadline_ms", return_value=10**9))
        yield


@pytest.mark.parametrize("name", ["taker without drift", "holder with drift"])
def test_two_believers_are_seen_even_where_no_other_rule_speaks(name: str) -> None:
    with only_exclusion():
        assert violation_of(name).rule == "exclusion"


def test_clocks_that_lie_do_overlap_so_only_tokens_are_promised_there() -> None:
    lying = SCENES["clocks lie"]
    assert not lying.exclusive
    with only_exclusion(), patch.object(Bounds, "exclusive", new=True):
        found = search(lying)
    assert found.violation is not None
    assert found.violation.rule == "exclusion"


def test_a_search_is_the_same_every_time() -> None:
    bounds = replace(SCENES["two faults"], faults=1)
    first, second = search(bounds), search(bounds)
    assert (first.states, first.fired) == (second.states, second.fired)
    assert violation_of("release overwrites") == violation_of("release overwrites")


def test_a_counterexample_is_told_again_by_its_path() -> None:
    mutant = MUTANTS["range offered at once"]
    violation = violation_of("range offered at once")
    with mutant.plant():
        *story, mistake = replay(mutant.bounds, list(violation.path))
    assert tuple(story) == violation.lines[: len(story)]
    assert violation.says in mistake
    *_, calm = replay(mutant.bounds, list(violation.path[:5]))
    assert calm == "no mistake on this way"


def test_the_command_prints_the_way_to_a_mistake_and_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--scene", "operator", "--mutant", "range unconfirmed"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert "VIOLATED L1" in printed[0]
    assert any("operator: deletes the lock object" in line for line in printed)
    again = shlex.split(printed[-1].partition("explore ")[2])
    assert main(again) == 0
    assert "L1: token 1 was granted out of order" in capsys.readouterr().out.splitlines()[-1]


def test_the_command_bounds_a_search_and_says_that_it_was_not_complete(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["--clients", "3", "--operations", "1", "--faults", "0", "--states", "2000"]
    assert main(asked) == 0
    assert "not complete, 0 violations" in capsys.readouterr().out
