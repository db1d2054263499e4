"""Conflict rules: which concurrent commits conflict, and how conflicts are resolved. Pure.

Two transactions commute if neither determines what the other determines or depends on. Of two that
do not, the later one in the ledger must have read the result of the earlier one and have the later
request time, because Hudi's readers order versions by request time. A transaction has not read what
was committed after it read the table, so every overlap with such a commit is a conflict, except in
the cases that `scripts.generate_docs` lists with their proofs.

A rule covers one effect and applies to every pair of operations that can have it
(`tidelock.txn.footprint.EFFECTS`). Pairs are derived, not listed, so none is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Final, TypeAlias

from tidelock.core.outcome import Unknown
from tidelock.hudi.file_groups import GroupId
from tidelock.hudi.timeline.instant import Action
from tidelock.txn.app_transactions import AppliedTransaction
from tidelock.txn.footprint import (
    NO_DEPENDENCIES,
    NO_GROUPS,
    SERVICES,
    WRITERS,
    CommitKind,
    Effect,
    Footprint,
    ReadDependencies,
    bucket_of,
    kinds_with,
)
from tidelock.txn.state import CommittedTxn, PendingPlan


@dataclass(frozen=True, slots=True)
class ConflictingTxn:
    """A transaction in a conflict report."""

    instant: str
    commit_kind: CommitKind
    owner: str = ""
    position: int = 0
    completion: str = ""

    def __str__(self) -> str:
        return f"{self.commit_kind} {self.instant}"


@dataclass(frozen=True, slots=True)
class ConflictReport:
    """The conflicting transactions, their file groups, and how to resolve the conflict."""

    mine: ConflictingTxn
    others: tuple[ConflictingTxn, ...]
    groups: frozenset[GroupId] = NO_GROUPS
    cause: str = ""
    advice: str = ""

    @property
    def against(self) -> str:
        """The other transactions with their writers, the file groups, and the cause."""
        others = ", ".join(
            f"{other} by writer {other.owner}" if other.owner else str(other)
            for other in self.others
        )
        groups = sorted("/".join(filter(None, group)) for group in self.groups)
        where = f" in file group {', '.join(groups[:5])}" if groups else ""
        more = f" and {len(groups) - 5} more file groups" if len(groups) > 5 else ""
        text = f"{others or 'another commit'}{where}{more}"
        return f"{text}: {self.cause}" if self.cause else text

    def __str__(self) -> str:
        return f"{self.mine} conflicts with {self.against}"


@dataclass(frozen=True, slots=True)
class NoConflict:
    """There is no conflict with the commits since the transaction began."""


@dataclass(frozen=True, slots=True)
class Rebase:
    """Write these file groups again on top of the current table, under a later instant.

    With `rerun` the rows depend on what was read, so the statement has to run again.
    """

    report: ConflictReport
    groups: frozenset[GroupId] = NO_GROUPS
    rerun: bool = False


@dataclass(frozen=True, slots=True)
class ReplanReplaced:
    """The data files stay; only the list of replaced file groups is computed again."""

    report: ConflictReport
    add: frozenset[GroupId] = NO_GROUPS
    drop: frozenset[GroupId] = NO_GROUPS


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """New keys of the commit at `position` in one partition, to compare with one's own keys.

    `keys` is None if the ledger does not list them; then they are in `files`. With `groups`, all
    rows of the write are compared, not only new ones, or looked up in these file groups if the
    other commit listed no keys. With `log_order`, the other's log files in these groups, requested
    at `instant`, are compared with one's own: readers apply log files by request time, which
    matters if neither ordering value is greater, and a row after a delete may be older than the row
    it deleted.
    """

    position: int
    partition: str
    keys: frozenset[str] | None = None
    files: tuple[str, ...] = ()
    groups: frozenset[GroupId] = NO_GROUPS
    instant: str = ""
    log_order: bool = False


@dataclass(frozen=True, slots=True)
class CheckKeys:
    """Both inserted into one partition; the ledger does not show whether the keys are the same.

    Compare the keys. If none is the same, commit again with these positions as `cleared`.
    """

    report: ConflictReport
    checks: tuple[KeyCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class Preempted:
    """A table service conflicts with a writer: it is rolled back and planned again."""

    report: ConflictReport
    groups: frozenset[GroupId] = NO_GROUPS


@dataclass(frozen=True, slots=True)
class Abort:
    """The commit cannot be completed safely."""

    report: ConflictReport


@dataclass(frozen=True, slots=True)
class Repeated:
    """The batch of this write was already applied; there is nothing left to do."""

    report: ConflictReport
    applied: AppliedTransaction


Verdict: TypeAlias = NoConflict | Rebase | ReplanReplaced | CheckKeys | Preempted | Abort
"""The result of a conflict check."""


@dataclass(frozen=True, slots=True)
class PendingTxn:
    """The transaction to check.

    `base_schema` is the table's schema when it began. A table service reads the schema after its
    plan was made, at ledger position `schema_base`, and everything else after `claimed`, the
    position of its claim.
    """

    instant: str
    footprint: Footprint
    schema_id: str = ""
    base_schema: str = ""
    owner: str = ""
    dependencies: ReadDependencies = NO_DEPENDENCIES
    schema_base: int = 0
    claimed: int = 0

    @property
    def as_conflicting(self) -> ConflictingTxn:
        return ConflictingTxn(self.instant, self.footprint.commit_kind, self.owner)


@dataclass(frozen=True, slots=True)
class Overlap:
    """The finding of one rule. Which fields are set depends on the rule's resolution."""

    cause: str
    groups: frozenset[GroupId] = NO_GROUPS
    drop: frozenset[GroupId] = NO_GROUPS
    checks: tuple[KeyCheck, ...] = ()


