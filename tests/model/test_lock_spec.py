"""The lock's specification holds within its bounds, and each planted mistake is found.

What the model contains and what it leaves out: specs/README.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidelock.base.errors import MissingExtra
from tidelock.testing.tlc import Tlc, Verdict, find_tlc, run_tlc

FOLDER = Path(__file__).parents[2] / "specs" / "lock"


@pytest.fixture(scope="module")
def tlc() -> Tlc:
    """Return the model checker; skip where there is none, and fail in continuous integration."""
    try:
        return find_tlc()
    except MissingExtra as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


def check(tlc: Tlc, config: str, *, workers: int = 2, **constants: str) -> Verdict:
    return run_tlc(
        tlc, FOLDER / "Lock.tla", FOLDER / f"{config}.cfg", constants=constants, workers=workers
    )


@pytest.mark.parametrize(
    ("config", "distinct_min"),
    [
        ("main", 100_000),
        ("java", 100_000),
        ("operator", 20_000),
        ("skew", 90_000),
        ("liveness", 20_000),
    ],
)
def test_every_property_holds_in_every_state_within_bounds(
    tlc: Tlc, config: str, distinct_min: int
) -> None:
    verdict = check(tlc, config)

    assert verdict.violated is None, verdict.trace
    assert verdict.exhaustive
    assert verdict.distinct >= distinct_min


def test_everybody_is_served_after_lost_replies(tlc: Tlc) -> None:
    verdict = check(tlc, "liveness", FaultyWrites="1", Crashes="0", MaxTime="0")

    assert verdict.exhaustive, verdict.trace
    assert verdict.distinct >= 8_000


def test_clocks_beyond_the_bound_let_two_clients_believe(tlc: Tlc) -> None:
    # The same clocks keep every other property: the configuration `skew` shows it.
    assert check(tlc, "main", workers=1, MaxWrites="2", Skew="4").violated == "BeliefExclusion"


def test_deleting_a_live_record_lets_two_clients_believe(tlc: Tlc) -> None:
    # The configuration `operator` shows that the tokens still order them.
    assert check(tlc, "main", workers=1, MaxWrites="2", Deletes="1").violated == "BeliefExclusion"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A planted mistake, the configuration that reaches it, and the property it breaks."""

    name: str
    breaks: str
    config: str = "main"
    bounds: dict[str, str] = field(default_factory=dict)


# Without skew there is one wall reading instead of two, which keeps the longer traces in reach.
EXACT = {"Skew": "0", "Drift": "0", "MaxCeiling": "6"}

MISTAKES = (
    Mistake("ReadbackGrant", "BeliefExclusion", bounds={**EXACT, "MaxWrites": "2"}),
    Mistake("ReceiveDeadline", "BeliefExclusion", bounds={**EXACT, "MaxWrites": "2"}),
    Mistake("NoDrift", "NoGrantOverLive"),
    Mistake("BareRelease", "OnlyOwnerExtends", bounds={"MaxWrites": "2"}),
    Mistake("LateRenew", "RenewsOnlyWhileHeld"),
    Mistake("Resurrect", "LostIsFinal", bounds={"MaxWrites": "2"}),
    Mistake("TokenInRecord", "TokenOrder", "java", {**EXACT, "JavaWrites": "2"}),
    Mistake("NoRecheck", "TokenOrder", "operator"),
    Mistake("CeilingAtOnce", "TokenOrder", "operator"),
    Mistake(
        "RefusedRenews",
        "BeliefExclusion",
        bounds={**EXACT, "Validity": "3", "MaxTime": "4", "MaxCeiling": "2", "Rounds": "1"},
    ),
    Mistake("BareTakeover", "NoGrantOverLive"),
    Mistake("SharedRange", "TokenOrder", "operator"),
    Mistake("AnyToken", "FencedOrder", "skew"),
    Mistake("RefusedIsMine", "NoFalseAnswer"),
    Mistake("GuessReleased", "NoFalseAnswer", "operator"),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_found(tlc: Tlc, mistake: Mistake) -> None:
    verdict = check(tlc, mistake.config, workers=1, Bugs=f'{{"{mistake.name}"}}', **mistake.bounds)

    assert verdict.violated == mistake.breaks, verdict.trace


def test_confirming_every_range_lets_takers_spend_all_their_writes_ungranted(tlc: Tlc) -> None:
    verdict = check(tlc, "liveness", workers=1, MaxTime="0", MaxWrites="6", ConfirmAll="TRUE")

    assert verdict.violated == "Temporal properties"


def test_every_mistake_the_specification_knows_is_planted() -> None:
    text = (FOLDER / "Lock.tla").read_text()

    named = {part.split('"', 1)[0] for part in text.split('Bug("')[1:]}

    assert named == {mistake.name for mistake in MISTAKES}
