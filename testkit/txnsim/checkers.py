"""Checks at the end of a schedule, on the recorded history and the content of the store."""

from __future__ import annotations

import json
from collections.abc import Iterator

from testkit.txnsim.checked_store import PARTITION, CheckedStore, History
from testkit.txnsim.truth import table_at
from tidelock.hudi.file_groups import data_file
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.instant import parse_instant


def violations(history: History, store: CheckedStore) -> Iterator[str]:
    """Yield all violated guarantees."""
    yield from history.broken
    yield from answers(history)
    yield from _contents(history, store)
    yield from _left_over(history, store)


def answers(history: History) -> Iterator[str]:
    """T5: an acknowledged write is committed once, a failed one is not, and none is committed
    twice."""
    for record in history.records:
        done = [instant for instant in record.instants if instant in history.position]
        if len(done) > 1:
            yield f"T5: {record.write} was committed as {' and '.join(done)}"
        if record.acked and record.acked not in done:
            yield f"T5: {record.write} was acknowledged as {record.acked}, but is not committed"
        if wrong := record.failed & set(done):
            yield f"T5: {record.write} failed as {wrong.pop()}, but that is committed"
        if not record.acked and not record.unknown and not done:
            yield f"liveness: {record.write} ended without an answer"


def _contents(history: History, store: CheckedStore) -> Iterator[str]:
    """T4, T12, T14: the newest version of each file group has all updates, in ledger order."""
    truth = table_at(history)
    found: dict[str, list[str]] = {}
    for group, paths in sorted(truth.files.items()):
        held: dict[str, list[str]] = {}
        for path in paths:
            stored = store.peek(path)
            if stored is None:
                yield f"T12: {path} is committed, but missing"
                continue
            for key, writes in json.loads(stored.body).items():
                held[key] = [*held.get(key, ()), *writes]
        for key, writes in held.items():
            if key in found:
                yield f"T4: {key} is in two file groups, one is {group}"
            found[key] = writes
    for key in sorted(truth.rows.keys() | found.keys()):
        if found.get(key) != truth.rows.get(key):
            yield f"T14: {key}: expected {truth.rows.get(key)}, found {found.get(key)}"


def _left_over(history: History, store: CheckedStore) -> Iterator[str]:
    """T7, T12: everything committed is on the timeline; everything else was rolled back."""
    if missing := set(history.position) - history.published:
        yield f"T7: {min(missing)} is committed, but not published"
    for key in store.all_keys():
        if key.startswith(f"{TIMELINE_FOLDER}/"):
            instant = parse_instant(key.rpartition("/")[2])
            if instant is None or instant.is_completed:
                continue
            if instant.requested not in history.position:
                yield f"T12: {key} was left by a dead writer and not rolled back"
        elif key.startswith(f"{PARTITION}/"):
            file = data_file(PARTITION, key.rpartition("/")[2], 0)
            if file is None or file.instant in history.position:
                continue
            if file.instant not in history.aborted:
                yield f"T12: {key} belongs to no commit and was not rolled back"