Check: TypeAlias = Callable[[PendingTxn, CommittedTxn], Overlap | None]


def same_groups(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """Both wrote one file group or bucket, or one that this write treated as absent."""
    ours, theirs, relied = mine.footprint, other.footprint, mine.dependencies
    there = theirs.written
    if ours.bucketed:
        slots = {bucket_of(group) for group in there}
        overlap = {group for group in (*ours.written, *relied.absent) if bucket_of(group) in slots}
        if relied.anywhere:
            overlap |= {group for group in there if group[0] not in relied.searched}
        if relied.empty:
            overlap |= {group for group in there if group[0] in relied.empty}
    else:
        overlap = set(ours.written & there)
    # The rows that decided what was left out were read, even if the other wrote without reading.
    unread = {
        group for group in _unread_logs(ours, theirs) & overlap if group[0] not in relied.rows
    }
    if overlap - unread:
        return Overlap("both changed these file groups", frozenset(overlap - unread))
    if unread and (mine.instant < other.instant or theirs.deletes):
        # Readers order the log files of a slice by request time, so the other's are applied later.
        # A row after a delete must be newer than the deleted row, which this write did not read.
        check = KeyCheck(
            other.position, "", groups=frozenset(unread), instant=other.instant, log_order=True
        )
        return Overlap("both appended to these file groups", checks=(check,))
    return None


def _unread_logs(ours: Footprint, theirs: Footprint) -> frozenset[GroupId]:
    """Return the groups to which both only appended log files, ours without reading the group.

    Excludes buckets for which the other commit created another file group.
    """
    if not ours.nonblocking:
        return NO_GROUPS
    both = ours.appended & theirs.appended
    others = {bucket_of(group) for group in theirs.written - both}
    return frozenset(group for group in both if bucket_of(group) not in others)


def replaced_groups(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """A file group that this write changed was replaced."""
    overlap = mine.footprint.written & other.footprint.replaced
    return Overlap("these file groups were replaced", overlap) if overlap else None


def found_rows(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """Rows for which this write left out its own rows may have been deleted."""
    changed = other.footprint.touched | other.footprint.replaced
    overlap = frozenset(group for group in changed if group[0] in mine.dependencies.rows)
    return Overlap("matching rows may have been deleted", overlap) if overlap else None


def same_keys(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """Both may have inserted one key, or this write changed a key that the other inserted."""
    if mine.footprint.bucketed:
        return None  # a key has one bucket, so its file group decides
    partitions = mine.footprint.inserts.keys() & other.footprint.inserts.keys()
    checks: list[KeyCheck] = []
    for partition in sorted(partitions):
        ours, theirs = mine.footprint.inserts[partition], other.footprint.inserts[partition]
        if ours.keys is not None and theirs.keys is not None:
            if both := ours.keys & theirs.keys:
                some = ", ".join(sorted(both)[:3])
                groups = {group for group in mine.footprint.written if group[0] == partition}
                return Overlap(f"both inserted {some}", frozenset(groups))
        elif ours.keys != frozenset() and theirs.keys != frozenset():
            checks.append(KeyCheck(other.position, partition, theirs.keys, theirs.files))
    checks += _copies(mine, other)
    return Overlap("both inserted rows", checks=tuple(checks)) if checks else None


def _copies(mine: PendingTxn, other: CommittedTxn) -> list[KeyCheck]:
    """Return where the other may have inserted keys that this write changed elsewhere.

    A plain insert may repeat an existing key. A key deleted by a log file is still found in its
    base file, and the other may have inserted it as new, because it looked up live keys or read the
    base file of a compaction. Keys to delete in all partitions may be in a partition that was not
    searched.
    """
    relied = mine.dependencies
    changed = {partition for partition, _ in mine.footprint.touched}
    logged = {partition for partition, _ in mine.footprint.touched & mine.footprint.appended}
    found: list[KeyCheck] = []
    for partition in sorted(other.footprint.inserts):
        repeated = other.footprint.commit_kind in _REPEATING and partition in changed
        unseen = relied.anywhere and partition not in relied.searched
        new = other.footprint.inserts[partition].keys
        revived = partition in logged and new != frozenset()
        if not (repeated or unseen or revived):
            continue
        there = other.footprint.written if repeated or unseen else other.footprint.based
        groups = frozenset(group for group in there if group[0] == partition)
        # A plain insert does not look up keys, so the listed keys need not be complete.
        named = None if repeated else new
        found.append(KeyCheck(other.position, partition, named, groups=groups))
    return found


_REPEATING: Final = frozenset({CommitKind.INSERT, CommitKind.BULK_INSERT})


def newer_base(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """A compaction with a later request time hides the base file of this write."""
    if other.instant < mine.instant:
        return None
    overlap = mine.footprint.based & other.footprint.written
    return Overlap("a later compaction does not contain this write", overlap) if overlap else None


def newer_log(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """A log compaction is applied after this write's log files, with older values."""
    shared = mine.footprint.written & other.footprint.written
    if other.instant < mine.instant:
        # Its block lies before our log file. A base file of ours may still not be merged with it.
        shared &= mine.footprint.based if other.completion > mine.instant else NO_GROUPS
    return Overlap("a log compaction would hide this write", shared) if shared else None


def unplanned_groups(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """An overwrite does not list file groups that are in its partitions now."""
    footprint = mine.footprint
    present = {g for g in other.footprint.written if footprint.overwrites(g[0])}
    missing = present - footprint.replaced - footprint.created
    twice = footprint.replaced & other.footprint.replaced
    if not missing and not twice:
        return None
    return Overlap("file groups were added or removed", frozenset(missing), frozenset(twice))


def anything_read(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """Rows that this statement read may have changed."""
    footprint = other.footprint
    changed = footprint.written | footprint.replaced
    if not changed and footprint.intents == frozenset():
        return None
    return Overlap("the rows it read may have changed", changed & mine.footprint.written)


def planned_groups(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """A writer changed file groups that this service was rewriting."""
    sources = mine.footprint.touched | mine.footprint.replaced
    overlap = sources & (other.footprint.written | other.footprint.replaced)
    return Overlap("a writer changed these file groups", overlap) if overlap else None


def planned_bases(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """The base files that a compaction started from are no longer the newest.

    Log files written after its plan are applied on top of its result and do not matter.
    """
    theirs = other.footprint.based | other.footprint.replaced
    overlap = mine.footprint.touched & theirs
    return Overlap("the base files changed", overlap) if overlap else None


def planned_logs(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """A log compaction would be applied after log files that it does not contain."""
    theirs = other.footprint.based | other.footprint.replaced
    if other.instant < mine.instant:
        theirs |= other.footprint.appended
    overlap = mine.footprint.touched & theirs
    return Overlap("log files were added in between", overlap) if overlap else None


def always(_mine: PendingTxn, _other: CommittedTxn) -> Overlap | None:
    """The two operations always conflict."""
    return Overlap("the two operations exclude each other")


def rolled_back_commits(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """Commits were rolled back while this service was running.

    A plan that was not rolled back with them does not read them, but its executor may have read
    their schema.
    """
    return None if other.position <= mine.claimed else always(mine, other)


def unknown_extent(mine: PendingTxn, _other: CommittedTxn) -> Overlap | None:
    """The extent of the other commit is not known, so any input of this service may be deleted."""
    return Overlap(
        "the files that it changed are not known", mine.footprint.touched | mine.footprint.replaced
    )


def other_schema(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """Readers would not use this write's schema for the table, or it lacks the other's columns.

    The table's schema is that of the commit with the greatest request time, including services.
    """
    # With an earlier request time, a schema that this write has read does not matter.
    known = other.schema_id == mine.base_schema or other.footprint.commit_kind in SERVICES
    if not _schemas_differ(mine, other) or (other.instant < mine.instant and known):
        return None
    return Overlap("the schema changed", mine.footprint.written)


def service_schema(mine: PendingTxn, other: CommittedTxn) -> Overlap | None:
    """This service would restore a schema older than the other's."""
    read = other.position <= mine.schema_base or mine.instant < other.instant
    return Overlap("the schema changed") if _schemas_differ(mine, other) and not read else None


def _schemas_differ(mine: PendingTxn, other: CommittedTxn) -> bool:
    return bool(other.schema_id and mine.schema_id and other.schema_id != mine.schema_id)


class Resolution(Enum):
    """How a conflict is resolved."""

    REBASE = "rebase"
    RERUN = "run again"
    REPLAN = "replan"
    PREEMPT = "preempt"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Rule:
    """A check for one kind of overlap, its resolution, and its word in the matrix.

    `mine` are the operations checked when they commit, `other` those that may have caused the
    overlap.
    """

    check: Check
    then: Resolution
    word: str
    mine: frozenset[CommitKind]
    other: frozenset[CommitKind]

    @property
    def sentence(self) -> str:
        """The first line of the check's description."""
        return (self.check.__doc__ or "").partition("\n")[0]


_CHANGING: Final = kinds_with(WRITERS, Effect.BASE, Effect.LOG)
_FINDING: Final = kinds_with(WRITERS, Effect.FIND)
_REPLACING: Final = kinds_with(WRITERS, Effect.PARTITION)
_EVOLVING: Final = kinds_with(WRITERS, Effect.SCHEMA)
_WITH_SCHEMA: Final = kinds_with(SERVICES, Effect.SCHEMA)
_RESTORE: Final = frozenset({CommitKind.RESTORE})
_COMPACTION: Final = frozenset({CommitKind.COMPACTION})
_LOG_COMPACTION: Final = frozenset({CommitKind.LOG_COMPACTION})
_CLUSTERING: Final = frozenset({CommitKind.CLUSTERING})
_CLEAN: Final = frozenset({CommitKind.CLEAN})
_SAVEPOINT: Final = frozenset({CommitKind.SAVEPOINT})
_ALL: Final = WRITERS | SERVICES

RULES: Final = (
    # A writer after a writer: one determines what the other determines or depends on.
    Rule(same_groups, Resolution.REBASE, "group", WRITERS, _CHANGING),
    Rule(replaced_groups, Resolution.REBASE, "gone", _CHANGING, kinds_with(_ALL, Effect.REPLACE)),
    Rule(same_keys, Resolution.REBASE, "key", _FINDING, kinds_with(WRITERS, Effect.ADD)),
    Rule(found_rows, Resolution.REBASE, "found", _FINDING, WRITERS),
    Rule(unplanned_groups, Resolution.REPLAN, "replan", _REPLACING, WRITERS | _CLUSTERING),
    Rule(anything_read, Resolution.RERUN, "read", kinds_with(WRITERS, Effect.READ), WRITERS),
    Rule(other_schema, Resolution.REBASE, "schema", _EVOLVING, kinds_with(_ALL, Effect.SCHEMA)),
    # A writer after a service that kept all rows: only the order of request times matters.
    Rule(newer_base, Resolution.REBASE, "base", kinds_with(WRITERS, Effect.BASE), _COMPACTION),
    Rule(newer_log, Resolution.REBASE, "log", _CHANGING, _LOG_COMPACTION),
    # A service is preempted by a writer that changed its inputs.
    Rule(planned_bases, Resolution.PREEMPT, "preempt-base", _COMPACTION, WRITERS),
    Rule(planned_logs, Resolution.PREEMPT, "preempt-log", _LOG_COMPACTION, WRITERS),
    Rule(planned_groups, Resolution.PREEMPT, "preempt", _CLUSTERING, WRITERS),
    Rule(planned_groups, Resolution.PREEMPT, "preempt", SERVICES, SERVICES),
    Rule(service_schema, Resolution.PREEMPT, "preempt-schema", _WITH_SCHEMA, _EVOLVING),
    # Restores and savepoints. A restore is checked when it is decided: from then on no commit of
    # ours completes before it (C87), and commits of external writers must not block it. A savepoint
    # may name files that a clean has deleted.
    Rule(always, Resolution.RERUN, "restored", WRITERS, _RESTORE),
    Rule(rolled_back_commits, Resolution.PREEMPT, "preempt-restored", SERVICES, _RESTORE),
    Rule(always, Resolution.ABORT, "refused", _SAVEPOINT, _CLEAN | _RESTORE),
)
"""All rules, each for the operations that can have its effects."""

_UNKNOWN_EXTENT: Final = {
    **dict.fromkeys(WRITERS, Rule(always, Resolution.RERUN, "restored", WRITERS, _ALL)),
    **dict.fromkeys(
        SERVICES, Rule(unknown_extent, Resolution.PREEMPT, "preempt-restored", SERVICES, _ALL)
    ),
    CommitKind.SAVEPOINT: Rule(always, Resolution.ABORT, "refused", _SAVEPOINT, _ALL),
}
"""The rules for a commit of unknown extent."""

MATRIX: Final = {
    (mine, other): tuple(rule for rule in RULES if mine in rule.mine and other in rule.other)
    for mine in CommitKind
    for other in CommitKind
}
"""The rules of each pair: (the committing operation, the committed one)."""


def rules_for(mine: CommitKind, other: CommitKind) -> tuple[Rule, ...]:
    """Return the rules for committing `mine` after `other`."""
    return MATRIX[mine, other]


def check_conflicts(
    mine: PendingTxn, past: Iterable[CommittedTxn], *, cleared: Collection[int] = frozenset()
) -> Verdict:
    """Return whether `mine` can be committed after all of `past`, or how to resolve the conflict.

    `cleared` are positions whose new keys the writer has compared with its own. The strictest
    finding determines the result.
    """
    found: list[tuple[Rule, CommittedTxn, Overlap]] = []
    others = tuple(past)
    for number, other in enumerate(others):
        rules = rules_for(mine.footprint.commit_kind, other.footprint.commit_kind)
        if rules and other.footprint.everything:
            rules = (_UNKNOWN_EXTENT.get(mine.footprint.commit_kind, *rules[:1]),)
        for rule in rules:
            finding = rule.check(mine, other)
            if rule.then is Resolution.REPLAN and finding is not None:
                finding = _still_there(finding, others[number + 1 :])
            if finding is None or (finding.checks and other.position in cleared):
                continue
            found.append((rule, other, finding))
    return _strictest(mine, found) if found else NoConflict()


def _still_there(finding: Overlap, later: Iterable[CommittedTxn]) -> Overlap | None:
    """Return the groups an overwrite has to list, without those that were replaced again since.

    Listing such a group would replace it twice, so it is left out.
    """
    gone = frozenset().union(*(other.footprint.replaced for other in later))
    remaining = replace(finding, groups=finding.groups - gone)
    return remaining if remaining.groups or remaining.drop else None


_STRICTEST_FIRST: Final = (
    Resolution.ABORT,
    Resolution.PREEMPT,
    Resolution.RERUN,
    Resolution.REBASE,
    Resolution.REPLAN,
)


def _strictest(mine: PendingTxn, found: list[tuple[Rule, CommittedTxn, Overlap]]) -> Verdict:
    checks = [(past, finding) for _, past, finding in found if finding.checks]
    certain = [each for each in found if not each[2].checks]
    then = min((rule.then for rule, _, _ in certain), key=_STRICTEST_FIRST.index, default=None)
    if then is None or (then is Resolution.REPLAN and checks):
        listed = tuple(check for _, finding in checks for check in finding.checks)
        return CheckKeys(report_of(mine, checks, ""), listed)
    return _verdict(
        mine, then, [(past, finding) for rule, past, finding in certain if rule.then is then]
    )


def _verdict(
    mine: PendingTxn, then: Resolution, same: list[tuple[CommittedTxn, Overlap]]
) -> Verdict:
    groups = frozenset().union(*(finding.groups for _, finding in same))
    drop = frozenset().union(*(finding.drop for _, finding in same))
    report = report_of(mine, same, _ADVICE[then])
    match then:
        case Resolution.ABORT:
            return Abort(report)
        case Resolution.PREEMPT:
            return Preempted(report, groups)
        case Resolution.RERUN:
            return Rebase(report, groups, rerun=True)
        case Resolution.REBASE:
            return Rebase(report, groups)
        case Resolution.REPLAN:
            return ReplanReplaced(report, groups - drop, drop)


_ADVICE: Final = {
    Resolution.ABORT: "wait until the other commit is complete, then start again",
    Resolution.PREEMPT: "plan the service again",
    Resolution.RERUN: "run it again on the current table",
    Resolution.REBASE: "write again on top of the other commit",
    Resolution.REPLAN: "list the replaced file groups again",
}


def report_of(
    mine: PendingTxn, found: list[tuple[CommittedTxn, Overlap]], advice: str
) -> ConflictReport:
    """Return a report of the transactions and file groups in these findings."""
    commits = {past.position: past for past, _ in found}
    return ConflictReport(
        mine=mine.as_conflicting,
        others=tuple(
            ConflictingTxn(p.instant, p.footprint.commit_kind, p.owner, p.position, p.completion)
            for _, p in sorted(commits.items())
        ),
        groups=frozenset().union(*(finding.groups for _, finding in found)),
        cause="; ".join(dict.fromkeys(finding.cause for _, finding in found)),
        advice=advice,
    )


class ConflictStrategy(StrEnum):
    """How overlaps are handled: ours resolves them, Hudi's strategies abort the later writer."""

    SOLVE = "solve"
    SIMPLE = "SimpleConcurrentFileWritesConflictResolutionStrategy"
    BUCKET = "BucketIndexConcurrentFileWritesConflictResolutionStrategy"
    PREFER_WRITER = "PreferWriterConflictResolutionStrategy"


def hudi_conflict(
    mine: PendingTxn,
    past: Sequence[CommittedTxn],
    plans: Mapping[str, PendingPlan],
    strategy: ConflictStrategy,
) -> Abort | None:
    """Return the abort that Hudi's `strategy` requires, None if it allows the commit."""
    commit_kind = mine.footprint.commit_kind
    prefers_writer = strategy is ConflictStrategy.PREFER_WRITER
    if commit_kind is CommitKind.COMPACTION or (
        commit_kind is CommitKind.CLUSTERING and not prefers_writer
    ):
        return None
    found: list[tuple[CommittedTxn, Overlap]] = []
    ours = _mutated(mine.footprint, own=True)
    for other in past:
        overlap = _overlap(ours, _mutated(other.footprint), strategy)
        if overlap and not _resolved(mine, other):
            found.append((other, Overlap("overlapping writes", overlap)))
    for plan in () if commit_kind in SERVICES or prefers_writer else plans.values():
        overlap = _overlap(ours, plan.targets, strategy)
        if overlap and plan.action in (Action.CLUSTERING, Action.REPLACE_COMMIT):
            clustering = Footprint(CommitKind.CLUSTERING)
            pending = CommittedTxn(plan.position, plan.instant, "", clustering)
            found.append((pending, Overlap("a clustering is pending", overlap)))
    if not found:
        return None
    advice = "try again, or unset the strategy to have such overlaps resolved"
    return Abort(report_of(mine, found, advice))


def _mutated(footprint: Footprint, *, own: bool = False) -> frozenset[GroupId]:
    # Hudi does not count the replaced groups of a committing delete_partition.
    if own and footprint.commit_kind is CommitKind.DELETE_PARTITION:
        return footprint.written
    return footprint.written | footprint.replaced


def _overlap(
    ours: frozenset[GroupId], theirs: frozenset[GroupId], strategy: ConflictStrategy
) -> frozenset[GroupId]:
    if strategy is not ConflictStrategy.BUCKET:
        return ours & theirs
    buckets = {bucket_of(group) for group in theirs}
    return frozenset(group for group in ours if bucket_of(group) in buckets)


def _resolved(mine: PendingTxn, other: CommittedTxn) -> bool:
    """Return whether Hudi ignores the overlap, mostly for compactions planned earlier."""
    if other.footprint.commit_kind is CommitKind.COMPACTION:
        return other.instant < mine.instant or mine.footprint.commit_kind not in SERVICES
    return mine.footprint.commit_kind is CommitKind.LOG_COMPACTION


@dataclass(frozen=True, slots=True)
class Committed:
    """The write is durable: committed at `completion` as entry `position` of the ledger.

    `position` is 0 if a checkpoint replaced the entry before this process read it. `published` says
    whether the commit was on the timeline when the call returned. If not, the next process that
    reads the ledger publishes it.
    """

    instant: str
    completion: str
    position: int
    published: bool = True


@dataclass(frozen=True, slots=True)
class Conflicted:
    """The write conflicts with another commit. None of it is visible; `verdict` says how to
    proceed.

    `position` is the ledger position up to which commits were checked.
    """

    verdict: Rebase | ReplanReplaced | CheckKeys | Preempted | Abort | Repeated
    position: int
    reason: str = ""
    base_forgotten: bool = False


CommitResult: TypeAlias = Committed | Conflicted | Unknown
