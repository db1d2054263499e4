"""Every interleaving of two clients, their requests, faults and time, on the production machine.

Each scenario is searched completely. The planted bugs show that the search would find a violation.
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

from testkit.explore import MUTANTS, SCENARIOS, Bounds, SearchResult, Violation, replay, search
from testkit.explore import checks as explore_checks
from testkit.explore.__main__ import counterexample, main
from tidelock.lock.machine import TABLE

# One worker runs all searches, so that their combined coverage can be checked.
pytestmark = pytest.mark.xdist_group("exploration")

STATES_MIN = 500_000

FAULTS_AND_OTHERS = {
    "412 after success",
    "429 or 409",
    "a late grant lands",
    "a late release lands",
    "a late renewal lands",
    "a late token range lands",
    "abandoned",
    "deletes the lock object",
    "its thread ends",
    "its wall clock jumps",
    "no reply",
    "read failed",
    "releases by force",
    "reply lost",
    "damages the lock object",
    "the grant is refused",
    "the release is refused",
    "the renewal is refused",
    "the token range is refused",
    "tick",
    "time passes",
}


@cache
def searched(scene: str) -> SearchResult:
    return search(SCENARIOS[scene])


def violation_of(name: str) -> Violation:
    mutant = MUTANTS[name]
    with mutant.plant():
        found = search(mutant.bounds)
    assert found.violation is not None, f"{found.states} states, and {name!r} was not found"
    return found.violation


@pytest.mark.parametrize("scene", SCENARIOS)
def test_no_interleaving_breaks_an_invariant(scene: str) -> None:
    found = searched(scene)
    if found.violation:
        pytest.fail("\n".join(counterexample(found.violation, found.bounds)))
    assert found.complete


def test_at_least_half_a_million_states_are_searched() -> None:
    assert searched("contention").states >= STATES_MIN


def test_every_fault_and_every_actor_took_part() -> None:
    fired: Counter[str] = Counter()
    for scene in SCENARIOS:
        for description, times in searched(scene).fired.items():
            fired[description.partition(": ")[2] or description] += times
    assert not {kind for kind in FAULTS_AND_OTHERS if not fired[kind]}
    assert {"acquires", "renews", "releases"} <= fired.keys()


def test_every_row_of_the_table_leads_to_exactly_its_declared_phases() -> None:
    reached = {row for scene in SCENARIOS for row in searched(scene).rows}
    stated = {
        (phase, event.__name__, to) for (phase, event), row in TABLE.items() for to in row.leads_to
    }
    assert reached == stated


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    violation = violation_of(name)
    assert len(violation.lines) in (len(violation.path), len(violation.path) + 1)


@pytest.mark.parametrize(
    "bounds",
    [
        bounds
        for bounds in dict.fromkeys(mutant.bounds for mutant in MUTANTS.values())
        if bounds not in SCENARIOS.values()
    ],
    ids=lambda bounds: (
        f"{bounds.starts[0]}-{bounds.operations}-{bounds.faults}-{bounds.operator_actions}"
    ),
)
def test_without_the_planted_bug_nothing_is_found(bounds: Bounds) -> None:
    found = search(bounds)
    assert found.complete
    assert found.violation is None


@contextmanager
def only_exclusion() -> Iterator[None]:
    """Disable every check that usually fails before two owners hold the lock at the same time."""
    rules = ("_grant_landing", "grant", "granted", "check_stored", "belief", "renewal", "request")
    with ExitStack() as silence:
        for rule in rules:
            silence.enter_context(patch.object(explore_checks, rule))
        silence.enter_context(patch.object(explore_checks, "deadline_ms", return_value=10**9))
        yield


@pytest.mark.parametrize("name", ["contender without drift", "holder with drift"])
def test_two_holders_are_detected_without_any_other_check(name: str) -> None:
    with only_exclusion():
        assert violation_of(name).rule == "exclusion"


def test_holdings_overlap_if_clocks_differ_by_more_than_the_drift() -> None:
    bounds = SCENARIOS["large skew"]
    assert not bounds.exclusive
    with only_exclusion(), patch.object(Bounds, "exclusive", new=True):
        found = search(bounds)
    assert found.violation is not None
    assert found.violation.rule == "exclusion"


def test_a_search_is_the_same_every_time() -> None:
    bounds = replace(SCENARIOS["two faults"], faults=1)
    first, second = search(bounds), search(bounds)
    assert (first.states, first.fired) == (second.states, second.fired)
    assert violation_of("release overwrites") == violation_of("release overwrites")


def test_a_counterexample_is_replayed_by_its_path() -> None:
    mutant = MUTANTS["range offered at once"]
    violation = violation_of("range offered at once")
    with mutant.plant():
        *steps, end = replay(mutant.bounds, list(violation.path))
    assert tuple(steps) == violation.lines[: len(steps)]
    assert violation.description in end
    *_, last = replay(mutant.bounds, list(violation.path[:5]))
    assert last == "no violation on this path"


def test_the_command_prints_the_path_to_a_violation_and_how_to_replay_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--scene", "operator", "--mutant", "range unconfirmed"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert "VIOLATED L1" in printed[0]
    assert any("operator: deletes the lock object" in line for line in printed)
    again = shlex.split(printed[-1].partition("explore ")[2])
    assert main(again) == 0
    assert "L1: token 1 was granted out of order" in capsys.readouterr().out.splitlines()[-1]


def test_the_command_limits_a_search_and_reports_that_it_was_not_complete(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent = ["--clients", "3", "--operations", "1", "--faults", "0", "--states", "2000"]
    assert main(sent) == 0
    assert "not complete, 0 violations" in capsys.readouterr().out
