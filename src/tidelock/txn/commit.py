"""Begins and commits writes: preconditions, request times, conflict checks, append (C47-C53)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidelock.core.clock import Now
from tidelock.core.errors import Conflict, Unavailable, Unsupported
from tidelock.core.outcome import Landed
from tidelock.execution.filegroup.context import FileKind, FileResult
from tidelock.hudi.file_groups import GroupId
from tidelock.hudi.markers import Marker, marker_folder, parse_marker
from tidelock.hudi.properties import (
    KEY,
    METADATA_FOLDER,
    METADATA_INFLIGHT,
    METADATA_PARTITIONS,
    TIMEZONE,
    TableProperties,
    loading_steps,
    update_properties,
)
from tidelock.hudi.timeline.instant import Action, Instant, InstantState, format_time, parse_instant
from tidelock.hudi.timeline.metadata import (
    CommitMetadata,
    OperationType,
    TimelineRecord,
    WriteStat,
    encode,
)
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import (
    Busy,
    Create,
    ObjectMeta,
    ObjectStore,
    PutReply,
    Refused,
    StoredObject,
    Unclear,
)
from tidelock.txn import heartbeats
from tidelock.txn.app_transactions import AppTransaction
from tidelock.txn.config import (
    METADATA_POLICY,
    TIMEZONE_POLICY,
    MetadataPolicy,
    TimezonePolicy,
    TxnSettings,
)
from tidelock.txn.conflicts import (
    Abort,
    Conflicted,
    ConflictingTxn,
    ConflictReport,
    ConflictStrategy,
    NoConflict,
    PendingTxn,
    Preempted,
    Rebase,
    Repeated,
    check_conflicts,
    hudi_conflict,
)
from tidelock.txn.effects import (
    CheckHeld,
    Delete,
    DrawName,
    Get,
    Head,
    List,
    Pause,
    Put,
    ReadClock,
    Steps,
)
from tidelock.txn.entries import (
    INLINE_BYTES_MAX,
    Commit,
    Content,
    Fact,
    InlineContent,
    LedgerEntry,
    Rollback,
)
from tidelock.txn.footprint import (
    NO_DEPENDENCIES,
    NO_GROUPS,
    CommitKind,
    Footprint,
    NewKeys,
    ReadDependencies,
    commit_kind_of,
)
from tidelock.txn.heartbeats import Heartbeat, heartbeat_key
from tidelock.txn.ledger_io import (
    Appended,
    Decline,
    Declined,
    Undetermined,
    append,
    forward,
    history,
    put_idempotent,
    stored_content,
)
from tidelock.txn.rollback import attempt_of, decide
from tidelock.txn.state import (
    Evidence,
    LedgerState,
    View,
    already_applied,
    committed_txn,
    later,
    validate_entry,
)

INSERTED_KEYS_MAX = 2_048
"""Maximum number of keys in one entry, which every writer reads. Above it, files are compared."""


@dataclass(frozen=True, slots=True)
class CommitDraft:
    """A write ready to commit: its metadata, and what conflict checks need to know.

    `touched` are existing file groups that were merged or appended to, `created` are new groups,
    `appended` those of both with only new log files, `replaced` are hidden by this commit.
    `intents` are the partitions that the write overwrites, None for the whole table. `inserts` has
    per partition the keys that were looked up and not found (new rows of an upsert, misses of a
    delete), None if they are too many. A `blind` write allows duplicates (insert, bulk_insert).
    `reads` marks a write whose rows depend on rows it read (SQL).
    """

    metadata: TimelineRecord
    operation: OperationType
    touched: frozenset[GroupId] = NO_GROUPS
    appended: frozenset[GroupId] = NO_GROUPS
    created: frozenset[GroupId] = NO_GROUPS
    replaced: frozenset[GroupId] = NO_GROUPS
    intents: frozenset[str] | None = frozenset()
    inserts: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    blind: bool = False
    schema_id: str = ""
    reads: bool = False
    bucketed: bool = False
    nonblocking: bool = False
    commit_kind: CommitKind | None = None
    """The kind for the conflict rules, if `operation` does not determine it, as for a clean."""
    app_transaction: AppTransaction | None = None
    """The application's batch in this commit; the ledger accepts each batch once."""
    dependencies: ReadDependencies = NO_DEPENDENCIES
    """Further dependencies of the result, to detect changes to them."""
    schema_base: int = 0
    """The ledger position at which a table service read the schema."""
    markers: frozenset[Marker] | None = None
    """All markers of the write, if the writer knows them; with None they are listed."""

    def footprint(self) -> Footprint:
        """Return the footprint for the conflict checks of other writers."""
        return Footprint(
            commit_kind=self._commit_kind(),
            touched=self.touched,
            appended=self.appended,
            created=self.created,
            replaced=self.replaced,
            intents=self.intents,
            inserts=self._new_keys(),
            nonblocking=self.nonblocking,
            deletes=has_deletes(self.metadata),
            bucketed=self.bucketed,
        )

    def _commit_kind(self) -> CommitKind:
        if self.commit_kind is not None:
            return self.commit_kind
        if self.reads:
            return CommitKind.READ_WRITE
        commit_kind = commit_kind_of(self.operation)
        if self.blind and commit_kind is CommitKind.UPSERT:
            return CommitKind.INSERT
        # An insert that drops duplicates has looked up its keys, so it is checked like an upsert.
        if not self.blind and commit_kind in (CommitKind.INSERT, CommitKind.BULK_INSERT):
            return CommitKind.UPSERT
        return commit_kind

    def _new_keys(self) -> dict[str, NewKeys]:
        total = sum(len(keys) for keys in self.inserts.values() if keys is not None)
        return {
            partition: NewKeys(None, self._files(partition))
            if keys is None or total > INSERTED_KEYS_MAX
            else NewKeys(keys)
            for partition, keys in self.inserts.items()
        }

    def _files(self, partition: str) -> tuple[str, ...]:
        """Return the data files with rows that this write inserted into a partition."""
        if not isinstance(self.metadata, CommitMetadata):
            return ()
        stats = self.metadata.partition_to_write_stats.get(partition, ())
        return tuple(stat.path for stat in stats if stat.path and stat.num_inserts != 0)


