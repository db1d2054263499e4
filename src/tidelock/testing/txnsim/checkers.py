"""What must hold at the end of a schedule, from what the witness saw and what is in the store."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tidelock.table.naming import data_file
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.instant import parse_instant
from tidelock.testing.txnsim.truth import table_at
from tidelock.testing.txnsim.witness import PARTITION, History, WitnessedStore


def violations(history: History, store: WitnessedStore) -> Iterator[str]:
    """Yield every promise that does not hold."""
    yield from history.broken
    yield from answers(history)
    yield from _contents(history, store)
    yield from _left_over(history, store)


def answers(history: History) -> Iterator[str]:
    """T5: acknowledged is committed once; failed is not; and no write is committed twice."""
    for told in history.told:
        done = [instant for instant in told.instants if instant in history.position]
        if len(done) > 1:
            yield f"T5: {told.write} was committed as {' and '.join(done)}"
        if told.acked and told.acked not in done:
            yield f"T5: {told.write} was acknowledged as {told.acked}, and is not committed"
        if wrong := told.failed & set(done):
            yield f"T5: {told.write} was told that {wrong.pop()} failed, and it is committed"
        if not told.acked and not told.doubted and not done:
            yield f"liveness: {told.write} ended without an answer"


def _contents(history: History, store: WitnessedStore) -> Iterator[str]:
    """T4, T12, T14: the newest version of each file group has every update, in ledger order."""
    truth = table_at(history)
    found: dict[str, list[str]] = {}
    for group, paths in sorted(truth.files.items()):
        held: dict[str, list[str]] = {}
        for path in paths:
            stored = store.peek(path)
            if stored is None:
                yield f"T12: {path} is committed and gone"
                continue
            for key, writes in json.loads(stored.body).items():
                held[key] = [*held.get(key, ()), *writes]
        for key, writes in held.items():
            if key in found:
                yield f"T4: {key} is in two file groups, one is {group}"
            found[key] = writes
    for key in sorted(truth.rows.keys() | found.keys()):
        if found.get(key) != truth.rows.get(key):
            yield f"T14: {key} has {found.get(key)}, the ledger says {truth.rows.get(key)}"


def _left_over(history: History, store: WitnessedStore) -> Iterator[str]:
    """T7, T12: everything committed is on the timeline; what is not, was rolled back."""
    if missing := set(history.position) - history.published:
        yield f"T7: {min(missing)} is committed and never published"
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
            if file.instant not in history.void:
                yield f"T12: {key} belongs to no commit and was not rolled back"
