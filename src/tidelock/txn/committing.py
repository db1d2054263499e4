"""Committing a write: judged against every commit since it began, then appended (C47-C53)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from tidelock.store.contract import ObjectMeta
from tidelock.table.markers import marker_folder, parse_marker
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Instant
from tidelock.table.timeline.metadata import CommitMetadata, TimelineRecord
from tidelock.txn.appending import Appended, Declined, Doubtful, No, append
from tidelock.txn.conflict import judge
from tidelock.txn.content import INLINE_BYTES_MAX, Content, Inline
from tidelock.txn.draft import CommitDraft, Overtaken
from tidelock.txn.effects import Delete, List, Steps
from tidelock.txn.entry import Commit, Entry, Fact, Rollback
from tidelock.txn.fold import Fold, already_applied, lawful
from tidelock.txn.hudirules import hudi_refuses
from tidelock.txn.publishing import put_settled, stored_content
from tidelock.txn.reading import history
from tidelock.txn.rules import Candidate
from tidelock.txn.strategy import Strategy
from tidelock.txn.undoing import attempt_of
from tidelock.txn.verdict import Fine, Party, Rebase, Refuse, Repeated, Report, Yield
from tidelock.txn.view import View, past_of


@dataclass(slots=True)
class Judge:
    """Judges one commit against a ledger that grows, looking at each entry once."""

    candidate: Candidate
    base: int
    cleared: Collection[int] = frozenset()
    strategy: Strategy = Strategy.SOLVE
    judged: int = field(default=0)

    def __post_init__(self) -> None:
        """Begin after the position that the writer had read when it read the table."""
        self.judged = self.base

    def verdict(self, view: View) -> Overtaken | None:
        """Return what stands against the commit in `view`; None if nothing does."""
        entries = view.since(self.judged)
        if entries is None:
            return Overtaken(self._forgotten(), view.position, base_forgotten=True)
        return self.look_at(entries, view)

    def look_at(self, entries: Sequence[Entry], view: View) -> Overtaken | None:
        """Judge entries that were not looked at before."""
        # What Java, or this very call, made of the plan itself is no conflict: it is complete.
        mine = self.candidate.instant
        found_since = map(past_of, entries)
        past = [each for each in found_since if each is not None and each.instant != mine]
        found = judge(self.candidate, past, cleared=self.cleared)
        if self.strategy is not Strategy.SOLVE:
            refused = hudi_refuses(self.candidate, past, view.fold.plans, self.strategy)
            found = refused or found
        if not isinstance(found, Fine):
            return Overtaken(found, view.position, str(found.report))
        self.judged = view.position
        return None

    def _forgotten(self) -> Rebase:
        cause = "more was committed since it began than is remembered"
        return Rebase(self.report(cause), self.candidate.footprint.written, rerun=True)

    def report(self, cause: str, others: tuple[Party, ...] = ()) -> Report:
        """Return a report that names only this commit."""
        mine = Party(self.candidate.instant, self.candidate.footprint.deed, self.candidate.owner)
        return Report(mine, others, cause=cause, advice="start over on the table as it is now")


def commit(
    view: View, judge_: Judge, fact: Commit, *, owner: str, crowded: bool = False
) -> Steps[Appended | Declined[Overtaken] | Doubtful]:
    """Append the commit, or say what came between; `crowded` if others commit all the time."""
    # A long write may reach back further than the entries that are kept in memory.
    entries = yield from history(view, judge_.judged)
    if entries is not None and (overtaken := judge_.look_at(entries, view)) is not None:
        return Declined(view, overtaken)

    def propose(seen: View) -> Fact | No[Overtaken]:
        problem = lawful(fact, seen.fold, owner=owner)
        if problem is not None:
            return No(_unlawful(judge_, fact, seen, problem))
        overtaken = judge_.verdict(seen)
        return No(overtaken) if overtaken is not None else _with_last_mark(fact, seen.fold)

    return (yield from append(view, propose, owner=owner, crowded=crowded))


def _with_last_mark(fact: Commit, fold: Fold) -> Commit:
    """Return the commit of a batch with the mark that it follows, for whoever undoes it (C82)."""
    if fact.mark is None:
        return fact
    name = fact.mark.application
    return replace(fact, follows={name: fold.marks.get(name)})


def _unlawful(judge_: Judge, fact: Commit, view: View, problem: str) -> Overtaken:
    by = tuple(
        Party(entry.fact.instant, fact.footprint.deed, entry.owner, entry.position, entry.time)
        for entry in view.tail
        if isinstance(entry.fact, Rollback) and entry.fact.instant == fact.instant
    )
    report = judge_.report(problem, by)
    if fact.instant in view.fold.plans:
        return Overtaken(Yield(report), view.position, problem)
    if fact.instant in view.fold.committed:
        return Overtaken(Refuse(report), view.position, problem)
    applied = already_applied(fact.mark, view.fold)
    if applied is not None and fact.instant not in view.fold.void:
        return Overtaken(Repeated(report, applied), view.position, problem)
    groups = judge_.candidate.footprint.written
    return Overtaken(Rebase(report, groups), view.position, problem)


def store_content(instant: str, metadata: TimelineRecord) -> Steps[Content]:
    """Return the bytes of the completed instant, in the entry or stored beside it."""
    body = encode(metadata)
    if len(body) <= INLINE_BYTES_MAX:
        return Inline(body)
    stored = stored_content(instant, body)
    yield from put_settled(stored.key, body)
    return stored


def remove_strays(
    instant: Instant, metadata: TimelineRecord, *, attempt: int | None = None
) -> Steps[tuple[str, ...]]:
    """Delete data files that have a marker but no place in the metadata; return the markers.

    They are left by tasks that were tried twice. After the commit they would be read. With
    `attempt`, at a plan, those of later attempts stay: they are of whoever took the plan over.
    """
    folder = marker_folder(instant.requested)
    listed: tuple[ObjectMeta, ...] = yield List(folder)
    if attempt is not None:
        listed = tuple(meta for meta in listed if (attempt_of(meta.key) or 0) <= attempt)
    named = metadata.paths if isinstance(metadata, CommitMetadata) else frozenset()
    for meta in listed:
        marker = parse_marker(meta.key.removeprefix(folder))
        if marker is not None and marker.data_key not in named:
            yield Delete(marker.data_key)
    return tuple(meta.key for meta in listed)


def candidate_of(
    instant: str, draft: CommitDraft, *, base_schema: str, owner: str, claimed: int = 0
) -> Candidate:
    """Return a draft as the conflict rules see it; `claimed` is where its plan was claimed."""
    return Candidate(
        instant,
        draft.footprint(),
        draft.schema_id,
        base_schema,
        owner,
        draft.reliance,
        draft.schema_base,
        claimed,
    )
