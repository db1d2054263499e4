"""A whole examination of one table and its lock, and the cure of what may safely be cured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidelock.base.clock import Clock
from tidelock.base.errors import TidelockError
from tidelock.base.ids import IdSource
from tidelock.lock.config import LockSettings
from tidelock.lock.inspect import Inspection
from tidelock.lockproviders.keys import of_table
from tidelock.lockproviders.registry import is_storage, open_provider, provider_name, short_name
from tidelock.ops.cli.status import held_since
from tidelock.ops.doctor import (
    examining,
    java_checks,
    lock_checks,
    settings_checks,
    store_checks,
    table_checks,
)
from tidelock.ops.doctor.findings import Cure, Examination, Finding, fine, note
from tidelock.ops.validate import clocks
from tidelock.ops.validate.validating import validate
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.listing import list_files
from tidelock.table.properties import TableProperties
from tidelock.table.properties_file import KEY
from tidelock.table.timeline.active import load_timeline
from tidelock.tableservice.overview import services_of
from tidelock.tableservice.removing import remove_expired
from tidelock.txn.effects import World
from tidelock.txn.fold import Fold
from tidelock.txn.heartbeat import Pulse
from tidelock.txn.reading import load
from tidelock.txn.recovery import survey
from tidelock.txn.transactions import Transactions
from tidelock.txn.waits import waiters
from tidelock.txn.writers import entries, writer_of

_JAVA_LIFE_MS: Final = 600_000
_RECENT: Final = 1_000


@dataclass(frozen=True, slots=True)
class Patient:
    """A table to be examined, with the settings that its writers are said to have."""

    store: ObjectStore
    properties: TableProperties
    settings: Mapping[str, object]
    clock: Clock
    ids: IdSource


def examine_table(patient: Patient) -> Examination:
    """Look at a table's settings, writers, plans, files, ledger, lock and clocks."""
    found: list[Finding] = list(
        settings_checks.check_settings(patient.settings, patient.properties)
    )
    try:
        found += _of_table(patient)
    except TidelockError as error:
        found.append(store_checks.refused("table", "it could not be examined", error))
    lock = _lock(patient)
    return Examination((*found, *lock.findings), lock.seen, lock.counted)


def cure_table(examination: Examination, patient: Patient) -> list[str]:
    """Mend what the examination found; return what was done, in sentences.

    Raises: `Conflict` when something changed since it was examined; `OutcomeUnknown`.
    """
    done = examining.cure(examination, patient.store, patient.clock, patient.ids)
    wanted = set(examination.cures)
    if wanted.isdisjoint({Cure.ROLL_BACK, Cure.PUBLISH, Cure.SWEEP}):
        return done
    # A transaction needs no lock for this: what decides is the ledger, and only the dead are
    # touched. Recovery publishes as well.
    with Transactions(patient.store, {}, properties=patient.properties, clock=patient.clock) as txn:
        recovered = txn.recover()
        gone = remove_expired(txn, delay_ms=_JAVA_LIFE_MS * 6) if Cure.ROLL_BACK in wanted else ()
        fold = txn.ledger.refresh()
    done += [f"rolled back {undone.instant}" for undone in recovered.undone]
    done += [f"left {instant} alone: it is alive" for instant in recovered.alive]
    done += [f"undid the plan {instant}" for instant in gone]
    if Cure.PUBLISH in wanted:
        done.append("put what the ledger has decided on the timeline")
    if Cure.SWEEP in wanted:
        done += _swept(patient, fold)
    return done


