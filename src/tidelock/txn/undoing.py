"""Rolling back: decided in the ledger first, then the files go (C54-C59)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tidelock.store.contract import ObjectMeta, StoredObject
from tidelock.table.markers import marker_folder, parse_marker
from tidelock.table.naming import data_file, parse_token
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action, Instant, State, parse_instant
from tidelock.table.timeline.metadata import CommitMetadata, ReplaceCommitMetadata
from tidelock.txn.appending import Appended, Declined, Doubtful, No, append
from tidelock.txn.draft import schema_id_of
from tidelock.txn.effects import Delete, Get, List, Steps
from tidelock.txn.entry import Claim, Commit, Entry, Fact, Rollback, Turn, Undo
from tidelock.txn.fold import Evidence, lawful
from tidelock.txn.footprint import Deed
from tidelock.txn.heartbeat import heartbeat_key
from tidelock.txn.mark import Applied
from tidelock.txn.reading import forward, history
from tidelock.txn.undorecords import Undone
from tidelock.txn.view import View, past_of

logger = logging.getLogger(__name__)

_SIDE_FILES: Final = ("MARKERS.type",)


def decide(
    view: View, fact: Rollback, *, seen: Evidence, owner: str
) -> Steps[Appended | Declined[str] | Doubtful]:
    """Append the roll-back, unless the instant's fate is decided.

    An instant that is void already is `Declined`; whoever finds that may go on with its files.
    """

    def propose(now: View) -> Fact | No[str]:
        problem = lawful(fact, now.fold, seen, owner=owner)
        return fact if problem is None else No(problem)

    return (yield from append(view, propose, owner=owner))


def decide_plan(
    view: View, fact: Undo, *, base: int, seen: Evidence, owner: str, attempt: int | None = None
) -> Steps[Appended | Declined[str] | Doubtful]:
    """Append a plan to undo instants, made of the table at position `base`.

    C85: what was complete is taken back only as it was found: whatever was committed or planned
    since may stand on it. `attempt` is the last one at a pending plan that was found dead.
    """
    older = (yield from history(view, base)) if fact.complete else ()
    first = view.position

    def propose(now: View) -> Fact | No[str]:
        problem = lawful(fact, now.fold, seen, owner=owner)
        if problem is not None:
            return No(problem)
        for plan in () if attempt is None else map(now.fold.plans.get, fact.instants):
            # C69: whoever claimed it since was not looked at, and may be alive.
            if plan is not None and plan.attempt != attempt:
                return No(f"{plan.instant} was claimed by others since")
        entries = older if now.position == first else now.since(base)
        if fact.complete and (entries is None or base < now.fold.boundary):
            return No("more was committed since it was planned than is remembered")
        for entry in (entries or ()) if fact.complete else ():
            if _stands_on_it(entry):
                return No(f"entry {entry.position} was appended since it was planned")
        return fact

    return (yield from append(view, propose, owner=owner))


def _stands_on_it(entry: Entry) -> bool:
    """Tell whether an entry may rest on the table as it was before, or change what is planned."""
    if isinstance(entry.fact, Claim | Turn | Rollback):
        return False
    past = past_of(entry)
    return past is None or past.footprint.deed is not Deed.ROLLBACK


def remove_files(instant: str, *, marked: bool, known: Iterable[str] = ()) -> Steps[Undone]:
    """Delete the data files of an instant that is void, then its markers.

    With `marked` every data file was announced by a marker before it was written; `known` are
    further ones. Without, all of the table is listed.
    """
    listed: tuple[ObjectMeta, ...] = yield List(marker_folder(instant))
    files = set(known) | (yield from _announced(instant, listed))
    if not marked:
        files |= yield from files_of([instant])
    for file in sorted(files):
        yield Delete(file)
    for meta in listed:
        yield Delete(meta.key)
    return Undone(instant, tuple(sorted(files)))


def marked_files(instant: str) -> Steps[set[str]]:
    """Return the data files of an instant that have a marker."""
    listed: tuple[ObjectMeta, ...] = yield List(marker_folder(instant))
    return (yield from _announced(instant, listed))


def _announced(instant: str, listed: Iterable[ObjectMeta]) -> Steps[set[str]]:
    folder = marker_folder(instant)
    files: set[str] = set()
    for meta in listed:
        path = meta.key.removeprefix(folder)
        marker = parse_marker(path)
        if marker is not None:
            files.add(marker.data_key)
        elif not path.endswith(_SIDE_FILES):
            files |= yield from _collected(meta.key)
    return files


def _collected(key: str) -> Steps[set[str]]:
    """Return the data files that a Java marker server announced in one file."""
    found: StoredObject | None = yield Get(key)
    lines = found.body.decode("utf-8", "replace").splitlines() if found else []
    return {marker.data_key for line in lines if (marker := parse_marker(line)) is not None}


def files_of(instants: Iterable[str]) -> Steps[set[str]]:
    """Return every data file of some instants, by listing all of the table."""
    wanted = frozenset(instants)
    listed: tuple[ObjectMeta, ...] = yield List("")
    found: set[str] = set()
    for meta in listed:
        partition, _, name = meta.key.rpartition("/")
        if partition == ".hoodie" or partition.startswith(".hoodie/"):
            continue
        file = data_file(partition, name, meta.size_bytes)
        if file is not None and file.instant in wanted:
            found.add(meta.key)
    return found


def attempt_of(key: str) -> int | None:
    """Return the attempt in the name of a data file or marker: the middle of its write token."""
    name = key.rpartition("/")[2].partition(".marker.")[0].removesuffix(".cdc")
    for piece in name.removesuffix(".parquet").split("_"):
        token = parse_token(piece)
        if token is not None:
            return token.stage
    return None


def remove_undone(
    instant: str, *, folder: str, marked: bool, known: Iterable[str] = ()
) -> Steps[Undone]:
    """Remove everything of an instant that is void, as a whole: it may have completed.

    C55: the file that says that it is complete goes first, so that readers stop looking for its
    data files before those go.
    """
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/{instant}")
    states = [
        (found, meta.key)
        for meta in listed
        if (found := parse_instant(meta.key.removeprefix(f"{folder}/"))) is not None
        and found.requested == instant
    ]
    states.sort(key=lambda pair: -pair[0].state)
    actions = [found.action.value for found, _ in states if found.action is not Action.SAVEPOINT]
    for found, key in states:
        if found.is_completed:
            yield Delete(key)
    undone = yield from remove_files(instant, marked=marked, known=known)
    for found, key in states:
        if not found.is_completed:
            yield Delete(key)
    yield Delete(heartbeat_key(instant))
    return Undone(instant, undone.files, actions[0] if actions else Action.COMMIT.value)


def remove_announcement(instant: str, action: Action, *, folder: str) -> Steps[None]:
    """Delete the instant's files on the timeline, the last state first, and its heartbeat."""
    requested = Instant(instant, action, State.REQUESTED)
    yield Delete(f"{folder}/{requested.started().file_name}")
    yield Delete(f"{folder}/{requested.file_name}")
    yield Delete(heartbeat_key(instant))


