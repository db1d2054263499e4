"""Rolling back: decided in the ledger first, then the files go (C54-C59)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelock.store.contract import ObjectMeta, StoredObject
from tidelock.table.markers import marker_folder, parse_marker
from tidelock.table.naming import data_file
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.txn.appending import Appended, Declined, Doubtful, No, append
from tidelock.txn.effects import Delete, Get, List, Steps
from tidelock.txn.entry import Fact, Rollback
from tidelock.txn.fold import Evidence, lawful
from tidelock.txn.heartbeat import heartbeat_key
from tidelock.txn.view import View

_SIDE_FILES: Final = ("MARKERS.type",)


@dataclass(frozen=True, slots=True)
class Undone:
    """What a roll-back removed."""

    instant: str
    files: tuple[str, ...] = ()


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


def remove_files(instant: str, *, marked: bool, known: Iterable[str] = ()) -> Steps[Undone]:
    """Delete the data files of an instant that is void, then its markers.

    With `marked` every data file was announced by a marker before it was written; `known` are
    further ones. Without, all of the table is listed.
    """
    folder = marker_folder(instant)
    listed: tuple[ObjectMeta, ...] = yield List(folder)
    files = set(known)
    for meta in listed:
        path = meta.key.removeprefix(folder)
        marker = parse_marker(path)
        if marker is not None:
            files.add(marker.data_key)
        elif not path.endswith(_SIDE_FILES):
            files |= yield from _collected(meta.key)
    if not marked:
        files |= yield from files_of([instant])
    for file in sorted(files):
        yield Delete(file)
    for meta in listed:
        yield Delete(meta.key)
    return Undone(instant, tuple(sorted(files)))


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


def remove_announcement(
    instant: str, action: Action, *, folder: str, keep_plan: bool = False
) -> Steps[None]:
    """Delete the instant's files on the timeline, the last state first, and its heartbeat.

    With `keep_plan` the request stays, to be executed again.
    """
    requested = Instant(instant, action, State.REQUESTED)
    yield Delete(f"{folder}/{requested.started().file_name}")
    if not keep_plan:
        yield Delete(f"{folder}/{requested.file_name}")
    yield Delete(heartbeat_key(instant))