def groups_of(results: Iterable[FileResult]) -> dict[FileKind, frozenset[GroupId]]:
    """Return the file groups of written files by kind of change."""
    found: dict[FileKind, set[GroupId]] = {kind: set() for kind in FileKind}
    for result in results:
        found[result.kind].add((result.partition, result.file_id))
    return {kind: frozenset(groups) for kind, groups in found.items()}


def stats_of(results: Iterable[FileResult]) -> dict[str, tuple[WriteStat, ...]]:
    """Return the write stats of written files by partition, as in commit metadata."""
    stats: dict[str, list[WriteStat]] = {}
    for result in results:
        stats.setdefault(result.partition, []).append(result.stat)
    return {partition: tuple(each) for partition, each in stats.items()}


def has_deletes(metadata: TimelineRecord) -> bool:
    """Return whether a commit deleted rows or keys."""
    if not isinstance(metadata, CommitMetadata):
        return False
    every = metadata.partition_to_write_stats.values()
    return any(stat.num_deletes for stats in every for stat in stats)


@dataclass(slots=True)
class ConflictChecker:
    """Checks one commit for conflicts with a growing ledger, each entry once."""

    candidate: PendingTxn
    base: int
    cleared: Collection[int] = frozenset()
    strategy: ConflictStrategy = ConflictStrategy.SOLVE
    checked: int = 0

    def __post_init__(self) -> None:
        """Start after the ledger position at which the writer read the table."""
        self.checked = self.base

    def check(self, view: View) -> Conflicted | None:
        """Return the conflict of the commit with the entries in `view`, None if there is none."""
        entries = view.since(self.checked)
        if entries is not None:
            return self.check_entries(entries, view)
        report = self.report("too many commits since it began to check for conflicts")
        verdict = Rebase(report, self.candidate.footprint.written, rerun=True)
        return Conflicted(verdict, view.position, base_forgotten=True)

    def check_entries(self, entries: Sequence[LedgerEntry], view: View) -> Conflicted | None:
        """Check entries that were not checked before."""
        # A completion of the plan itself, by Java or by this call, is not a conflict.
        mine = self.candidate.instant
        commits = map(committed_txn, entries)
        past = [each for each in commits if each is not None and each.instant != mine]
        found = check_conflicts(self.candidate, past, cleared=self.cleared)
        if self.strategy is not ConflictStrategy.SOLVE:
            found = hudi_conflict(self.candidate, past, view.state.plans, self.strategy) or found
        if not isinstance(found, NoConflict):
            return Conflicted(found, view.position, str(found.report))
        self.checked = view.position
        return None

    def report(self, cause: str, others: tuple[ConflictingTxn, ...] = ()) -> ConflictReport:
        """Return a report about this commit only."""
        advice = "retry on the current table"
        return ConflictReport(self.candidate.as_conflicting, others, cause=cause, advice=advice)


