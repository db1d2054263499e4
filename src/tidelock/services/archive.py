"""Archive: moves the oldest instants from the active timeline to the archived timeline.

  1. Append the instants to the archived timeline, which readers use for instants that are not on
     the active timeline.
  2. Delete files of aborted writes and dead attempts, including files that were written late.
  3. Move the ledger's boundary: nothing requested before it can begin or complete any more.
  4. If no pending instant is older, delete the timeline files of the instants, oldest first and of
     each the completed file last; then ledger entries and stored contents.

After a crash, instants may be on both timelines, which readers tolerate; the next run continues.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelock.core.errors import ConfigInvalid, Conflict, OutcomeUnknown
from tidelock.hudi.file_groups import data_file, parse_token
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.active import ActiveTimeline, load_timeline
from tidelock.hudi.timeline.history import Archive, ArchivedInstant
from tidelock.hudi.timeline.instant import Action, Instant, InstantState, format_time
from tidelock.hudi.timeline.metadata import OperationType, RollbackMetadata
from tidelock.operations.read import snapshot_now
from tidelock.operations.write import TableWriter
from tidelock.txn.entries import LEDGER_FOLDER, Boundary, Fact, entry_key, position_of
from tidelock.txn.heartbeats import HEARTBEAT_FOLDER
from tidelock.txn.ledger_io import (
    CONTENT_FOLDER,
    Appended,
    Decline,
    Declined,
    Undetermined,
    write_checkpoint,
)
from tidelock.txn.rollback import files_of
from tidelock.txn.state import LedgerState, View, validate_entry

_FOLLOWERS: Final = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.INDEXING})
"""Actions on commits: they are archived together with the commits around them."""

MIN_OPTION: Final = "hoodie.keep.min.commits"
MAX_OPTION: Final = "hoodie.keep.max.commits"


@dataclass(frozen=True, slots=True)
class ArchiveBounds:
    """Archive when there are more than `most` completed writes, and keep `least`."""

    least: int
    most: int

    def __post_init__(self) -> None:
        """Check that the bounds keep at least one write. Raises: `ConfigInvalid`."""
        if not 0 < self.least < self.most:
            raise ConfigInvalid(
                f"{MIN_OPTION}: expected at least 1 and less than {MAX_OPTION} ({self.most}), got"
                f" {self.least}",
                hint=f"set {MIN_OPTION} to 1 or more, and {MAX_OPTION} to more than that",
            )

    def beyond_cleaning(self, retained: int) -> ArchiveBounds:
        """Return bounds that keep every commit that the clean retains, as Hudi does."""
        if self.least > retained:
            return self
        return ArchiveBounds(retained + 10, retained + 10 + max(10, self.most - self.least))


def to_archive(
    instants: Sequence[Instant], bounds: ArchiveBounds, *, needed: Collection[str] = ()
) -> tuple[Instant, ...]:
    """Return the instants to archive, oldest first, from those of the active timeline.

    Archiving stops at the first instant that is pending, savepointed, or in `needed` (a
    replacecommit whose replaced files are not cleaned, or a write with unreferenced files): the
    archived part of the timeline is always the oldest, without gaps (T10). The write that completed
    last stays, however early it began, because readers take the end of the changes from the active
    timeline. A replacecommit stays as long as a write that completed before it, which may name
    files of the groups that it replaced.
    """
    writes = [i for i in instants if i.is_completed and i.action.writes_data]
    if len(writes) <= bounds.most:
        return ()
    last = max(writes, key=lambda each: each.completion)
    barrier = _barrier(instants, {*needed, last.requested})
    leaving = [i for i in writes[: len(writes) - bounds.least] if i.requested < barrier]
    leaving = leaving[: _count_archivable(leaving, writes)]
    if not leaving:
        return ()
    first_kept = next((i.requested for i in writes if i.requested > leaving[-1].requested), "~")
    followers = [
        i
        for i in instants
        if i.is_completed and i.action in _FOLLOWERS and i.requested < min(first_kept, barrier)
    ]
    return tuple(sorted([*leaving, *followers]))


def unreferenced_files(
    found: Iterable[str], named: Mapping[str, frozenset[str]], *, only_our_writers: bool
) -> tuple[str, ...]:
    """Return the files that no commit references.

    `named` has the files of each commit; all files of other instants are unreferenced. With
    external writers (not `only_our_writers`), a file of a commit counts only if it belongs to
    another attempt than the commit's files: external writers may name files differently.
    """
    unreferenced: list[str] = []
    for key in sorted(found):
        instant, attempt = _origin(key)
        if key in named.get(instant, ()):
            continue
        if (
            instant in named
            and not only_our_writers
            and attempt in {_origin(k)[1] for k in named[instant]}
        ):
            continue
        unreferenced.append(key)
    return tuple(unreferenced)


def _origin(key: str) -> tuple[str, int | None]:
    """Return the instant and the attempt of a data file, parsed from its name."""
    partition, _, name = key.rpartition("/")
    file = data_file(partition, name, 0)
    token = None if file is None else parse_token(file.write_token)
    return ("" if file is None else file.instant), (None if token is None else token.stage)


def outdated_content(name: str, *, archived: str, boundary: int) -> bool:
    """Return whether stored content belongs to a published instant older than the archive boundary.

    The name of a commit's content has its request time, that of a plan its ledger position.
    """
    plan, _, rest = name.partition("-")
    if plan == "plan":
        position = rest.partition("-")[0]
        return position.isdecimal() and int(position) < boundary
    return plan.isdecimal() and plan < archived


def _count_archivable(leaving: Sequence[Instant], writes: Sequence[Instant]) -> int:
    """Return how many writes can be archived without archiving a replacecommit too early.

    A write that was requested after a replacecommit and completed before it may have files in the
    groups that it replaced; then the replacecommit must stay.
    """
    first, above = len(leaving), "~"
    soonest = min((each.completion for each in writes[first:]), default="~")
    for at, each in reversed(list(enumerate(leaving))):
        above = min(above, each.completion)
        if each.action is Action.REPLACE_COMMIT and each.completion > soonest:
            first, soonest = at, min(soonest, above)
    return first


def _barrier(instants: Sequence[Instant], needed: Collection[str]) -> str:
    """Return the request time from which everything stays on the active timeline."""
    holding = [i.requested for i in instants if not i.is_completed]
    holding += [i.requested for i in instants if i.action is Action.SAVEPOINT]
    holding += needed
    return min(holding, default="~")


ENTRIES_KEPT: Final = 512
"""Ledger entries to keep. Writers that began before the oldest of them have to start over."""

ABORTED_KEPT: Final = 16_384
"""Aborted instants to keep in the ledger state after the archive boundary has passed them.

