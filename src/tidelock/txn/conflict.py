"""Which commits get in each other's way, and what follows. Pure.

One principle: two transactions commute if neither determines what the other determines or depends
on. Of two that do not, the later one in the ledger must have read the earlier one's result and have
the later request time, because Hudi's readers order versions by request time. What was committed
since a transaction read the table it has not read, so every overlap with such a commit is a
conflict, but for the exceptions that `tidelock.txn.matrix` lists with their proofs.

Each rule is about one effect, and holds for every pair of operations that can have it
(`tidelock.txn.footprint.EFFECTS`): no pair is written down, so none is forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from tidelock.txn import rules as r
from tidelock.txn.footprint import SERVICES, WRITERS, Deed, Effect, having
from tidelock.txn.rules import Candidate, Finding, Past
from tidelock.txn.verdict import (
    CheckKeys,
    Fine,
    KeyCheck,
    Party,
    Rebase,
    Refuse,
    ReplanReplaced,
    Report,
    Verdict,
    Yield,
)


class Then(Enum):
    """What follows when a rule finds something."""

    REBASE = "rebase"
    RERUN = "run again"
    REPLAN = "replan"
    YIELD = "yield"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Rule:
    """An overlap to look for, what follows from it, and a word for the matrix.

    `mine` are the operations for which it is looked for when they commit, `other` those that may
    have caused it.
    """

    check: r.Check
    then: Then
    word: str
    mine: frozenset[Deed]
    other: frozenset[Deed]

    @property
    def sentence(self) -> str:
        """What the rule looks for."""
        return (self.check.__doc__ or "").partition("\n")[0]


_CHANGING: Final = having(WRITERS, Effect.BASE, Effect.LOG)
_RESTORE: Final = frozenset({Deed.RESTORE})
_COMPACTION: Final = frozenset({Deed.COMPACTION})
_LOG_COMPACTION: Final = frozenset({Deed.LOG_COMPACTION})
_CLUSTERING: Final = frozenset({Deed.CLUSTERING})
_CLEAN: Final = frozenset({Deed.CLEAN})
_SAVEPOINT: Final = frozenset({Deed.SAVEPOINT})
_ALL: Final = WRITERS | SERVICES

RULES: Final = (
    # A writer after a writer: one determines what the other determines or depends on.
    Rule(r.same_groups, Then.REBASE, "group", WRITERS, _CHANGING),
    Rule(r.gone_groups, Then.REBASE, "gone", _CHANGING, having(_ALL, Effect.REPLACE)),
    Rule(
        r.same_keys, Then.REBASE, "key", having(WRITERS, Effect.FIND), having(WRITERS, Effect.ADD)
    ),
    Rule(r.found_rows, Then.REBASE, "found", having(WRITERS, Effect.FIND), WRITERS),
    Rule(
        r.unplanned_groups,
        Then.REPLAN,
        "replan",
        having(WRITERS, Effect.PARTITION),
        WRITERS | _CLUSTERING,
    ),
    Rule(r.anything_read, Then.RERUN, "read", having(WRITERS, Effect.READ), WRITERS),
    Rule(
        r.other_schema,
        Then.REBASE,
        "schema",
        having(WRITERS, Effect.SCHEMA),
        having(_ALL, Effect.SCHEMA),
    ),
    # A writer after a service that kept every row: only the order of request times matters.
    Rule(r.newer_base, Then.REBASE, "base", having(WRITERS, Effect.BASE), _COMPACTION),
    Rule(r.newer_log, Then.REBASE, "log", _CHANGING, _LOG_COMPACTION),
    # A service gives way to whoever changed what it started from.
    Rule(r.planned_bases, Then.YIELD, "yield-base", _COMPACTION, WRITERS),
    Rule(r.planned_logs, Then.YIELD, "yield-log", _LOG_COMPACTION, WRITERS),
    Rule(r.planned_groups, Then.YIELD, "yield", _CLUSTERING, WRITERS),
    Rule(r.planned_groups, Then.YIELD, "yield", SERVICES, SERVICES),
    Rule(
        r.service_schema,
        Then.YIELD,
        "yield-schema",
        having(SERVICES, Effect.SCHEMA),
        having(WRITERS, Effect.SCHEMA),
    ),
    # Taking back what was complete, and keeping it. A restore is judged when it is decided: from
    # then on nothing of ours completes before it (C87), and what a writer without a ledger
    # completed must not keep it from coming to its end. A savepoint may name files that a clean
    # deleted.
    Rule(r.always, Then.RERUN, "restored", WRITERS, _RESTORE),
    Rule(r.taken_back, Then.YIELD, "give-way", SERVICES, _RESTORE),
    Rule(r.always, Then.REFUSE, "refused", _SAVEPOINT, _CLEAN | _RESTORE),
)
"""Every rule, for the operations that can have the effects it is about."""

_UNKNOWN_EXTENT: Final = {
    **{deed: Rule(r.always, Then.RERUN, "restored", WRITERS, _ALL) for deed in WRITERS},
    **{deed: Rule(r.unknown_extent, Then.YIELD, "give-way", SERVICES, _ALL) for deed in SERVICES},
    Deed.SAVEPOINT: Rule(r.always, Then.REFUSE, "refused", _SAVEPOINT, _ALL),
}
"""What follows from a commit that may have changed anything."""

MATRIX: Final = {
    (mine, other): tuple(rule for rule in RULES if mine in rule.mine and other in rule.other)
    for mine in Deed
    for other in Deed
}
"""The rules of each pair: (the operation that commits, the one that was committed)."""


def rules_for(mine: Deed, other: Deed) -> tuple[Rule, ...]:
    """Return the rules for committing `mine` after `other`."""
    return MATRIX[mine, other]


def judge(
    mine: Candidate, past: Iterable[Past], *, cleared: Collection[int] = frozenset()
) -> Verdict:
    """Say whether `mine` may come after all of `past`, and if not, what to do.

    `cleared` are positions whose new keys the writer has compared with its own. The hardest
    finding wins: refuse, yield, rebase, compare keys, replan.
    """
    found: list[tuple[Rule, Past, Finding]] = []
    others = tuple(past)
    for number, other in enumerate(others):
        rules = rules_for(mine.footprint.deed, other.footprint.deed)
        if rules and other.footprint.everything:
            rules = (_UNKNOWN_EXTENT.get(mine.footprint.deed, *rules[:1]),)
        for rule in rules:
            finding = rule.check(mine, other)
            if rule.then is Then.REPLAN and finding is not None:
                finding = _still_there(finding, others[number + 1 :])
            if finding is None or (finding.checks and other.position in cleared):
                continue
            found.append((rule, other, finding))
    return _hardest(mine, found) if found else Fine()


def _still_there(finding: Finding, later: Iterable[Past]) -> Finding | None:
    """Return what an overwrite has to list, without what came and was replaced again since.

    Listed, it would be replaced twice; not listed, it would be missing: there is nothing to do.
    """
    gone = frozenset().union(*(other.footprint.replaced for other in later))
    kept = replace(finding, groups=finding.groups - gone)
    return kept if kept.groups or kept.drop else None


_HARDEST_FIRST: Final = (Then.REFUSE, Then.YIELD, Then.RERUN, Then.REBASE, Then.REPLAN)


def _hardest(mine: Candidate, found: list[tuple[Rule, Past, Finding]]) -> Verdict:
    checks = [(past, finding) for _, past, finding in found if finding.checks]
    for then in _HARDEST_FIRST:
        same = [
            (past, finding)
            for rule, past, finding in found
            if rule.then is then and not finding.checks
        ]
        if then is Then.REPLAN and checks:
            listed = tuple(check for _, finding in checks for check in finding.checks)
            return CheckKeys(report_of(mine, checks, ""), listed)
        if same:
            return _verdict(mine, then, same)
    listed = tuple(check for _, finding in checks for check in finding.checks)
    return CheckKeys(report_of(mine, checks, ""), listed)


def _verdict(mine: Candidate, then: Then, same: list[tuple[Past, Finding]]) -> Verdict:
    groups = frozenset().union(*(finding.groups for _, finding in same))
    drop = frozenset().union(*(finding.drop for _, finding in same))
    report = report_of(mine, same, _ADVICE[then])
    match then:
        case Then.REFUSE:
            return Refuse(report)
        case Then.YIELD:
            return Yield(report, groups)
        case Then.RERUN:
            return Rebase(report, groups, rerun=True)
        case Then.REBASE:
            return Rebase(report, groups)
        case Then.REPLAN:
            return ReplanReplaced(report, groups - drop, drop)


_ADVICE: Final = {
    Then.REFUSE: "wait until the other is done, then start again",
    Then.YIELD: "plan the service again",
    Then.RERUN: "run the statement again on the table as it is now",
    Then.REBASE: "write again on top of the other commit",
    Then.REPLAN: "list the replaced file groups again",
}


def report_of(mine: Candidate, found: list[tuple[Past, Finding]], advice: str) -> Report:
    """Return who met whom, and where."""
    met = {past.position: past for past, _ in found}
    return Report(
        mine=Party(mine.instant, mine.footprint.deed, mine.owner),
        others=tuple(
            Party(p.instant, p.footprint.deed, p.owner, p.position, p.completion)
            for _, p in sorted(met.items())
        ),
        groups=frozenset().union(*(finding.groups for _, finding in found)),
        cause="; ".join(dict.fromkeys(finding.cause for _, finding in found)),
        advice=advice,
    )


__all__ = [
    "MATRIX",
    "RULES",
    "Candidate",
    "CheckKeys",
    "Fine",
    "KeyCheck",
    "Past",
    "Rebase",
    "Refuse",
    "ReplanReplaced",
    "Verdict",
    "Yield",
    "judge",
    "rules_for",
]