def commit(
    view: View, checker: ConflictChecker, fact: Commit, *, owner: str, contended: bool = False
) -> Steps[Appended | Declined[Conflicted] | Undetermined]:
    """Append the commit unless it conflicts; `contended` if others commit concurrently."""
    # A long write may need entries that are no longer in memory.
    entries = yield from history(view, checker.checked)
    if entries is not None and (conflict := checker.check_entries(entries, view)) is not None:
        return Declined(view, conflict)

    def propose(seen: View) -> Fact | Decline[Conflicted]:
        problem = validate_entry(fact, seen.state, owner=owner)
        if problem is not None:
            return Decline(_invalid_entry(checker, fact, seen, problem))
        conflict = checker.check(seen)
        return Decline(conflict) if conflict is not None else _with_previous_batch(fact, seen.state)

    return (yield from append(view, propose, owner=owner, contended=contended))


def _with_previous_batch(fact: Commit, state: LedgerState) -> Commit:
    """Return the commit with the application's previous batch, for a later rollback (C82)."""
    if fact.app_transaction is None:
        return fact
    name = fact.app_transaction.app_id
    return replace(fact, follows={name: state.app_transactions.get(name)})


def _invalid_entry(checker: ConflictChecker, fact: Commit, view: View, problem: str) -> Conflicted:
    """Return the outcome of a commit that the ledger rules reject because of `problem`."""
    by = tuple(
        ConflictingTxn(
            entry.fact.instant, fact.footprint.commit_kind, entry.owner, entry.position, entry.time
        )
        for entry in view.tail
        if isinstance(entry.fact, Rollback) and entry.fact.instant == fact.instant
    )
    report, state = checker.report(problem, by), view.state
    verdict: Preempted | Abort | Repeated | Rebase
    if fact.instant in state.plans:
        verdict = Preempted(report)
    elif fact.instant in state.committed:
        verdict = Abort(report)
    elif fact.instant not in state.aborted and (
        applied := already_applied(fact.app_transaction, state)
    ):
        verdict = Repeated(report, applied)
    else:
        verdict = Rebase(report, checker.candidate.footprint.written)
    return Conflicted(verdict, view.position, problem)


def store_content(instant: str, metadata: TimelineRecord) -> Steps[Content]:
    """Return the bytes of the completed instant, inline or stored in a separate object."""
    body = encode(metadata)
    if len(body) <= INLINE_BYTES_MAX:
        return InlineContent(body)
    stored = stored_content(instant, body)
    yield from put_idempotent(stored.key, body)
    return stored


def remove_unreferenced_files(
    instant: Instant, metadata: TimelineRecord, *, attempt: int | None = None
) -> Steps[tuple[str, ...]]:
    """Delete data files that have a marker but are not in the metadata; return the markers.

    Such files are left by retried tasks, and readers would see them after the commit. With
    `attempt`, files of later attempts at the plan are kept: another executor has taken it over.
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


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A property of a table that prevents writes, and how to resolve it."""

    about: str
    why: str
    hint: str


def obstacles(
    properties: TableProperties, settings: TxnSettings | None = None
) -> Iterator[Obstacle]:
    """Yield the obstacles to writing a table. With `settings`, without those they resolve. Pure."""
    disables = settings is not None and settings.metadata_policy is MetadataPolicy.DISABLE
    if properties.has_metadata_table and not disables:
        inflight = properties.values.get(METADATA_INFLIGHT, "")
        value = ",".join(properties.metadata_partitions) or f"{inflight} (in progress)"
        yield Obstacle(
            "metadata table",
            f"has a metadata table ({METADATA_PARTITIONS} = {value}), which Tidelock does not"
            " update, so Java readers would miss new commits",
            f"set {METADATA_POLICY.key}=disable to remove it, so that readers list the files; set"
            " hoodie.metadata.enable=false for Java writers, which would create it again",
        )
    sets_utc = settings is not None and settings.timezone_policy is TimezonePolicy.UTC
    if not properties.is_utc and not sets_utc:
        zone = properties.values.get(TIMEZONE, "")
        value = f"{TIMEZONE} = {zone}" if zone else f"no {TIMEZONE}, so LOCAL"
        yield Obstacle(
            "time zone",
            f"has a timeline in local time ({value}), but Tidelock writes UTC: an earlier commit"
            " could hide a later one",
            f"set {TIMEZONE_POLICY.key}=utc to convert the table to UTC, which Hudi jobs on Spark"
            " respect; run other Java writers with -Duser.timezone=UTC",
        )