def _of_table(patient: Patient) -> Iterator[Finding]:
    store, folder = patient.store, patient.properties.timeline_folder
    world = World(store, patient.clock, patient.ids)
    view = world.perform(load())
    fold = view.fold
    seen = world.perform(survey(folder))
    writers = [
        writer_of(store, i, seen.pulses.get(i.requested), seen.now_epoch_ms, _JAVA_LIFE_MS)
        for i in seen.pending
    ]
    kept = tuple(entries(store, after=max(0, fold.position - _RECENT)))
    yield from java_checks.check_changeable(patient.properties, fold)
    off = java_checks.off_utc(fold, seen, kept)
    yield from java_checks.check_foreign(fold, seen, off)
    alive = {k: p for k, p in seen.pulses.items() if seen.is_alive(k, otherwise_ms=_JAVA_LIFE_MS)}
    foreign = fold.foreign or bool(java_checks.without_entry(fold, seen))
    yield from settings_checks.check_writers(
        patient.settings, replace(fold, foreign=foreign), kept, alive, seen.now_epoch_ms
    )
    yield from table_checks.check_stuck(writers, fold)
    yield from table_checks.check_plans(services_of(fold.plans, seen), writers)
    yield from table_checks.check_readable(load_timeline(store, folder))
    flaws = validate(store, with_rows=False).findings
    # What was said above about the time zone of the table, and of these commits, is said once.
    told = {KEY, *(f"{folder}/{instant.file_name}" for instant, _ in off)}
    left = [each for each in flaws if each.check != clocks.CHECK or each.object not in told]
    yield from table_checks.from_validation(left, frozenset(fold.void))


def _lock(patient: Patient) -> Examination:
    name = provider_name(patient.settings)
    if name is not None and not is_storage(name):
        return Examination(tuple(_other_lock(patient, short_name(name))))
    try:
        lease = LockSettings.read(patient.settings).lease
    except TidelockError:
        lease = LockSettings.read({}).lease
    found = examining.examine(patient.store, lease, patient.clock, patient.ids)
    return replace(found, findings=(*found.findings, *_waiting(patient, found.seen)))


def _waiting(patient: Patient, seen: Inspection | None) -> list[Finding]:
    """Return who waits for the storage lock; nothing where nobody has ever taken it."""
    if seen is None or not seen.exists:
        return []
    try:
        return list(
            _line(patient, lock_checks.storage_holding(seen, held_since(patient.store, seen)))
        )
    except TidelockError as error:
        return [store_checks.refused("waiting", "it could not be looked at", error)]


def _other_lock(patient: Patient, name: str) -> Iterator[Finding]:
    """Ask a lock of another kind who holds it."""
    try:
        provider = open_provider(
            of_table(
                patient.settings,
                patient.store.uri,
                name=patient.properties.name,
                database=patient.properties.database,
            )
        )
        try:
            holder = provider.holder()
        finally:
            provider.close()
        holding = lock_checks.holder_holding(holder, patient.clock.now().wall_epoch_ms)
        yield fine("lock", f"{name}: {holding}")
        if holder is not None and holder.waiters is not None:
            yield fine("waiting", f"{holder.waiters} in its queue")
        else:
            yield from _line(patient, holding)
    except TidelockError as error:
        yield note("lock", f"{name} could not be asked: {error}", "see `tidelock lock status`")


def _line(patient: Patient, holding: str) -> Iterator[Finding]:
    now_epoch_ms = patient.clock.now().wall_epoch_ms
    waiting = waiters(patient.store, now_epoch_ms)
    pulses: Mapping[str, Pulse] = {}
    if waiting:
        world = World(patient.store, patient.clock, patient.ids)
        seen = world.perform(survey(patient.properties.timeline_folder))
        pulses = {
            instant: pulse
            for instant, pulse in seen.pulses.items()
            if seen.is_alive(instant, otherwise_ms=_JAVA_LIFE_MS)
        }
    yield from lock_checks.check_waiting(holding, waiting, pulses, now_epoch_ms)


def _swept(patient: Patient, fold: Fold) -> list[str]:
    """Delete what completed writes should have taken away, and files of writes that never were."""
    store = patient.store
    timeline = load_timeline(store, patient.properties.timeline_folder)
    completed = frozenset(instant.requested for instant in timeline.completed())
    keys = table_checks.sweepable(store, completed)
    void = frozenset(fold.void)
    # C17: an instant in `void` never completes, so no reader will ever want its files.
    keys += [
        file.key
        for file in list_files(store, partitioned=patient.properties.is_partitioned)
        if file.instant in void and file.instant not in completed
    ]
    for key in keys:
        store.delete(key)
    return [f"deleted {len(keys)} objects that nobody needs"] if keys else []
