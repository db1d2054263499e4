"""What must hold at the end of a schedule with services; the witness has watched every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelock.table.naming import data_file
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.archive import Archive
from tidelock.table.timeline.instant import Instant, parse_instant
from tidelock.testing.txnsim.checkers import answers
from tidelock.testing.txnsim.services.truth import Truth, rows_of
from tidelock.testing.txnsim.services.watching import WatchedStore
from tidelock.testing.txnsim.witness import PARTITION


def violations(truth: Truth, store: WatchedStore) -> Iterator[str]:
    """Yield every promise that does not hold."""
    yield from truth.broken
    yield from answers(truth)
    yield from _rows(truth, store)
    yield from _history(truth, store)
    yield from _left_over(truth, store)


def _rows(truth: Truth, store: WatchedStore) -> Iterator[str]:
    """G3, G5, G7, G11: every acknowledged update is there once, in the order of the ledger."""
    owner = {instant: told for told in truth.told for instant in told.instants}
    expected: dict[str, list[str]] = {}
    for _, commit in truth.commits:
        told = owner.get(commit.instant)
        for key in told.keys if told is not None else ():
            expected.setdefault(key, []).append(told.write if told is not None else "")
    found = rows_of(truth.state(), store.body)
    if found != expected:
        yield f"G11: the table has {found}, the ledger says {expected}"


def _history(truth: Truth, store: WatchedStore) -> Iterator[str]:
    """S1, S7, G6, G9: every commit is on the timeline or in the history, and completed once."""
    if missing := set(truth.position) - truth.published:
        yield f"G6: {min(missing)} is committed and never published"
    done: dict[str, set[str]] = {}
    for instant in _instants(store):
        if instant.is_completed:
            done.setdefault(instant.requested, set()).add(instant.completion)
    for archived in Archive(store).instants():
        done.setdefault(archived.requested, set()).add(archived.completion)
    for requested, completions in sorted(done.items()):
        if len(completions) > 1:
            yield f"S1: {requested} is completed at {sorted(completions)}"
    if lost := set(truth.position) - set(done):
        yield f"S7: {min(lost)} is neither on the timeline nor in the history"


def _left_over(truth: Truth, store: WatchedStore) -> Iterator[str]:
    """S6, S10, G14: nothing of the dead is left that anybody could take for rows."""
    for instant in _instants(store):
        if not instant.is_completed and instant.requested not in truth.position:
            yield f"S10: {instant.file_name} was left by the dead"
    named = {key for files in truth.written.values() for key in files.values()}
    shown = {
        key for (i, _), fs in truth.written.items() if i in truth.position for key in fs.values()
    }
    committed = {e.instant: e.attempt for _, e in truth.commits}
    for key in store.all_keys():
        if not key.startswith(f"{PARTITION}/"):
            continue
        file = data_file(PARTITION, key.rpartition("/")[2], 0)
        if file is None or file.instant in truth.void:
            continue
        if file.instant not in truth.position:
            yield f"G14: {key} belongs to no commit and was not rolled back"
        elif key in named and key in shown:
            attempt = committed.get(file.instant)
            counted = truth.written.get((file.instant, attempt or 0), {})
            if key not in counted.values() and not _is_late(truth, store, key, counted):
                yield f"G14: {key} is of an attempt that did not count, and readers may show it"


def _is_late(truth: Truth, store: WatchedStore, key: str, counted: Mapping[str, str]) -> bool:
    """Tell whether a file landed when its plan was complete, with the rows of the one that counts.

    Requests of the dead may arrive at any time. Readers that list show the one or the other, until
    the archive, or by its marker a clean, takes it away (C94, C98).
    """
    file, found = data_file(PARTITION, key.rpartition("/")[2], 0), store.peek(key)
    if file is None or found is None:
        return False
    same = store.body(counted.get(file.file_id, "")) == found.body
    return same and found.modified_epoch_ms >= truth.completed_ms.get(file.instant, 0)


def _instants(store: WatchedStore) -> Iterator[Instant]:
    for key in store.all_keys():
        if key.startswith(f"{TIMELINE_FOLDER}/") and key.count("/") == 2:
            found = parse_instant(key.rpartition("/")[2])
            if found is not None:
                yield found
