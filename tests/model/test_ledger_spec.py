"""The ledger's specification holds within its bounds, and each planted bug is found.

specs/README.md describes the scope of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testkit.tlc import Tlc, Verdict, run_tlc

FOLDER = Path(__file__).parents[2] / "specs" / "ledger"
TIMEOUT_S = 600


def check(tlc: Tlc, config: str, *, workers: int = 2, **constants: str) -> Verdict:
    return run_tlc(
        tlc,
        FOLDER / "Ledger.tla",
        FOLDER / f"{config}.cfg",
        constants=constants,
        workers=workers,
        timeout_s=TIMEOUT_S,
    )


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(
    ("config", "distinct_min"),
    [
        ("main", 70_000),
        ("apart", 40_000),
        ("rollback", 100_000),
        ("archive", 20_000),
        ("trim", 40_000),
        ("lock", 10_000),
        ("liveness", 8_000),
    ],
)
def test_every_property_holds_in_every_state_within_bounds(
    tlc: Tlc, config: str, distinct_min: int
) -> None:
    verdict = check(tlc, config)

    assert verdict.violated is None, verdict.trace
    assert verdict.exhaustive
    assert verdict.distinct >= distinct_min


@pytest.mark.timeout(TIMEOUT_S)
def test_two_executors_of_one_plan_commit_it_once(tlc: Tlc) -> None:
    verdict = check(
        tlc, "service", Scene='"executors"', Writers="{a, b}", MaxFaults="1", MaxEntries="5"
    )

    assert verdict.exhaustive, verdict.trace
    assert verdict.distinct >= 4_000


@pytest.mark.timeout(TIMEOUT_S)
def test_a_lock_alone_protects_only_if_its_lease_never_ends(tlc: Tlc) -> None:
    def unconditional(expires: str) -> Verdict:
        bugs, scene = '{"CheckWithoutCas"}', '"update"'
        return check(tlc, "lock", LockExpires=expires, Bugs=bugs, Scene=scene)

    assert unconditional("FALSE").exhaustive
    assert unconditional("TRUE").violated is not None


@dataclass(frozen=True, slots=True)
class SpecBug:
    """A planted bug, the configuration that reaches it, and the property it violates."""

    name: str
    breaks: str
    config: str = "main"
    bounds: dict[str, str] = field(default_factory=dict)


SWEEP = {"Scene": '"sweep"', "MaxFaults": "0"}

BUGS = (
    SpecBug("NoReadback", "FilesExist"),
    SpecBug("RefusedIsLanded", "Durable", bounds={"Clocks": "{0}"}),
    SpecBug("CheckWithoutCas", "Durable", bounds={"Clocks": "{0}"}),
    SpecBug("NoTailCheck", "NoLostUpdate", bounds={"Clocks": "{0}"}),
    SpecBug("NoKeyFilter", "NoLostUpdate", "apart", {"Scene": '"insert"', "Clocks": "{0}"}),
    SpecBug("TimeKept", "CompletionOrder", "apart", {"Clocks": "{0}"}),
    SpecBug("TimeFromTail", "CompletionOrder"),
    SpecBug("OutOfOrder", "PrefixVisible", "apart", {"Clocks": "{0}"}),
    SpecBug("PublishOwn", "PrefixVisible", "apart", {"Clocks": "{0}"}),
    SpecBug("NoHelping", "Temporal properties", "liveness"),
    SpecBug("ReuseInstant", "RequestOrder", bounds={"Clocks": "{0}"}),
    SpecBug("NoUniqueName", "UniqueInstants"),
    SpecBug("NoRecheck", "UniqueInstants", "archive"),
    SpecBug("RollbackWithoutEntry", "FilesExist", "rollback"),
    SpecBug("TokenIgnored", "TokenOrder", "lock"),
    SpecBug("NoBoundary", "Durable", "archive"),
    SpecBug("DeleteFirst", "WholeHistory", "archive"),
    SpecBug("NoPublishCheck", "NoneResurrected", "trim"),
    SpecBug("TrimPending", "OnlyCommittedShows", "trim"),
    SpecBug("ForgetCommits", "TrueViews", "archive"),
    SpecBug("ForgetRollbacks", "TrueViews", "archive", SWEEP),
    SpecBug("NoChain", "NoLostUpdate", "ghost"),
    SpecBug("NoConfirm", "TrueViews", "ghost", {"Scene": '"stray"'}),
    SpecBug(
        "ZombieAttempt", "FilesExist", "service", {"Scene": '"executors"', "Writers": "{a, b}"}
    ),
    SpecBug("PlanUnreserved", "UniqueInstants", "service"),
    SpecBug("PlanUnchecked", "RequestOrder", "service", {"Writers": "{a, c}"}),
)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(tlc: Tlc, bug: SpecBug) -> None:
    verdict = check(tlc, bug.config, workers=1, Bugs=f'{{"{bug.name}"}}', **bug.bounds)

    assert verdict.violated == bug.breaks, verdict.trace


def test_every_bug_of_the_specification_is_planted() -> None:
    text = (FOLDER / "Ledger.tla").read_text()

    named = {part.split('"', 1)[0] for part in text.split('Bug("')[1:]}

    assert named == {bug.name for bug in BUGS}