class Preconditions:
    """A table's properties as last read, and the check that it may be changed.

    Guarantees: after `check` returned, the table could be changed when its properties were read.
    """

    def __init__(self, uri: str, properties: TableProperties, settings: TxnSettings) -> None:
        """Start with the properties that the caller has read; nothing is checked yet."""
        self.uri = uri
        self.settings = settings
        self.properties = properties
        self._version = ""

    def check(self) -> Steps[None]:
        """Read the properties if they have changed, and check that the table may be changed.

        Raises: `Unsupported` naming the obstacle and its solution, `Conflict` if properties that
        determine how rows are written changed since the table was opened.
        """
        found: StoredObject | None = yield Get(KEY)
        if found is not None and found.version == self._version:
            return
        now = yield from _read(self.uri, found)
        for key in self.properties.differing_keys(now):
            before, after = (each.values.get(key) or "nothing" for each in (self.properties, now))
            raise Conflict(
                f"{self.uri} was changed since it was opened: {key} was {before}, is now {after}",
                hint="reopen the table",
            )
        for obstacle in obstacles(now, self.settings):
            raise Unsupported(f"{self.uri} {obstacle.why}", hint=obstacle.hint)
        if not now.is_utc:
            yield from _check_times(self.uri, now.timeline_folder)
        self.properties = now
        self._version = "" if found is None else found.version

    @property
    def satisfied(self) -> bool:
        """Whether the table as last read needs no changes itself."""
        return next(obstacles(self.properties), None) is None

    def apply(self, store: ObjectStore, policy: ReadbackPolicy) -> None:
        """Change the table's properties as configured. The caller holds the table's lock."""
        changes: dict[str, str | None] = {} if self.properties.is_utc else {TIMEZONE: "UTC"}
        metadata = self.properties.has_metadata_table
        if metadata:
            # The properties are changed first: a reader must not use a metadata table that is half
            # deleted.
            changes |= {METADATA_PARTITIONS: None, METADATA_INFLIGHT: None}
        if changes:
            self.properties = update_properties(store, changes, policy=policy)
            self._version = ""
        for meta in tuple(store.list(f"{METADATA_FOLDER}/")) if metadata else ():
            store.delete(meta.key)


def _check_times(uri: str, folder: str) -> Steps[None]:
    """Raise `Unsupported` if a table in local time has times in the future of UTC.

    New instants in UTC would sort before them.
    """
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/")
    found = (parse_instant(meta.key.removeprefix(f"{folder}/")) for meta in listed)
    times = (time for each in found if each for time in (each.requested, each.completion))
    clock: Now = yield ReadClock()
    latest, now = max(times, default=""), format_time(clock.wall_epoch_ms)
    if latest > now:
        raise Unsupported(
            f"{uri} has instants in local time up to {latest}, but the time in UTC is {now}: new"
            " instants in UTC would sort before existing ones",
            hint=f"stop all writers until {latest} UTC, then try again",
        )


def _read(uri: str, found: StoredObject | None) -> Steps[TableProperties]:
    """Read the properties like `load_properties`, with the first request already made."""
    steps = loading_steps(uri)
    next(steps)
    while True:
        try:
            key = steps.send(found)
        except StopIteration as end:
            properties: TableProperties = end.value
            return properties
        found = yield Get(key)


_TIMES_MAX: Final = 1_000
_TRIES: Final = 6
_PAUSE_MS: Final = 50.0
_ATTEMPT_MAX: Final = 10**9
_AHEAD_MS_MAX: Final = 250
"""How far a request time, and with it the ledger's time, may be ahead of the clock."""


@dataclass(frozen=True, slots=True)
class BegunInstant:
    """An instant that the caller has begun, with its heartbeat and the heartbeat's version."""

    instant: Instant
    attempt: int
    heartbeat: Heartbeat
    version: str
    view: View
    ahead_ms: int = 0


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """A write to begin: its action, the content of its first two files, and its heartbeat."""

    action: Action
    requested: bytes
    inflight: bytes
    heartbeat: Heartbeat
    folder: str
    skew_ms: int = 0
    ahead_ms: int = 0