def marks_left(view: View, undone: Iterable[str]) -> Steps[dict[str, Applied | None]]:
    """Return the last mark of each application whose last batch is undone, without that (C82).

    None if there was none before. What the ledger has folded away is not known, and left out.
    """
    taken, fold = {*undone}, view.fold
    lost = {name for name, held in fold.marks.items() if held.instant in taken}
    if not lost:
        return {}
    entries = yield from history(view, view.boundary)
    if entries is None:
        # The boundary has moved since.
        view = yield from forward(view)
        entries = yield from history(view, view.boundary)
    left: dict[str, Applied | None] = {}
    if entries is not None:
        first = {} if view.boundary else dict.fromkeys(lost)
        left = _last_marks(entries, lost, taken | {*fold.void}, first)
    for name in sorted(lost - left.keys()):
        logger.warning(
            "the batch of %r before the one that is taken back is not known any more: its batches"
            " up to %d count as applied, so send them again with a larger number",
            name,
            fold.marks[name].mark.version,
        )
    return left


def _last_marks(
    entries: Iterable[Entry],
    names: Collection[str],
    gone: Collection[str],
    first: Mapping[str, Applied | None],
) -> dict[str, Applied | None]:
    """Return the last marks that entries tell of, but for those of `gone`; `first` is before them.

    Each batch names the one that it follows, so the first of an application tells of one before.
    """
    left = dict(first)
    for entry in entries:
        fact = entry.fact
        if not isinstance(fact, Commit) or fact.mark is None or fact.action is Action.SAVEPOINT:
            continue
        name = fact.mark.application
        if name not in names:
            continue
        if fact.instant not in gone:
            left[name] = Applied(fact.mark, fact.instant, entry.time)
        elif name not in left and name in fact.follows:
            before = fact.follows[name]
            if before is None or before.instant not in gone:
                left[name] = before
    return left


def newest_schema(folder: str, gone: Collection[str]) -> Steps[str]:
    """Return the schema's name in the newest completed write on a timeline, "" without one.

    When commits are taken back, those of `gone`, their schema goes with them.
    """
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/")
    found = (parse_instant(meta.key.removeprefix(f"{folder}/")) for meta in listed)
    writes = [i for i in found if i is not None and i.is_completed and i.action.writes_data]
    for instant in sorted(writes, reverse=True):
        key = f"{folder}/{instant.file_name}"
        held: StoredObject | None = yield Get(key)
        if held is None or instant.requested in gone:
            continue
        replaces = instant.action is Action.REPLACE_COMMIT
        kind = ReplaceCommitMetadata if replaces else CommitMetadata
        if schema := decode(kind, held.body, where=key).schema_json:
            return schema_id_of(schema)
    return ""
