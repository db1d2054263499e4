"""Ledger I/O as protocol steps: read, append, checkpoint, and publish to the timeline (C8-C33).

Appending is the create-if-absent that orders all commits. An entry determines the name and bytes of
its file on the timeline, so any process may publish it, any number of times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeAlias, TypeVar

from tidelock.core.clock import Now
from tidelock.core.errors import DataCorrupt, TidelockError, Unavailable
from tidelock.core.outcome import Landed, Unknown
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.storage.contract import (
    Busy,
    Create,
    Match,
    ObjectMeta,
    PutMode,
    PutReply,
    Refused,
    StoredObject,
    Unclear,
)
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn.checkpoint import CHECKPOINT_KEY, Checkpoint
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
    LEDGER_FOLDER,
    Commit,
    Content,
    ExternalCommit,
    Fact,
    ImportPlan,
    InlineContent,
    LedgerEntry,
    Plan,
    PlanRollback,
    Rollback,
    StoredContent,
    decode,
    encode,
    entry_key,
    position_of,
)
from tidelock.txn.heartbeats import heartbeat_key
from tidelock.txn.state import LedgerState, View, later

_LOADS_MAX: Final = 8


def load() -> Steps[View]:
    """Read the ledger, starting at the newest checkpoint.

    Entries below the boundary may be deleted during the read; the read then starts over. Raises:
    `DataCorrupt` if an entry stays missing.
    """
    missing = 0
    for _ in range(_LOADS_MAX):
        found: StoredObject | None = yield Get(CHECKPOINT_KEY)
        view = View() if found is None else _from_checkpoint(found)
        listed: tuple[ObjectMeta, ...] = yield List(
            f"{LEDGER_FOLDER}/", start_after=entry_key(view.position)
        )
        positions = [place for meta in listed if (place := position_of(meta.key)) is not None]
        for position in positions:
            entry = yield from _next_entry(view)
            if entry is None:
                missing = position
                break
            view = view.after(entry)
        else:
            return view
    raise DataCorrupt(
        f"the ledger has a gap below {entry_key(missing)}",
        hint="restore the missing entries from a backup; no other copy of them exists",
    )


def forward(view: View) -> Steps[View]:
    """Return the view with the entries that were appended since."""
    before = view.position
    view = yield from catch_up(view)
    # C27: a missing next entry is the end of the ledger, or a hole below the boundary. An entry
    # that was found may also have been written below the boundary.
    view = yield from refresh_checkpoint(view)
    behind = 0 < view.position <= view.boundary
    return (yield from load()) if behind or view.boundary > before else view


def catch_up(view: View) -> Steps[View]:
    """Read consecutive entries until one is missing or belongs to another history."""
    while entry := (yield from _next_entry(view)):
        view = view.after(entry)
    return view


def history(view: View, base: int) -> Steps[tuple[LedgerEntry, ...] | None]:
    """Return the entries after `base`, reading from the store those that are no longer in memory.

    Returns None if some of them were deleted below the boundary.
    """
    known = view.since(base)
    if known is not None:
        return known
    older: list[LedgerEntry] = []
    for position in range(base + 1, view.position - len(view.tail) + 1):
        found: StoredObject | None = yield Get(entry_key(position))
        if found is None or position <= view.boundary:
            return None
        older.append(decode_at(found.body, position))
    return (*older, *view.tail)


def refresh_checkpoint(view: View) -> Steps[View]:
    """Return the view with the current checkpoint and its boundary."""
    head: ObjectMeta | None = yield Head(CHECKPOINT_KEY)
    if head is None or head.version == view.checkpoint:
        return view
    found: StoredObject | None = yield Get(CHECKPOINT_KEY)
    if found is None:
        return view
    seen = _from_checkpoint(found)
    return replace(
        view,
        checkpoint=seen.checkpoint,
        checkpointed=seen.checkpointed,
        boundary=max(view.boundary, seen.boundary),
        archived=max(view.archived, seen.archived),
        published=max(view.published, min(seen.published, view.position)),
        checkpoint_state=seen.state,
    )


def decode_at(body: bytes, position: int) -> LedgerEntry:
    """Return the entry in `body`. Raises: `DataCorrupt` if it is not the one at `position`."""
    entry = decode(body, where=entry_key(position))
    if entry.position != position:
        raise DataCorrupt(
            f"{entry_key(position)}: expected entry {position}, found entry {entry.position}"
        )
    return entry


def _next_entry(view: View) -> Steps[LedgerEntry | None]:
    position = view.position + 1
    found: StoredObject | None = yield Get(entry_key(position))
    if found is None:
        return None
    entry = decode_at(found.body, position)
    # C6: an entry that does not name its predecessor was written on another history.
    return entry if view.state.precedes(entry) else None


def _from_checkpoint(found: StoredObject) -> View:
    state = checkpoints.decode_checkpoint(found.body, where=CHECKPOINT_KEY).state
    return View(
        state=state,
        published=state.position,
        checkpoint=found.version,
        checkpointed=state.position,
        boundary=state.boundary,
        archived=state.archived,
        checkpoint_state=state,
    )


D = TypeVar("D")

_UNCLEAR_MAX: Final = 6
_PAUSE_MS: Final = 50.0
_JITTER_MS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Appended:
    """The fact was appended as this entry."""

    view: View
    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class Declined(Generic[D]):
    """The fact was not appended: the proposer declined after reading newer entries."""

    view: View
    reason: D


@dataclass(frozen=True, slots=True)
class Undetermined:
    """It is not known yet whether the fact was appended as entry `position`."""

    view: View
    position: int
    outcome: Unknown


@dataclass(frozen=True, slots=True)
class Decline(Generic[D]):
    """Returned by a proposer that no longer wants to append."""

    reason: D


Proposer: TypeAlias = Callable[[View], Fact | Decline[D]]
"""Returns the fact to append to the given view, or `Decline` with the reason. Pure."""


def append(
    view: View, propose: Proposer[D], *, owner: str, contended: bool = False
) -> Steps[Appended | Declined[D] | Undetermined]:
    """Append the fact that `propose` returns for the entries below it.

    If the table is `contended`, new entries are read first, because a refused create costs more
    than a read.

    Guarantees: `Appended` and `Declined` are certain. `Undetermined` is not: nothing may be cleaned
    up until the entry has been read.
    """
    nonce: str = yield DrawName()
    losses = 0
    # Entries read here may lie below the boundary. Return a view that contains them only after the
    # checkpoint has been checked.
    trusted = view
    if contended:
        view = yield from catch_up(view)
    while True:
        fact = propose(view)
        if isinstance(fact, Decline):
            try:
                reloaded = yield from _reload_if_behind(view, trusted)
            except TidelockError as error:
                unknown = Unknown(f"the boundary could not be read: {error}")
                return Undetermined(trusted, trusted.position + 1, unknown)
            if reloaded is None:
                return Declined(view, fact.reason)
            view = trusted = reloaded
            continue
        time = yield from _time(view, fact, nonce)
        before, published = view.state.nonce, view.published
        entry = LedgerEntry(view.position + 1, time, owner, nonce, before, published, fact)
        yield CheckHeld()
        existing = yield from _create(entry)
        if isinstance(existing, Unknown):
            # The entry may still land, so a plan's time stays reserved: a write must not take it
            # (C63).
            return Undetermined(trusted, entry.position, existing)
        if isinstance(fact, Plan | PlanRollback) and (existing is None or existing.nonce != nonce):
            yield from release_time(time, nonce)
        try:
            outcome = yield from _resolve(view, entry, existing, read_on=not (contended or losses))
        except TidelockError as error:
            # The entry may have landed and now lie below the boundary; only the ledger can tell.
            unknown = Unknown(f"the entry could not be read: {error}")
            return Undetermined(trusted, entry.position, unknown)
        if isinstance(outcome, Appended):
            return outcome
        view = outcome.view
        if outcome.reloaded:
            trusted = view
            continue
        losses += 1
        if losses > 1:
            yield Pause(_JITTER_MS)


@dataclass(frozen=True, slots=True)
class _Retry:
    """Another writer took the position: propose again on this view."""

    view: View
    reloaded: bool


def _resolve(
    view: View, entry: LedgerEntry, existing: LedgerEntry | None, *, read_on: bool
) -> Steps[Appended | _Retry]:
    """Return the outcome for `entry` when `existing` was found at its position.

    `read_on` reads all further entries, for a view that may be old. Otherwise the next create shows
    as well as a read whether there is one more entry (C8).
    """
    if existing is None or (existing.nonce != entry.nonce and not view.state.precedes(existing)):
        # C12: the create was refused, but there is no entry, or none of this history: this process
        # lags behind the boundary.
        return _Retry((yield from load()), reloaded=True)
    if existing.nonce != entry.nonce:
        view = view.after(existing)
        return _Retry((yield from catch_up(view)) if read_on else view, reloaded=False)
    # C14: a deleted key can be created again. Below the boundary such an entry is ignored.
    view = yield from refresh_checkpoint(view)
    if view.boundary >= entry.position:
        # Nobody reads below the boundary. Deleting the stray entry keeps the folder clean.
        yield Delete(entry_key(entry.position))
        return _Retry((yield from load()), reloaded=True)
    return Appended(view.after(entry), entry)


def _reload_if_behind(view: View, trusted: View) -> Steps[View | None]:
    """Reload the ledger if entries above `trusted` may lie below the boundary (C27).

    Returns None if they do not.
    """
    if view is trusted:
        return None
    view = yield from refresh_checkpoint(view)
    return (yield from load()) if view.boundary > trusted.position else None


def _time(view: View, fact: Fact, nonce: str) -> Steps[str]:
    """Return the entry's time (C4). A plan's time is a request time and must be unique."""
    now: Now = yield ReadClock()
    time = view.state.next_time(now.wall_epoch_ms, above=max(_floor(fact), view.planned))
    while isinstance(fact, Plan | PlanRollback):
        if view.state.is_resolved(time):
            time = later(0, time)
            continue
        reply: PutReply = yield Put(heartbeat_key(time), nonce.encode(), Create())
        if isinstance(reply, Landed):
            break
        if isinstance(reply, Busy):
            yield Pause(_PAUSE_MS)
        time = later(0, time)
    return time


def release_time(time: str, nonce: str) -> Steps[None]:
    """Delete the heartbeat that reserved a plan's time, unless an executor has taken it over."""
    found: StoredObject | None = yield Get(heartbeat_key(time))
    if found is not None and found.body == nonce.encode():
        yield Delete(heartbeat_key(time))


