"""Which pairs of operations get in each other's way, and what follows: one matrix. Pure.

A row is the operation that wants to commit, a column one that was committed since the row's writer
read the table. A cell names the rules that are looked at. The order of commits is the order of
the ledger, so a cell asks only: may this one come *after* that one?
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from tidelock.txn import rules as r
from tidelock.txn.footprint import Deed
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
    """An overlap to look for, what follows from it, and a word for the matrix."""

    check: r.Check
    then: Then
    word: str

    @property
    def sentence(self) -> str:
        """What the rule looks for."""
        return (self.check.__doc__ or "").partition("\n")[0]


SAME_GROUP: Final = Rule(r.same_groups, Then.REBASE, "group")
GONE_GROUP: Final = Rule(r.gone_groups, Then.REBASE, "gone")
SAME_BUCKET: Final = Rule(r.same_buckets, Then.REBASE, "bucket")
SAME_KEY: Final = Rule(r.same_keys, Then.REBASE, "key")
NEWER_BASE: Final = Rule(r.newer_base, Then.REBASE, "base")
NEWER_LOG: Final = Rule(r.newer_log, Then.REBASE, "log")
UNPLANNED: Final = Rule(r.unplanned_groups, Then.REPLAN, "replan")
READ: Final = Rule(r.anything_read, Then.RERUN, "read")
PLANNED: Final = Rule(r.planned_groups, Then.YIELD, "yield")
PLANNED_BASE: Final = Rule(r.planned_bases, Then.YIELD, "yield-base")
PLANNED_LOG: Final = Rule(r.planned_logs, Then.YIELD, "yield-log")
RESTORED: Final = Rule(r.always, Then.RERUN, "restored")
GIVE_WAY: Final = Rule(r.always, Then.YIELD, "give-way")
EXCLUDED: Final = Rule(r.always, Then.REFUSE, "refused")
SCHEMA: Final = Rule(r.other_schema, Then.REBASE, "schema")

RULES: Final = (
    SAME_GROUP,
    GONE_GROUP,
    SAME_BUCKET,
    SAME_KEY,
    NEWER_BASE,
    NEWER_LOG,
    UNPLANNED,
    READ,
    PLANNED,
    PLANNED_BASE,
    PLANNED_LOG,
    RESTORED,
    GIVE_WAY,
    EXCLUDED,
    SCHEMA,
)


class Family(Enum):
    """Operations that the rules do not tell apart."""

    KEYED = (Deed.UPSERT, Deed.DELETE)
    BLIND = (Deed.INSERT, Deed.BULK_INSERT)
    READING = (Deed.READ_WRITE,)
    OVERWRITING = (Deed.OVERWRITE, Deed.OVERWRITE_TABLE, Deed.DELETE_PARTITION)
    COMPACTION = (Deed.COMPACTION,)
    LOG_COMPACTION = (Deed.LOG_COMPACTION,)
    CLUSTERING = (Deed.CLUSTERING,)
    CLEAN = (Deed.CLEAN,)
    ROLLBACK = (Deed.ROLLBACK,)
    SAVEPOINT = (Deed.SAVEPOINT,)
    RESTORE = (Deed.RESTORE,)


FAMILY: Final = {deed: family for family in Family for deed in family.value}

WRITERS: Final = (Family.KEYED, Family.BLIND, Family.READING, Family.OVERWRITING)
SERVICES: Final = (Family.COMPACTION, Family.LOG_COMPACTION, Family.CLUSTERING)


def _matrix() -> dict[tuple[Family, Family], tuple[Rule, ...]]:
    k, b, q, o = WRITERS
    compaction, log_compaction, clustering = SERVICES
    pairs = [(mine, other) for mine in Family for other in Family]
    cells: dict[tuple[Family, Family], tuple[Rule, ...]] = dict.fromkeys(pairs, ())
    for mine in (k, b, q):
        keys = () if mine is b else (SAME_KEY,)
        for other in (k, b, q):
            cells[mine, other] = (SAME_GROUP, GONE_GROUP, SAME_BUCKET, *keys, SCHEMA)
        cells[mine, o] = (GONE_GROUP, SAME_BUCKET, *keys, SCHEMA)
        cells[mine, compaction] = (NEWER_BASE,)
        cells[mine, log_compaction] = (NEWER_LOG,)
        cells[mine, clustering] = (GONE_GROUP,)
    for other in WRITERS:
        cells[q, other] = (READ, *cells[q, other])
        # Who deletes a partition because it is old names its file groups as touched: they must not
        # have been written to. Other overwrites touch nothing, they take whatever is there.
        cells[o, other] = (UNPLANNED, SAME_GROUP, SCHEMA)
        cells[clustering, other] = (PLANNED,)
        cells[compaction, other] = (PLANNED_BASE,)
        cells[log_compaction, other] = (PLANNED_LOG,)
    cells[o, clustering] = (UNPLANNED,)
    cells[q, clustering] = (GONE_GROUP, UNPLANNED)
    for mine in SERVICES:
        for other in SERVICES:
            cells[mine, other] = (PLANNED,)
        cells[mine, Family.RESTORE] = (GIVE_WAY,)
    for mine in WRITERS:
        cells[mine, Family.RESTORE] = (RESTORED,)
    # A clean that was planned before a savepoint may be about to delete what it keeps, and a
    # savepoint may name files that a clean has deleted.
    for other in (Family.SAVEPOINT, Family.RESTORE):
        cells[Family.CLEAN, other] = (GIVE_WAY,)
    for other in (Family.CLEAN, Family.RESTORE):
        cells[Family.SAVEPOINT, other] = (EXCLUDED,)
    # A restore is judged when it is decided. From then on nothing of ours completes before it
    # (C87), and what a writer without a ledger completed must not keep it from coming to its end.
    return cells


MATRIX: Final = _matrix()
"""The rules of each cell: (the family that commits, the family that was committed)."""


def rules_for(mine: Deed, other: Deed) -> tuple[Rule, ...]:
    """Return the rules for committing `mine` after `other`."""
    return MATRIX[FAMILY[mine], FAMILY[other]]


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
            rules = (EXCLUDED if FAMILY[mine.footprint.deed] is Family.SAVEPOINT else RESTORED,)
            if FAMILY[mine.footprint.deed] in SERVICES:
                rules = (GIVE_WAY,)
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
