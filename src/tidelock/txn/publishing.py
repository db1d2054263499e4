"""Putting commits on the timeline, in the order of the ledger, by whoever comes by (C28-C33).

The file's name and bytes follow from the entry, so it does not matter who writes it or how often.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelock.base.errors import DataCorrupt, Unavailable
from tidelock.base.outcome import Landed
from tidelock.store.contract import (
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
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn.checkpoint import CHECKPOINT_KEY, Checkpoint
from tidelock.txn.content import Content, Inline, Stored
from tidelock.txn.effects import CheckHeld, Delete, DrawName, Get, Head, Pause, Put, Steps
from tidelock.txn.entry import Commit, Entry, Plan, Undo
from tidelock.txn.fold import Fold
from tidelock.txn.reading import look_at_checkpoint
from tidelock.txn.view import View

CHECKPOINT_EVERY: Final = 32
"""Entries between two checkpoints: what a process that comes cold has to read one by one."""

CONTENT_FOLDER: Final = ".hoodie/.tidelock/content"

_TRIES: Final = 6
_PAUSE_MS: Final = 50.0


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes into the timeline at `folder`."""

    folder: str

    def publish(self, view: View, *, own: int = 0) -> Steps[View]:
        """Put every commit that is not on the timeline there, oldest first, and look back.

        Raises: `Unavailable` if the store does not take a file; nothing after it is published.
        """
        view, landed = yield from self.put(view, own=own)
        return (yield from self.look_back(view, landed))

    def put(self, view: View, *, own: int = 0) -> Steps[tuple[View, tuple[Entry, ...]]]:
        """Put every commit that is not on the timeline there; also return those that were not.

        `own` is the position of an entry that the caller has just appended: nobody can have
        published it long ago, so it is not looked for first. Whoever calls this looks back at what
        landed. Raises: `Unavailable` as `publish`.
        """
        landed: list[Entry] = []
        shown = yield from self._shown(view, own=own)
        for entry in view.unpublished():
            match entry.fact:
                case _ if entry.position <= shown:
                    pass
                case Commit() | Plan() | Undo() as fact if not _is_over(view.fold, entry):
                    try:
                        done = yield from self._publish(entry, fact, own=entry.position == own)
                    except DataCorrupt:
                        # Its bytes are deleted once it is archived past: then there is nothing
                        # to publish (C96).
                        view = yield from look_at_checkpoint(view)
                        if not self._is_past(view, entry):
                            raise
                        done = False
                    if done:
                        landed.append(entry)
                case _:
                    pass
            view = replace(view, published=max(view.published, entry.position))
        return view, tuple(landed)

    def key(self, entry: Entry, fact: Commit | Plan | Undo) -> str:
        """Return the object that says that a commit is complete, or a plan requested."""
        said = (
            Instant(entry.time, fact.action, State.REQUESTED)
            if isinstance(fact, Plan | Undo)
            else Instant(fact.instant, fact.action.completed, State.COMPLETED, entry.time)
        )
        return f"{self.folder}/{said.file_name}"

    def _shown(self, view: View, *, own: int) -> Steps[int]:
        """Return a position up to which everything is published, found from the newest down.

        C29: whoever put an entry's file there knew that all below it were. A single one needs no
        such look, since it is looked for before it is published.
        """
        others = [
            (entry, entry.fact)
            for entry in view.unpublished()
            if isinstance(entry.fact, Commit | Plan | Undo)
            and entry.position != own
            and not _is_over(view.fold, entry)
        ]
        for entry, fact in reversed(others[1:]):
            head: ObjectMeta | None = yield Head(self.key(entry, fact))
            if head is not None:
                return entry.position
        return view.published

    def _publish(self, entry: Entry, fact: Commit | Plan | Undo, *, own: bool) -> Steps[bool]:
        key = self.key(entry, fact)
        if not own:
            head: ObjectMeta | None = yield Head(key)
            if head is not None:
                return False
        body = yield from content_bytes(fact.content)
        yield CheckHeld()
        return (yield from put_settled(key, body))

    def look_back(self, view: View, landed: Sequence[Entry]) -> Steps[View]:
        """C33: take a file away again that was written behind the archive's boundary.

        C86: and one of what was undone, or given up, meanwhile.
        """
        if not landed:
            return view
        view = yield from look_at_checkpoint(view)
        for entry in landed:
            if isinstance(entry.fact, Commit | Plan | Undo) and self._is_past(view, entry):
                yield Delete(self.key(entry, entry.fact))
        return view

    def _is_past(self, view: View, entry: Entry) -> bool:
        """Tell whether what an entry says has left the timeline, as the checkpoint knows."""
        said = entry.fact.instant if isinstance(entry.fact, Commit) else entry.time
        sealed = view.sealed
        known = sealed is not None and sealed.position >= entry.position
        return said < view.archived or (known and sealed is not None and _is_over(sealed, entry))


def _is_over(fold: Fold, entry: Entry) -> bool:
    """Tell whether what an entry says was undone or given up later, as `fold` knows it."""
    match entry.fact:
        case Commit(instant, Action.SAVEPOINT):
            return fold.savepoints.get(instant) != entry.time
        case Commit(instant):
            return instant in fold.void
        case Plan() | Undo():
            return entry.time in fold.void
        case _:
            return False


def content_bytes(content: Content) -> Steps[bytes]:
    """Return the bytes of an instant's file. Raises: `DataCorrupt` if they are others."""
    match content:
        case Inline(data):
            return data
        case Stored(key, sha256, size_bytes):
            found: StoredObject | None = yield Get(key)
            if found is None or len(found.body) != size_bytes or _digest(found.body) != sha256:
                raise DataCorrupt(
                    f"{key} does not hold the {size_bytes} bytes that the ledger names",
                    hint="restore it from a copy: what it belongs to cannot be published",
                )
            return found.body


def stored_content(instant: str, body: bytes) -> Stored:
    """Return where the bytes of a completed instant go when an entry cannot hold them."""
    digest = _digest(body)
    return Stored(f"{CONTENT_FOLDER}/{instant}-{digest[:16]}", digest, len(body))


def put_settled(key: str, body: bytes, mode: PutMode | None = None) -> Steps[bool]:
    """Create an object whose name follows from its bytes; return whether this call wrote it.

    Raises: `Unavailable` if it is still not there after several tries.
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
    """Replace the checkpoint if it is old enough; losing a race for it is no matter.

    C21: only what is on the timeline goes into it, and its position only grows.
    """
    if view.position - view.checkpointed < every or view.published < view.position:
        return view
    nonce: str = yield DrawName()
    body = checkpoints.encode(Checkpoint(view.fold, nonce))
    mode = Match(view.checkpoint) if view.checkpoint else Create()
    reply: PutReply = yield Put(CHECKPOINT_KEY, body, mode)
    if not isinstance(reply, Landed):
        return view
    return replace(
        view,
        sealed=view.fold,
        checkpoint=reply.version,
        checkpointed=view.position,
        boundary=max(view.boundary, view.fold.boundary),
        archived=max(view.archived, view.fold.archived),
    )


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
