"""Whether the ledger is one chain of lawful entries, and the timeline says what it says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidelock.base.errors import DataCorrupt, RecordFromFuture
from tidelock.ops.validate.findings import Finding, problem, warning
from tidelock.store.contract import ObjectStore
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.content import Inline
from tidelock.txn.entry import (
    LEDGER_FOLDER,
    Commit,
    Entry,
    decode,
    entry_key,
    position_of,
)
from tidelock.txn.fold import Fold, lawful

CHECK = "ledger"


@dataclass(slots=True)
class _Story:
    """What the ledger decided, as far as it was read."""

    fold: Fold = field(default_factory=Fold)
    commits: list[tuple[Entry, Commit]] = field(default_factory=list)
    first_time: str = ""


def check_ledger(snapshot: TableSnapshot) -> Iterator[Finding]:
    """Yield what is wrong with the ledger of a table; one that has none has nothing wrong."""
    store = snapshot.store
    story = _Story()
    found = store.get(CHECKPOINT_KEY)
    if found is not None:
        try:
            story.fold = checkpoints.decode(found.body, where=CHECKPOINT_KEY).fold
        except RecordFromFuture:
            raise
        except DataCorrupt as error:
            yield problem(CHECK, CHECKPOINT_KEY, error.message, "restore it from a copy")
            return
    findings = [*_check_checkpoint(store, story.fold), *_read(store, story)]
    yield from findings
    if not findings:
        yield from _check_published(snapshot, story)
        yield from _check_timeline(snapshot, story)


def _check_checkpoint(store: ObjectStore, checkpoint: Fold) -> Iterator[Finding]:
    """Compare the checkpoint with the entries that it has folded, if they are still there."""
    below = _Story()
    last = checkpoint.position
    if not last or checkpoint.boundary or store.head(entry_key(1)) is None:
        return  # what lies behind the boundary is in the checkpoint alone
    findings = list(_read(store, below, last=last))
    yield from findings
    if not findings and _said(below.fold) != _said(checkpoint):
        yield problem(
            CHECK,
            CHECKPOINT_KEY,
            f"it is not what the entries up to {last} add up to",
            "stop all writers and delete it: the entries are all there, and it is made anew",
        )


def _said(fold: Fold) -> bytes:
    return checkpoints.encode(checkpoints.Checkpoint(fold, ""))


def _read(store: ObjectStore, story: _Story, *, last: int | None = None) -> Iterator[Finding]:
    """Fold the entries above the checkpoint; stop at the first that does not belong."""
    start_after = entry_key(story.fold.position)
    for meta in store.list(f"{LEDGER_FOLDER}/", start_after=start_after):
        position = position_of(meta.key)
        if position is None:
            continue
        if last is not None and position > last:
            return
        if position != story.fold.position + 1:
            yield problem(
                CHECK,
                entry_key(story.fold.position + 1),
                f"it is missing, but {position} is there",
                "restore it from a copy: what was decided there is written nowhere else",
            )
            return
        stored = store.get(meta.key)
        if stored is None:
            return  # folded into a checkpoint while we look
        try:
            entry = decode(stored.body, where=meta.key)
        except RecordFromFuture:
            raise
        except DataCorrupt as error:
            yield problem(CHECK, meta.key, error.message, "restore it from a copy")
            return
        fault = _fault(entry, position, story.fold)
        if fault:
            yield problem(
                CHECK, meta.key, fault, "stop all writers; restore the ledger from a copy"
            )
            return
        _note(story, entry)


def _fault(entry: Entry, position: int, fold: Fold) -> str:
    """Say why an entry cannot stand where it does."""
    if entry.position != position:
        return f"it says that it is entry {entry.position}"
    if not fold.precedes(entry):
        return "it does not name the entry below it: it was written on another history"
    if entry.time <= fold.time:
        return f"its time {entry.time} is not after {fold.time}, the time of the entry below it"
    return lawful(entry.fact, fold, owner=entry.owner) or ""


def _note(story: _Story, entry: Entry) -> None:
    story.first_time = story.first_time or entry.time
    story.fold = story.fold.after(entry)
    if isinstance(entry.fact, Commit):
        story.commits.append((entry, entry.fact))


def _check_published(snapshot: TableSnapshot, story: _Story) -> Iterator[Finding]:
    """Compare each commit with its file on the timeline, in ledger order."""
    waiting: list[str] = []
    there = set(snapshot.timeline.files)
    for entry, commit in story.commits:
        if commit.instant in story.fold.void:
            continue  # it was taken back
        done = Instant(commit.instant, commit.action.completed, State.COMPLETED, entry.time)
        if done not in there:
            if not _is_archived(snapshot, done):
                waiting.append(entry_key(entry.position))
            continue
        for key in waiting:
            yield problem(
                CHECK,
                key,
                f"its commit is not on the timeline, though {done.file_name} after it is",
                "a reader has missed it: publish it by any write with tidelock",
            )
        waiting.clear()
        if not _is_same(snapshot, done, commit):
            yield problem(
                CHECK,
                snapshot.timeline.key(done),
                f"its bytes are not those of ledger entry {entry.position}",
                "delete it: the next write with tidelock publishes it again from the ledger",
            )
    for key in waiting:
        yield warning(
            CHECK,
            key,
            "its commit is not on the timeline yet",
            "its writer died between the two: the next write with tidelock publishes it",
        )


def _is_archived(snapshot: TableSnapshot, done: Instant) -> bool:
    start = snapshot.timeline.start
    return done.action is Action.SAVEPOINT or (start is not None and done.requested < start)


def _is_same(snapshot: TableSnapshot, done: Instant, commit: Commit) -> bool:
    found = snapshot.store.get(snapshot.timeline.key(done))
    if found is None:
        return True  # archived while we look
    if isinstance(commit.content, Inline):
        return found.body == commit.content.data
    return hashlib.sha256(found.body).hexdigest() == commit.content.sha256


def _check_timeline(snapshot: TableSnapshot, story: _Story) -> Iterator[Finding]:
    """Look for writes on the timeline that the ledger forbids, or does not know."""
    for instant in snapshot.timeline.writes():
        key = snapshot.timeline.key(instant)
        if instant.requested in story.fold.void:
            yield problem(
                CHECK,
                key,
                "the ledger rolled it back, yet it is complete: other readers show it, ours do not",
                "move this file away from the timeline, then delete the files it names",
            )
        elif story.first_time and not _is_known(instant, story):
            yield warning(
                CHECK,
                key,
                "the ledger does not know it: a writer without a ledger made it",
                "nothing: the next write with tidelock takes it into the order",
            )


def _is_known(instant: Instant, story: _Story) -> bool:
    return (
        instant.requested in story.fold.committed
        or instant.requested < story.fold.archived
        or instant.completion < story.first_time
    )