For older ones readers have to look up in the archived timeline whether an instant is complete.
"""

_TRIES: Final = 3
_CHECKPOINT_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """The number of archived instants and deleted ledger entries."""

    instants: int
    entries: int


@dataclass(frozen=True, slots=True)
class ArchiveService:
    """Archive of one table's timeline."""

    writer: TableWriter

    def run(self, bounds: ArchiveBounds) -> ArchiveResult:
        """Archive the instants that are due. Raises: `Conflict` if others keep archiving."""
        for left in reversed(range(_TRIES)):
            try:
                return self._run(bounds)
            except Conflict:
                if not left:
                    raise
        return ArchiveResult(0, 0)

    def plan(self, bounds: ArchiveBounds) -> tuple[Instant, ...]:
        """Return the instants that would be archived now."""
        self.writer.transactions.ledger.refresh()
        snapshot = snapshot_now(self.writer.store)
        return to_archive(snapshot.timeline.instants, bounds, needed=_needed(snapshot))

    def _run(self, bounds: ArchiveBounds) -> ArchiveResult:
        with self.writer.transactions.table_change():
            state = self.writer.transactions.ledger.refresh()
        if (blocking := state.blocking_plan) is not None:
            # The aborted commits are still on the timeline, so their files must stay (C87).
            raise Conflict(
                f"{self.writer.store.uri}: the pending {blocking.action} {blocking.instant} is"
                " rolling back commits",
                hint="try again when it is complete",
            )
        snapshot = snapshot_now(self.writer.store)
        # The timeline may be newer than the ledger state: pending plans of both are barriers.
        waiting = self._reserved(state) | set(state.plans)
        needed = _needed(snapshot) | waiting | self._protected(snapshot.timeline)
        leaving = to_archive(snapshot.timeline.instants, bounds, needed=needed)
        if not leaving:
            if any(instant < state.archived for instant in state.aborted):
                self._sweep(snapshot.timeline, leaving, state)
            return ArchiveResult(0, 0)
        archive = Archive(self.writer.store, self.writer.properties.history_folder)
        known = archive.contains([instant.requested for instant in leaving])
        fresh = [i for i in leaving if (i.requested, i.action) not in known]
        archive.append([_archived(snapshot.timeline, instant) for instant in fresh])
        kept_from = _first_kept(snapshot.timeline, leaving, waiting)
        self._sweep(snapshot.timeline, leaving, state)
        self._move_boundary(kept_from, self._forgotten(state, archive))
        timeline = load_timeline(self.writer.store, self.writer.properties.timeline_folder)
        if self._has_pending_before(kept_from, timeline):
            return ArchiveResult(0, 0)
        for state_file in (each for instant in leaving for each in timeline.states(instant)):
            self.writer.store.delete(timeline.key(state_file))
        entries = self._delete_entries()
        self._delete_contents()
        return ArchiveResult(len(leaving), entries)

    def _reserved(self, state: LedgerState) -> set[str]:
        """Return the request times of writers that may not be on the timeline yet.

        Listed after the timeline is read: request times that are reserved later are later than
        every commit found there (C44).
        """
        listed = self.writer.store.list(f"{HEARTBEAT_FOLDER}/")
        times = {meta.key.rpartition("/")[2] for meta in listed}
        return {time for time in times if not state.is_resolved(time)}

    def _protected(self, timeline: ActiveTimeline) -> set[str]:
        """Return the writes just before instants that were rolled back recently.

        A suspended writer may still write a file of a rolled-back instant. Readers ignore it while
        an earlier write is on the timeline, so that write stays for one heartbeat lifetime.
        """
        txns = self.writer.transactions
        since = format_time(txns.clock.now().wall_epoch_ms - txns.lifetime_ms)
        writes = [instant.requested for instant in timeline.writes()]
        found: set[str] = set()
        for done in timeline.completed(Action.ROLLBACK):
            if done.completion < since:
                continue
            for instant in timeline.read(RollbackMetadata, done).commits_rollback:
                found.update([each for each in writes if each < instant][-1:])
        return found

    def _forgotten(self, state: LedgerState, archive: Archive) -> str:
        """Return the request time before which aborted instants are no longer listed (C95)."""
        past = sorted(instant for instant in state.aborted if instant < state.archived)
        leaving = past[:-ABORTED_KEPT] if ABORTED_KEPT else past
        # An archived instant that was rolled back later would look complete.
        completed = archive.completions(leaving) if leaving else {}
        return min([*completed, *past[len(leaving) :], state.archived]) if leaving else ""

    def _move_boundary(self, archived: str, forgets: str) -> None:
        ledger, uri = self.writer.transactions.ledger, self.writer.store.uri

        def propose(view: View) -> Fact | Decline[str]:
            position = max(view.state.boundary, view.position - ENTRIES_KEPT, 0)
            fact = Boundary(position, archived, forgets)
            problem = validate_entry(fact, view.state)
            return fact if problem is None else Decline(problem)

        match ledger.append(propose):
            case Appended():
                pass
            case Declined(reason=reason):
                raise Conflict(
                    f"{uri}: the ledger boundary was not moved: {reason}", hint="try again"
                )
            case Undetermined(outcome=outcome):
                raise OutcomeUnknown(
                    f"{uri}: the ledger boundary may have moved: {outcome.cause}", hint="try again"
                )
        ledger.publish()
        # The boundary must be in the checkpoint before anything is deleted. Concurrent writers also
        # replace the checkpoint, some without having read the boundary.
        for _ in range(_CHECKPOINT_TRIES):
            view = ledger.advance(ledger.run(write_checkpoint(ledger.view, every=1)))
            if view.archived >= archived:
                return
            ledger.refresh()
        raise Conflict(
            f"{uri}: other processes kept replacing the ledger checkpoint", hint="try again"
        )

    def _has_pending_before(self, archived: str, timeline: ActiveTimeline) -> bool:
        """Return whether a pending instant older than the boundary has appeared since planning."""
        return any(instant.requested < archived for instant in timeline.pending())

    def _sweep(
        self, timeline: ActiveTimeline, leaving: tuple[Instant, ...], state: LedgerState
    ) -> None:
        """Delete files of aborted writes and dead attempts, including files written late.

        Hudi's readers treat files older than the active timeline as committed, so these files must
        be deleted before the timeline starts after them.
        """
        ledger = self.writer.transactions.ledger
        # Only plans have several attempts; a retried write has another instant.
        done = {i.requested: timeline.commit(i) for i in leaving if _may_be_planned(timeline, i)}
        named = {i: each.paths for i, each in done.items() if each.operation_type in _SERVICES}
        if not state.aborted and not named:
            return
        found = ledger.run(files_of({*state.aborted, *named}))
        for key in unreferenced_files(found, named, only_our_writers=not state.external):
            self.writer.store.delete(key)

    def _delete_entries(self) -> int:
        """Delete the ledger entries up to the boundary."""
        store, boundary = self.writer.store, self.writer.transactions.ledger.view.boundary
        count = 0
        for meta in store.list(f"{LEDGER_FOLDER}/"):
            position = position_of(meta.key)
            if position is None or position > boundary:
                break
            store.delete(entry_key(position))
            count += 1
        return count

    def _delete_contents(self) -> None:
        """Delete stored contents of instants that are published and archived (C96)."""
        view = self.writer.transactions.ledger.view
        for meta in self.writer.store.list(f"{CONTENT_FOLDER}/"):
            name = meta.key.rpartition("/")[2]
            if outdated_content(name, archived=view.archived, boundary=view.boundary):
                self.writer.store.delete(meta.key)