def _floor(fact: Fact) -> str:
    """Return the lower bound of the entry's time: a completion is later than its request (C44)."""
    match fact:
        case Commit(instant=instant) | Rollback(instant=instant) | ImportPlan(instant=instant):
            return instant
        case ExternalCommit(completion=completion):
            return completion
        case PlanRollback(instants=instants):
            return max(instants, default="")
        case _:
            return ""


def _create(entry: LedgerEntry) -> Steps[LedgerEntry | Unknown | None]:
    """Create the entry's object and return the entry found there, ours or another's.

    Returns None if the create was refused and there is no object.
    """
    key, body = entry_key(entry.position), encode(entry)
    unclear: list[str] = []
    cause = ""
    for attempt in range(_UNCLEAR_MAX):
        refused = ""
        try:
            reply: PutReply = yield Put(key, body, Create())
            match reply:
                case Landed():
                    return entry
                case Busy(cause=cause):
                    yield Pause(_PAUSE_MS * 2**attempt)
                    continue
                case Unclear(cause, volatile=True):
                    return Unknown(cause)
                case Unclear(cause):
                    unclear.append(cause)
                case Refused():
                    # A proxy or a retry may report a refusal although the write succeeded.
                    refused = "refused"
            found: StoredObject | None = yield Get(key)
        except TidelockError as error:
            if not unclear and not refused:
                raise
            return Unknown(f"{refused or unclear[-1]}; then: {error}")
        if found is not None:
            return entry if found.body == body else decode_at(found.body, entry.position)
        if not unclear:
            return None
        # There is no object, so the same write can be sent again.
        yield Pause(_PAUSE_MS * 2**attempt)
    if unclear:
        return Unknown(unclear[-1])
    raise Unavailable(f"{key} was not written: {cause}", hint="try again later")


