"""The specification of the lock holds within its bounds, and each planted bug is found.

specs/README.md describes the scope of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testkit.tlc import Tlc, Verdict, run_tlc

FOLDER = Path(__file__).parents[2] / "specs" / "lock"


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


def test_every_client_is_served_after_lost_replies(tlc: Tlc) -> None:
    verdict = check(tlc, "liveness", FaultyWrites="1", Crashes="0", MaxTime="0")

    assert verdict.exhaustive, verdict.trace
    assert verdict.distinct >= 8_000


def test_clocks_beyond_the_bound_allow_two_holders(tlc: Tlc) -> None:
    # All other properties hold with these clocks: see the configuration `skew`.
    assert check(tlc, "main", workers=1, MaxWrites="2", Skew="4").violated == "BeliefExclusion"


def test_deleting_a_live_record_allows_two_holders(tlc: Tlc) -> None:
    # Their tokens are still ordered: see the configuration `operator`.
    assert check(tlc, "main", workers=1, MaxWrites="2", Deletes="1").violated == "BeliefExclusion"


@dataclass(frozen=True, slots=True)
class SpecBug:
    """A planted bug, the configuration that reaches it, and the property it violates."""

    name: str
    breaks: str
    config: str = "main"
    bounds: dict[str, str] = field(default_factory=dict)


# Without skew there is one wall clock value instead of two, so that longer traces are feasible.
EXACT = {"Skew": "0", "Drift": "0", "MaxCeiling": "6"}

BUGS = (
    SpecBug("ReadbackGrant", "BeliefExclusion", bounds={**EXACT, "MaxWrites": "2"}),
    SpecBug("ReceiveDeadline", "BeliefExclusion", bounds={**EXACT, "MaxWrites": "2"}),
    SpecBug("NoDrift", "NoGrantOverLive"),
    SpecBug("BareRelease", "OnlyOwnerExtends", bounds={"MaxWrites": "2"}),
    SpecBug("LateRenew", "RenewsOnlyWhileHeld"),
    SpecBug("Resurrect", "LostIsFinal", bounds={"MaxWrites": "2"}),
    SpecBug("TokenInRecord", "TokenOrder", "java", {**EXACT, "JavaWrites": "2"}),
    SpecBug("NoRecheck", "TokenOrder", "operator"),
    SpecBug("CeilingAtOnce", "TokenOrder", "operator"),
    SpecBug(
        "RefusedRenews",
        "BeliefExclusion",
        bounds={**EXACT, "Validity": "3", "MaxTime": "4", "MaxCeiling": "2", "Rounds": "1"},
    ),
    SpecBug("BareTakeover", "NoGrantOverLive"),
    SpecBug("SharedRange", "TokenOrder", "operator"),
    SpecBug("AnyToken", "FencedOrder", "skew"),
    SpecBug("RefusedIsMine", "NoFalseAnswer"),
    SpecBug("GuessReleased", "NoFalseAnswer", "operator"),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(tlc: Tlc, bug: SpecBug) -> None:
    verdict = check(tlc, bug.config, workers=1, Bugs=f'{{"{bug.name}"}}', **bug.bounds)

    assert verdict.violated == bug.breaks, verdict.trace


def test_confirming_every_range_can_starve_contenders(tlc: Tlc) -> None:
    verdict = check(tlc, "liveness", workers=1, MaxTime="0", MaxWrites="6", ConfirmAll="TRUE")

    assert verdict.violated == "Temporal properties"


def test_every_bug_of_the_specification_is_planted() -> None:
    text = (FOLDER / "Lock.tla").read_text()

    named = {part.split('"', 1)[0] for part in text.split('Bug("')[1:]}

    assert named == {bug.name for bug in BUGS}