def _needed(snapshot: TableSnapshot) -> frozenset[str]:
    """Return the replacecommits whose replaced file groups still have files."""
    if not snapshot.replaced:
        return frozenset()
    present = {group.group_id for group in snapshot.groups(with_replaced=True)}
    return frozenset(by for group, by in snapshot.replaced.items() if group in present)


def _first_kept(
    timeline: ActiveTimeline, leaving: tuple[Instant, ...], plans: Iterable[str]
) -> str:
    """Return the request time of the oldest instant that stays; everything before it is resolved.

    Pending instants of any action stay: a clean that is being executed must be able to complete.
    """
    gone = {instant.identity for instant in leaving}
    staying = (
        instant.requested
        for instant in timeline.instants
        if instant.identity not in gone and (instant.action.writes_data or not instant.is_completed)
    )
    return min([*staying, *plans], default="")


def _archived(timeline: ActiveTimeline, instant: Instant) -> ArchivedInstant:
    found = timeline.store.get(timeline.key(instant))
    if found is None:
        key = timeline.key(instant)
        raise Conflict(f"{key} does not exist any more", hint="another process archives it")
    return ArchivedInstant(
        instant.requested,
        instant.completion,
        instant.action,
        found.body,
        _plan_bytes(timeline, instant),
    )


def _may_be_planned(timeline: ActiveTimeline, instant: Instant) -> bool:
    """Return whether an instant may complete a service plan: writes have other request files."""
    requests = (each for each in timeline.states(instant) if each.state is InstantState.REQUESTED)
    return instant.action.writes_data and not any(each.action in _PLAIN for each in requests)


def _plan_bytes(timeline: ActiveTimeline, instant: Instant) -> bytes:
    """Return the plan that is archived with the instant; plain commits have none."""
    for state in timeline.states(instant):
        planned = state.action in _PLANNED and state.state is InstantState.REQUESTED
        found = timeline.store.get(timeline.key(state)) if planned else None
        if found is not None:
            return found.body
    return b""


_SERVICES: Final = frozenset(
    {OperationType.COMPACT, OperationType.LOG_COMPACT, OperationType.CLUSTER}
)
_PLAIN: Final = frozenset({Action.COMMIT, Action.DELTA_COMMIT})
_PLANNED: Final = frozenset(
    {
        Action.CLEAN,
        Action.COMPACTION,
        Action.LOG_COMPACTION,
        Action.CLUSTERING,
        Action.REPLACE_COMMIT,
        Action.ROLLBACK,
    }
)
