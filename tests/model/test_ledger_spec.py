"""The ledger's specification holds within its bounds, and each planted mistake is found.

What the model contains and what it leaves out: specs/README.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidelock.base.errors import MissingExtra
from tidelock.testing.tlc import Tlc, Verdict, find_tlc, run_tlc

FOLDER = Path(__file__).parents[2] / "specs" / "ledger"
TIMEOUT_S = 600


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
def test_a_lock_alone_protects_only_while_its_lease_never_ends(tlc: Tlc) -> None:
    def unconditional(expires: str) -> Verdict:
        bugs, scene = '{"CheckWithoutCas"}', '"update"'
        return check(tlc, "lock", LockExpires=expires, Bugs=bugs, Scene=scene)

    assert unconditional("FALSE").exhaustive
    assert unconditional("TRUE").violated is not None


@dataclass(frozen=True, slots=True)
class Mistake:
    """A planted mistake, the configuration that reaches it, and the property it breaks."""

    name: str
    breaks: str
    config: str = "main"
    bounds: dict[str, str] = field(default_factory=dict)


SWEEP = {"Scene": '"sweep"', "MaxFaults": "0"}

MISTAKES = (
    Mistake("NoReadback", "FilesExist"),
    Mistake("RefusedIsLanded", "Durable", bounds={"Clocks": "{0}"}),
    Mistake("CheckWithoutCas", "Durable", bounds={"Clocks": "{0}"}),
    Mistake("NoJudgedTail", "NoLostUpdate", bounds={"Clocks": "{0}"}),
    Mistake("NoKeyFilter", "NoLostUpdate", "apart", {"Scene": '"insert"', "Clocks": "{0}"}),
    Mistake("TimeKept", "CompletionOrder", "apart", {"Clocks": "{0}"}),
    Mistake("TimeFromTail", "CompletionOrder"),
    Mistake("OutOfOrder", "PrefixVisible", "apart", {"Clocks": "{0}"}),
    Mistake("PublishOwn", "PrefixVisible", "apart", {"Clocks": "{0}"}),
    Mistake("NoHelping", "Temporal properties", "liveness"),
    Mistake("ReuseInstant", "RequestOrder", bounds={"Clocks": "{0}"}),
    Mistake("NoUniqueName", "UniqueInstants"),
    Mistake("NoRecheck", "UniqueInstants", "archive"),
    Mistake("RollbackWithoutEntry", "FilesExist", "rollback"),
    Mistake("TokenIgnored", "TokenOrder", "lock"),
    Mistake("NoBoundary", "Durable", "archive"),
    Mistake("DeleteFirst", "WholeHistory", "archive"),
    Mistake("NoPublishCheck", "NoneResurrected", "trim"),
    Mistake("TrimPending", "OnlyCommittedShows", "trim"),
    Mistake("ForgetCommitted", "TrueViews", "archive"),
    Mistake("ForgetVoid", "TrueViews", "archive", SWEEP),
    Mistake("NoChain", "NoLostUpdate", "ghost"),
    Mistake("NoConfirm", "TrueViews", "ghost", {"Scene": '"stray"'}),
    Mistake(
        "ZombieAttempt", "FilesExist", "service", {"Scene": '"executors"', "Writers": "{a, b}"}
    ),
    Mistake("PlanUnreserved", "UniqueInstants", "service"),
    Mistake("PlanUnjudged", "RequestOrder", "service", {"Writers": "{a, c}"}),
)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_found(tlc: Tlc, mistake: Mistake) -> None:
    verdict = check(tlc, mistake.config, workers=1, Bugs=f'{{"{mistake.name}"}}', **mistake.bounds)

    assert verdict.violated == mistake.breaks, verdict.trace


def test_every_mistake_the_specification_knows_is_planted() -> None:
    text = (FOLDER / "Ledger.tla").read_text()

    named = {part.split('"', 1)[0] for part in text.split('Bug("')[1:]}

    assert named == {mistake.name for mistake in MISTAKES}
