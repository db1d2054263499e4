"""Checks at the end of a schedule with services; the store has checked every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testkit.txnsim.checked_store import PARTITION
from testkit.txnsim.checkers import answers
from testkit.txnsim.services.checked_store import CheckedServiceStore
from testkit.txnsim.services.truth import Truth, rows_of
from tidelock.hudi.file_groups import data_file
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.history import Archive
from tidelock.hudi.timeline.instant import Instant, parse_instant


def violations(truth: Truth, store: CheckedServiceStore) -> Iterator[str]:
    """Yield all violated guarantees."""
    yield from truth.broken
    yield from answers(truth)
    yield from _rows(truth, store)
    yield from _history(truth, store)
    yield from _left_over(truth, store)


def _rows(truth: Truth, store: CheckedServiceStore) -> Iterator[str]:
    """G3, G5, G7, G11: every acknowledged update is there once, in ledger order."""
    owner = {instant: record for record in truth.records for instant in record.instants}
    expected: dict[str, list[str]] = {}
    for _, commit in truth.commits:
        record = owner.get(commit.instant)
        for key in record.keys if record is not None else ():
            expected.setdefault(key, []).append(record.write if record is not None else "")
    found = rows_of(truth.state(), store.body)
    if found != expected:
        yield f"G11: expected the rows {expected}, found {found}"


def _history(truth: Truth, store: CheckedServiceStore) -> Iterator[str]:
    """S1, S7, G6, G9: every commit is on the timeline or in the history, and completed once."""
    if missing := set(truth.position) - truth.published:
        yield f"G6: {min(missing)} is committed, but not published"
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


def _left_over(truth: Truth, store: CheckedServiceStore) -> Iterator[str]:
    """S6, S10, G14: no files of dead writers are left that readers could use."""
    for instant in _instants(store):
        if not instant.is_completed and instant.requested not in truth.position:
            yield f"S10: {instant.file_name} was left by a dead process"
    named = {key for files in truth.written.values() for key in files.values()}
    shown = {
        key for (i, _), fs in truth.written.items() if i in truth.position for key in fs.values()
    }
    committed = {e.instant: e.attempt for _, e in truth.commits}
    for key in store.all_keys():
        if not key.startswith(f"{PARTITION}/"):
            continue
        file = data_file(PARTITION, key.rpartition("/")[2], 0)
        if file is None or file.instant in truth.aborted:
            continue
        if file.instant not in truth.position:
            yield f"G14: {key} belongs to no commit and was not rolled back"
        elif key in named and key in shown:
            attempt = committed.get(file.instant)
            counted = truth.written.get((file.instant, attempt or 0), {})
            if key not in counted.values() and not _is_late(truth, store, key, counted):
                yield f"G14: {key} belongs to an attempt that was not committed, but is readable"


def _is_late(
    truth: Truth, store: CheckedServiceStore, key: str, counted: Mapping[str, str]
) -> bool:
    """Return whether a file landed after its plan was complete, with the same rows.

    Requests of dead processes may arrive at any time. Readers that list files use either one, until
    the archive, or through its marker a clean, deletes it (C94, C98).
    """
    file, found = data_file(PARTITION, key.rpartition("/")[2], 0), store.peek(key)
    if file is None or found is None:
        return False
    same = store.body(counted.get(file.file_id, "")) == found.body
    return same and found.modified_epoch_ms >= truth.completed_ms.get(file.instant, 0)


def _instants(store: CheckedServiceStore) -> Iterator[Instant]:
    for key in store.all_keys():
        if key.startswith(f"{TIMELINE_FOLDER}/") and key.count("/") == 2:
            found = parse_instant(key.rpartition("/")[2])
            if found is not None:
                yield found