CHECKPOINT_EVERY: Final = 32
"""Number of entries between two checkpoints, which a new process reads one by one."""

CONTENT_FOLDER: Final = ".hoodie/.tidelock/content"

_TRIES: Final = 6


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes into the timeline at `folder`."""

    folder: str

    def publish(self, view: View, *, own: int = 0) -> Steps[View]:
        """Publish all commits that are not on the timeline, oldest first, then remove stale files.

        Raises: `Unavailable` if the store does not accept a file; later entries are not published.
        """
        view, newly_published = yield from self.put(view, own=own)
        return (yield from self.remove_stale(view, newly_published))

    def put(self, view: View, *, own: int = 0) -> Steps[tuple[View, tuple[LedgerEntry, ...]]]:
        """Publish all commits that are not on the timeline; also return the entries published here.

        `own` is the position of an entry that the caller has just appended. Nobody else can have
        published it before, so it is not looked up first. The caller must pass the returned entries
        to `remove_stale`. Raises: `Unavailable` as `publish`.
        """
        newly_published: list[LedgerEntry] = []
        published = yield from self._published_position(view, own=own)
        for entry in view.unpublished():
            fact, due = entry.fact, entry.position > published
            if (
                due
                and isinstance(fact, Commit | Plan | PlanRollback)
                and not _is_over(view.state, entry)
            ):
                try:
                    if (yield from self._publish(entry, fact, own=entry.position == own)):
                        newly_published.append(entry)
                except DataCorrupt:
                    # The bytes are deleted once the instant is archived; then there is nothing to
                    # publish (C96).
                    view = yield from refresh_checkpoint(view)
                    if not self._is_past(view, entry):
                        raise
            view = replace(view, published=max(view.published, entry.position))
        return view, tuple(newly_published)

    def key(self, entry: LedgerEntry, fact: Commit | Plan | PlanRollback) -> str:
        """Return the key of a commit's completed instant, or of a plan's requested instant."""
        instant = (
            Instant(entry.time, fact.action, InstantState.REQUESTED)
            if isinstance(fact, Plan | PlanRollback)
            else Instant(fact.instant, fact.action.completed, InstantState.COMPLETED, entry.time)
        )
        return f"{self.folder}/{instant.file_name}"

    def _published_position(self, view: View, *, own: int) -> Steps[int]:
        """Return the position up to which everything is published, searching from the newest entry.

        C29: a process publishes an entry only after all entries below it. A single unpublished
        entry is not searched for here; it is looked up before it is published.
        """
        others = [
            (entry, entry.fact)
            for entry in view.unpublished()
            if isinstance(entry.fact, Commit | Plan | PlanRollback)
            and entry.position != own
            and not _is_over(view.state, entry)
        ]
        for entry, fact in reversed(others[1:]):
            head: ObjectMeta | None = yield Head(self.key(entry, fact))
            if head is not None:
                return entry.position
        return view.published

    def _publish(
        self, entry: LedgerEntry, fact: Commit | Plan | PlanRollback, *, own: bool
    ) -> Steps[bool]:
        key = self.key(entry, fact)
        if not own:
            head: ObjectMeta | None = yield Head(key)
            if head is not None:
                return False
        body = yield from content_bytes(fact.content)
        yield CheckHeld()
        return (yield from put_idempotent(key, body))

    def remove_stale(self, view: View, newly_published: Sequence[LedgerEntry]) -> Steps[View]:
        """Delete files that were published after their instant was archived or rolled back.

        C33: files below the archive's boundary. C86: instants rolled back or aborted in the
        meantime.
        """
        if not newly_published:
            return view
        view = yield from refresh_checkpoint(view)
        for entry in newly_published:
            if isinstance(entry.fact, Commit | Plan | PlanRollback) and self._is_past(view, entry):
                yield Delete(self.key(entry, entry.fact))
        return view

    def _is_past(self, view: View, entry: LedgerEntry) -> bool:
        """Return whether an entry's instant has left the timeline, according to the checkpoint."""
        instant = entry.fact.instant if isinstance(entry.fact, Commit) else entry.time
        state = view.checkpoint_state
        known = state is not None and state.position >= entry.position and _is_over(state, entry)
        return known or instant < view.archived