def begin(view: View, request: BeginRequest, *, above: str = "") -> Steps[BegunInstant]:
    """Choose a request time later than everything in the ledger and create the pending instant.

    Under contention, other entries would pass a time that is not ahead of the clock before the
    instant is created. `ahead_ms` is the lead used the last time.

    C43: everything that the writer has read completed before the request time, so new versions of a
    file group sort after the versions they were made from.
    """
    now: Now = yield ReadClock()
    nonce: str = yield DrawName()
    # C45: every file name contains the attempt, so that a write that got the same time by a fault
    # cannot touch the files of this one.
    attempt = int(nonce.replace("-", "")[:12], 16) % _ATTEMPT_MAX + 1
    heartbeat = heartbeats.for_attempt(request.heartbeat, nonce, attempt, now.wall_epoch_ms)
    body = heartbeats.encode(heartbeat)
    ahead_ms = request.ahead_ms
    drawn = attempt % 1_000 / 1_000
    early = now.wall_epoch_ms + int(ahead_ms * (1 + drawn) / 2)
    time = later(early, view.state.time, view.state.archived, view.planned, above)
    for tries in range(_TIMES_MAX):
        yield CheckHeld()
        if request.skew_ms:
            yield Pause(2.0 * request.skew_ms)
        version = yield from _create(heartbeat_key(time), body, Create(durable=False))
        if version is not None:
            # C44: an earlier owner of this time has appended a later entry by now.
            known = view.position
            view = yield from forward(view)
            instant = Instant(time, request.action, InstantState.REQUESTED)
            free = time > view.state.time and not view.state.is_resolved(time)
            created = free and (yield from _create_pending(instant, request))
            if created:
                if not (yield from _is_late(instant, heartbeat, now)):
                    # Without contention the clock's time is good enough.
                    uncontended = not tries and view.position == known
                    ahead_ms -= ahead_ms // (2 if uncontended else 8)
                    return BegunInstant(
                        instant.started(), attempt, heartbeat, version, view, ahead_ms
                    )
                # A request whose answer was lost may land after these deletes. The ledger entry
                # shows that it does not belong to a Java writer; an empty file would not.
                fact = Rollback(time, "its heartbeat was deleted before the instant was created")
                own = Evidence(own=frozenset({time}))
                view = (yield from decide(view, fact, seen=own, owner=heartbeat.owner)).view
                for state in (instant.started(), instant):
                    yield Delete(f"{request.folder}/{state.file_name}")
            # An existing request may be ours with a lost answer. Its heartbeat shows that it does
            # not belong to a Java writer, and recovery rolls it back when the heartbeat is old.
            if created or not free:
                yield Delete(heartbeat_key(time))
        began_ms, now = now.monotonic_ms, (yield ReadClock())
        ahead_ms = min(_AHEAD_MS_MAX, max(ahead_ms, 2 * int(now.monotonic_ms - began_ms)))
        early = 0 if request.skew_ms else now.wall_epoch_ms + int(ahead_ms * (1 + drawn) / 2)
        time = later(early, time, view.state.time)
    raise Unavailable(f"no free request time found in {_TIMES_MAX} attempts", hint="try again")


def _is_late(instant: Instant, heartbeat: Heartbeat, began: Now) -> Steps[bool]:
    """Return whether the time expired while its owner was suspended, before the instant existed.

    The archive checks the timeline and the heartbeats. If both were missing, its boundary may have
    moved past this time.
    """
    now: Now = yield ReadClock()
    if now.monotonic_ms - began.monotonic_ms < heartbeat.interval_ms:
        return False
    found: StoredObject | None = yield Get(heartbeat_key(instant.requested))
    return found is None or found.body != heartbeats.encode(heartbeat)


def _create_pending(instant: Instant, request: BeginRequest) -> Steps[bool]:
    """Create the requested and inflight files; return False if an earlier write used the time.

    The files are mostly empty, so they do not show who created them: a file that may belong to
    another writer is left for its rollback.
    """
    first = yield from _create(
        f"{request.folder}/{instant.file_name}", request.requested, known=False
    )
    if first is None:
        return False
    yield from _create(f"{request.folder}/{instant.started().file_name}", request.inflight)
    return True


def _create(
    key: str, body: bytes, mode: Create | None = None, *, known: bool = True
) -> Steps[str | None]:
    """Create an object and return its version; None if another object is there.

    With `known`, an object with the same bytes is ours. Raises: `Unavailable`.
    """
    cause = ""
    for attempt in range(_TRIES):
        reply: PutReply = yield Put(key, body, mode or Create())
        match reply:
            case Landed(version):
                return version
            case Busy(cause=cause):
                pass
            case Refused() | Unclear() if not known:
                head: ObjectMeta | None = yield Head(key)
                if head is not None:
                    return None
            case Refused() | Unclear():
                found: StoredObject | None = yield Get(key)
                if found is not None:
                    return found.version if found.body == body else None
        yield Pause(_PAUSE_MS * 2**attempt)
    raise Unavailable(f"{key} was not written: {cause}", hint="try again later")