def _is_over(state: LedgerState, entry: LedgerEntry) -> bool:
    """Return whether the instant of an entry was rolled back or released, according to `state`."""
    match entry.fact:
        case Commit(instant, Action.SAVEPOINT):
            return state.savepoints.get(instant) != entry.time
        case Commit(instant):
            return instant in state.aborted
        case Plan() | PlanRollback():
            return entry.time in state.aborted
        case _:
            return False


def content_bytes(content: Content) -> Steps[bytes]:
    """Return the bytes of an instant's file. Raises: `DataCorrupt` if they do not match."""
    match content:
        case InlineContent(data):
            return data
        case StoredContent(key, sha256, size_bytes):
            found: StoredObject | None = yield Get(key)
            if found is None or len(found.body) != size_bytes or _digest(found.body) != sha256:
                raise DataCorrupt(
                    f"{key} does not contain the {size_bytes} bytes recorded in the ledger",
                    hint="restore it from a backup; its instant cannot be published without it",
                )
            return found.body


def stored_content(instant: str, body: bytes) -> StoredContent:
    """Return the location of a completed instant's bytes that are too large for an entry."""
    digest = _digest(body)
    return StoredContent(f"{CONTENT_FOLDER}/{instant}-{digest[:16]}", digest, len(body))


def put_idempotent(key: str, body: bytes, mode: PutMode | None = None) -> Steps[bool]:
    """Create an object whose name determines its bytes; return whether this call wrote it.

    Raises: `Unavailable` if it is still missing after several attempts.
    """
    cause = ""
    for attempt in range(_TRIES):
        reply: PutReply = yield Put(key, body, mode or Create())
        match reply:
            case Landed():
                return True
            case Refused():
                return False
            case Unclear(cause, volatile=True):
                break
            case Busy(cause=cause) | Unclear(cause=cause):
                head: ObjectMeta | None = yield Head(key)
                if head is not None:
                    return True
                yield Pause(_PAUSE_MS * 2**attempt)
    raise Unavailable(f"{key} was not written: {cause}", hint="the next writer will publish it")


def write_checkpoint(view: View, *, every: int = CHECKPOINT_EVERY) -> Steps[View]:
    """Replace the checkpoint if it is old enough. Losing the race for it is harmless.

    C21: the checkpoint covers only published entries, and its position only grows.
    """
    if view.position - view.checkpointed < every or view.published < view.position:
        return view
    nonce: str = yield DrawName()
    body = checkpoints.encode(Checkpoint(view.state, nonce))
    mode = Match(view.checkpoint) if view.checkpoint else Create()
    reply: PutReply = yield Put(CHECKPOINT_KEY, body, mode)
    if not isinstance(reply, Landed):
        return view
    return replace(
        view,
        checkpoint_state=view.state,
        checkpoint=reply.version,
        checkpointed=view.position,
        boundary=max(view.boundary, view.state.boundary),
        archived=max(view.archived, view.state.archived),
    )


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
