"""`tidelock doctor`: examine a table and its lock, and repair what can be repaired safely."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelock.core.clock import Clock
from tidelock.core.config import check_values
from tidelock.core.errors import ConfigInvalid, DataCorrupt, ErrorKind, TidelockError
from tidelock.core.formatting import duration, pluralize
from tidelock.core.ids import IdSource
from tidelock.execution.filegroup.key_lookup import IndexKind
from tidelock.hudi.file_groups import GroupId
from tidelock.hudi.partitions import list_files
from tidelock.hudi.properties import KEY, TableProperties
from tidelock.hudi.timeline.active import ActiveTimeline, load_timeline
from tidelock.hudi.timeline.instant import Action, Instant, parse_time
from tidelock.inspect import lock_doctor, store_checks, validate_ledger, validate_timeline
from tidelock.inspect.findings import DoctorFinding, Examination, Repair, note, ok, problem
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_findings import Severity, ValidationFinding
from tidelock.lock.admin import Condition, Inspection, held_since
from tidelock.lock.client import reject_unknown_keys
from tidelock.lock.config import PROVIDER, RENEW_S, VALIDITY_S, LockSettings
from tidelock.lock.provider import Holder
from tidelock.lock.providers import registry
from tidelock.lock.providers.config import of_table
from tidelock.operations.config import WriteSettings
from tidelock.services.pending import PendingService, remove_expired, services_of
from tidelock.storage.contract import ObjectStore
from tidelock.txn.commit import obstacles
from tidelock.txn.config import (
    CONCURRENCY_MODE,
    FAILED_WRITES,
    ConcurrencyMode,
    FailedWrites,
    TxnSettings,
)
from tidelock.txn.effects import EffectRunner
from tidelock.txn.entries import Commit, ExternalCommit, LedgerEntry
from tidelock.txn.external_writers import off_utc_ms
from tidelock.txn.heartbeats import JAVA_LIFETIME_MS, Heartbeat, HeartbeatStatus
from tidelock.txn.ledger_io import load
from tidelock.txn.queueing import LockWaiter, waiters
from tidelock.txn.recovery import PendingScan, scan_pending
from tidelock.txn.state import LedgerState
from tidelock.txn.transaction_manager import TransactionManager
from tidelock.txn.writers import ActiveWriter, entries, writer_of

Heartbeats = Mapping[str, HeartbeatStatus]
"""Heartbeats by instant."""

_CORRUPT: Final = ErrorKind.DATA_CORRUPT.exit_code
_OLD_MS: Final = 3_600_000
_SWEPT: Final = ("leftovers",)
_SHOWN: Final = 20


def check_stuck(writers: Sequence[ActiveWriter], state: LedgerState) -> Iterator[DoctorFinding]:
    """Check the writes that are in progress."""
    dead = [each for each in writers if not each.alive and each.instant not in state.plans]
    alive = [each for each in writers if each.alive]
    for writer in dead[:_SHOWN]:
        age = "no heartbeat"
        if writer.age_ms is not None:
            age = f"last heartbeat {duration(writer.age_ms)} ago"
        decided = " although the ledger has decided it" if state.is_resolved(writer.instant) else ""
        where = f" from {writer.host}:{writer.pid}" if writer.host else ""
        yield note(
            "writers",
            f"{writer.action} {writer.instant}{where} is unfinished{decided}: {age}. Later instants"
            " are not archived, and its files remain",
            "--fix rolls it back; so does the next clean",
            repair=Repair.ROLL_BACK,
        )
    if not dead:
        yield ok("writers", f"{len(alive)} active, none dead")


def check_plans(
    services: Sequence[PendingService], writers: Sequence[ActiveWriter]
) -> Iterator[DoctorFinding]:
    """Check the pending plans."""
    for plan in services[:_SHOWN]:
        yield _plan(plan, writers)
    if not services:
        yield ok("plans", "none pending")


def _plan(plan: PendingService, writers: Sequence[ActiveWriter]) -> DoctorFinding:
    concurrent = [w for w in writers if w.instant != plan.instant and w.groups & plan.groups]
    groups = pluralize(len(plan.groups), "file group")
    reserved = f"it reserves {groups}: {_some(plan.groups)}" if plan.groups else ""
    writes = f"; {pluralize(len(concurrent), 'running write')} there" if concurrent else ""
    message = f"{plan.action} {plan.instant}, {duration(plan.age_ms)} old, {plan.next_step}; "
    message += f"{reserved or 'it reserves no file group'}{writes}"
    if plan.alive:
        return ok("plans", message)
    if plan.removable and plan.state == "inflight":
        return note("plans", message, "--fix rolls it back", Repair.ROLL_BACK)
    if not plan.ours and plan.age_ms > _OLD_MS:
        hint = (
            "run the Java service that planned it, or execute it here (tidelock.write.mixed=true)"
        )
        return note("plans", message, hint)
    if plan.age_ms > _OLD_MS:
        command = {"compaction": "compact", "clustering": "cluster"}.get(plan.action, plan.action)
        return note("plans", message, f"run `tidelock {command} URI execute`")
    return ok("plans", message)


def check_readable(timeline: ActiveTimeline) -> Iterator[DoctorFinding]:
    """Check that pending plans can be read: a corrupt one blocks all later services."""
    readers: Mapping[Action, str] = {
        Action.COMPACTION: "compaction_plan",
        Action.LOG_COMPACTION: "compaction_plan",
        Action.CLUSTERING: "replace_request",
        Action.REPLACE_COMMIT: "replace_request",
    }
    corrupt = False
    for instant in timeline.pending(*readers):
        try:
            getattr(timeline, readers[instant.action])(instant)
        except DataCorrupt as error:
            corrupt = True
            yield problem(
                "plans",
                f"the plan {instant.requested} cannot be read: {error.message}",
                "restore the file from a copy; plans of tidelock are in the ledger too, and are"
                " published again after the corrupt file is deleted",
                exit_code=_CORRUPT,
            )
        except TidelockError:
            continue  # deleted in the meantime
    if not corrupt:
        yield ok("plans", "all can be read")


def from_validation(
    found: Sequence[ValidationFinding], aborted: frozenset[str]
) -> Iterator[DoctorFinding]:
    """Convert the findings of a validation."""
    for each in found[:_SHOWN]:
        message = f"{each.object}: {each.what}"
        orphan = any(instant in each.object for instant in aborted)
        repair = Repair.SWEEP if each.check in _SWEPT or orphan else None
        if validate_ledger.UNPUBLISHED in each.what:
            repair = Repair.PUBLISH
        if each.severity is Severity.PROBLEM:
            yield problem(each.check, message, each.next_step, repair=repair)
        else:
            yield note(each.check, message, each.next_step, repair)
    if len(found) > _SHOWN:
        yield note("table", f"and {len(found) - _SHOWN} more", "run `tidelock table validate`")
    if not found:
        yield ok("table", "timeline, files and ledger agree")


def sweepable(store: ObjectStore, completed: frozenset[str]) -> list[str]:
    """Return the markers and heartbeats of completed writes."""
    return [
        meta.key
        for folder in (".hoodie/.temp/", ".hoodie/.heartbeat/")
        for meta in store.list(folder)
        if meta.key.removeprefix(folder).partition("/")[0] in completed
    ]


def _some(groups: frozenset[GroupId]) -> str:
    names = sorted("/".join(filter(None, group)) for group in groups)
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


_SHOWN_LOCK_CHECKS = 10
_LONG_MS = 60_000
"""Hudi's default lock timeout: a longer wait has timed out at least once."""


def check_waiting(
    holding: str, waiting: Sequence[LockWaiter], heartbeats: Heartbeats, now_epoch_ms: int
) -> Iterator[DoctorFinding]:
    """Report the waiters, and the writers that may hold the lock.

    `holding` describes the holder. The owner of a storage lock is only an id, so the advice also
    names active writers that use the lock and do not wait.
    """
    if not waiting:
        yield ok("waiting", "no writer reports that it waits for the lock")
        return
    candidates = _candidates(waiting, heartbeats)
    for waiter in waiting[:_SHOWN_LOCK_CHECKS]:
        waited_ms = max(0, now_epoch_ms - waiter.since_epoch_ms)
        message = (
            f"{waiter.owner} (process {waiter.pid} on {waiter.host}) has waited for the lock for"
            f" {duration(waited_ms)}; {holding}"
        )
        if waited_ms < _LONG_MS:
            yield ok("waiting", message)
        else:
            yield note("waiting", message, _advice(candidates))
    if len(waiting) > _SHOWN_LOCK_CHECKS:
        yield note(
            "waiting",
            f"{len(waiting) - _SHOWN_LOCK_CHECKS} more are waiting",
            "run `tidelock ui URI`",
        )


def storage_holding(seen: Inspection | None, since_epoch_ms: int | None) -> str:
    """Describe the holder of the storage lock; `since_epoch_ms` is known if it is audited."""
    if seen is None or seen.record is None or seen.record.expired:
        return "it is not held"
    owner = f"{seen.record.owner}{'' if seen.record.is_ours else ' (a Hudi Java writer)'}"
    if seen.condition is not Condition.HELD:
        return f"{owner} did not release it, and it can be taken over soon"
    if since_epoch_ms is not None:
        held = duration(seen.seen_at.wall_epoch_ms - since_epoch_ms)
        return f"{owner} has held it for {held}"
    return f"{owner} holds it, renewed {duration(seen.written_ago_ms)} ago"


def holder_holding(holder: Holder | None, now_epoch_ms: int) -> str:
    """Describe the holder of another provider's lock, as far as its backend reports it."""
    if holder is None:
        return "it is not held"
    if holder.since_epoch_ms is None:
        return f"{holder.owner} holds it"
    return f"{holder.owner} has held it for {duration(now_epoch_ms - holder.since_epoch_ms)}"


def _candidates(waiting: Sequence[LockWaiter], heartbeats: Heartbeats) -> list[str]:
    waiting_owners = {waiter.owner for waiter in waiting}
    return [
        f"{record.owner} (process {record.pid} on {record.host}, {instant})"
        for instant, heartbeat in sorted(heartbeats.items())
        if (record := heartbeat.record) is not None
        and record.lock
        and record.owner not in waiting_owners
    ]


def _advice(candidates: Sequence[str]) -> str:
    after = "if the holder has ended, run `tidelock lock force-release URI`"
    if not candidates:
        return f"no active tidelock writer uses the lock; {after}"
    named = ", ".join(candidates[:_SHOWN_LOCK_CHECKS])
    return f"active writers that use the lock and do not wait: {named}; {after}"


_REFUSED: Final = ErrorKind.UNSUPPORTED.exit_code
_SHOWN_JAVA_CHECKS: Final = 3


def check_changeable(properties: TableProperties, state: LedgerState) -> Iterator[DoctorFinding]:
    """Check whether tidelock may write the table.

    If tidelock has never written it, this is a note and not a problem.
    """
    found = tuple(obstacles(properties))
    for obstacle in found:
        message = f"tidelock refuses every write and service: the table {obstacle.why}"
        if state.position:
            yield problem(obstacle.about, message, obstacle.hint, exit_code=_REFUSED)
        else:
            yield note(obstacle.about, message, obstacle.hint)
    if not found:
        yield ok("table", "it can be written: no metadata table, and times in UTC")


def without_entry(state: LedgerState, seen: PendingScan) -> tuple[Instant, ...]:
    """Return the completed writes that are on the timeline and not in a ledger in use."""
    done = (
        i for i in seen.completed if i.action.writes_data and not state.is_resolved(i.requested)
    )
    return tuple(done) if state.position else ()


def check_external(
    state: LedgerState, seen: PendingScan, off: Sequence[tuple[Instant, int]]
) -> Iterator[DoctorFinding]:
    """Check the commits of external writers: those not in the ledger yet, and their times.

    `off` is the result of `off_utc`.
    """
    unknown = without_entry(state, seen)
    if unknown:
        times = ", ".join(each.requested for each in unknown[:_SHOWN_JAVA_CHECKS])
        more = ", …" if len(unknown) > _SHOWN_JAVA_CHECKS else ""
        yield note(
            "ledger",
            f"{pluralize(len(unknown), 'commit')} of external writers (Java) not in the ledger yet:"
            f" {times}{more}",
            "no action is needed: the next write or service of tidelock imports them",
        )
    yield from _check_times(off)


def off_utc(
    state: LedgerState, seen: PendingScan, recent: Sequence[LedgerEntry]
) -> tuple[tuple[Instant, int], ...]:
    """Return the commits of external writers whose times are not in UTC, newest first.

    Each comes with the milliseconds by which it is ahead of the time of its file.
    """
    unknown = without_entry(state, seen)
    external = {entry.fact.instant for entry in recent if isinstance(entry.fact, ExternalCommit)}
    found = []
    for instant in reversed(seen.completed):
        written = seen.written_epoch_ms.get(instant)
        suspect = instant.requested in external or instant in unknown
        if suspect and written is not None and instant.completion:
            ahead_ms = off_utc_ms(instant.completion, written)
            found += [(instant, ahead_ms)] if ahead_ms else []
    return tuple(found)


def _check_times(off: Sequence[tuple[Instant, int]]) -> Iterator[DoctorFinding]:
    for instant, ahead_ms in off[:1]:
        side = "ahead of" if ahead_ms > 0 else "behind"
        which = f"{instant.action} {instant.requested} of an external writer (Java)"
        if len(off) > 1:
            which = f"the last of {len(off)} commits, {which},"
        yield problem(
            "time zone",
            f"{which} has a completion time {duration(abs(ahead_ms))} {side} UTC: its writer uses"
            " another time zone, and older rows may hide its rows",
            "run such writers with -Duser.timezone=UTC; Hudi jobs on Spark take the time zone from"
            " hoodie.table.timeline.timezone",
        )


_WRONG: Final = ErrorKind.INVALID_INPUT.exit_code
_RECENTLY_MS: Final = 3_600_000
_INPROCESS: Final = "InProcessLockProvider"


def check_settings(
    settings: Mapping[str, object], properties: TableProperties
) -> Iterator[DoctorFinding]:
    """Check the settings of a writer, and report every mistake."""
    if not settings:
        yield ok("settings", "not checked: pass the file of a writer with --props")
        return
    wrong = [
        *_invalid("settings", lambda: reject_unknown_keys(settings)),
        *_invalid("settings", lambda: check_values(settings)),
        *_invalid("lock", lambda: LockSettings.read(settings), _ratio(settings)),
        *_invalid("mode", lambda: _txn(settings, properties)),
        *_provider(settings, properties),
    ]
    yield from wrong or [ok("settings", "valid")]


def _txn(settings: Mapping[str, object], properties: TableProperties) -> None:
    txn_settings = TxnSettings.read(settings)
    buckets = WriteSettings.read(settings, properties).index is IndexKind.BUCKET
    txn_settings.check_table(properties, simple_buckets=buckets)


def _invalid(about: str, check: Callable[[], object], advice: str = "") -> Iterator[DoctorFinding]:
    try:
        check()
    except ConfigInvalid as error:
        yield problem(
            about, error.message, advice or error.hint or "change the setting", exit_code=_WRONG
        )


def _ratio(settings: Mapping[str, object]) -> str:
    try:
        validity, renew = VALIDITY_S.required(settings), RENEW_S.required(settings)
    except ConfigInvalid:
        return ""
    if validity >= 10 * renew:
        return ""
    return f"set {RENEW_S.key}={max(1, validity // 10)}, or {VALIDITY_S.key}={10 * renew}"


def _provider(
    settings: Mapping[str, object], properties: TableProperties
) -> Iterator[DoctorFinding]:
    name = registry.provider_name(settings)
    if name is None:
        return
    try:
        registry.class_path_of(name)
    except ConfigInvalid:
        known = ", ".join(sorted(each.rpartition(".")[2] for each in registry.PROVIDERS))
        yield problem(
            "lock",
            f"{PROVIDER.key}: unknown lock provider {name!r}",
            f"use one of {known}",
            exit_code=_WRONG,
        )
    else:
        if name.endswith(_INPROCESS):
            yield problem(
                "lock",
                f"{PROVIDER.key}: {name} excludes only threads of one process; other processes may"
                f" write {properties.name}",
                "use the storage lock: tidelock.lock.providers.storage.StorageLockProvider",
                exit_code=_WRONG,
            )
    mode = settings.get(CONCURRENCY_MODE.key)
    if mode is None:
        yield note(
            "mode",
            f"{CONCURRENCY_MODE.key}: not set, so Hudi ignores the lock provider",
            f"set {CONCURRENCY_MODE.key}={ConcurrencyMode.OPTIMISTIC.value}",
        )


def check_writers(
    settings: Mapping[str, object],
    state: LedgerState,
    entries: Sequence[LedgerEntry],
    heartbeats: Heartbeats,
    now_epoch_ms: int,
) -> Iterator[DoctorFinding]:
    """Check the heartbeats and the recent commits of writers against each other."""
    recent = [e for e in entries if now_epoch_ms - parse_time(e.time) < _RECENTLY_MS]
    owners = {entry.owner for entry in recent if isinstance(entry.fact, Commit)}
    wrong = [
        *_different_locks(heartbeats),
        *_single_writers(heartbeats),
        *_without_lock(recent),
        *_token_restarts(recent),
        *_unlocked_external(settings, state, recent),
        *_eager_cleaning(settings, state, owners),
        *_clock_ahead(state, now_epoch_ms),
    ]
    yield from wrong or [
        ok("writers", f"{len(owners)} committed in the last hour, with the same configuration")
    ]


def _different_locks(heartbeats: Heartbeats) -> Iterator[DoctorFinding]:
    """Report writers that use different locks, which do not exclude each other."""
    by_lock = _names_by(heartbeats, lambda record: record.lock or "no lock")
    if len(by_lock) > 1:
        users = "; ".join(
            f"{lock}: {', '.join(names[:3])}" for lock, names in sorted(by_lock.items())
        )
        yield problem(
            "lock",
            f"active writers use different locks, which do not exclude each other: {users}",
            f"set the same {PROVIDER.key} for every writer",
        )


def _single_writers(heartbeats: Heartbeats) -> Iterator[DoctorFinding]:
    by_mode = _names_by(heartbeats, lambda record: record.mode)
    single = by_mode.get(ConcurrencyMode.SINGLE_WRITER.value, [])
    if single and sum(len(names) for names in by_mode.values()) > 1:
        yield problem(
            "mode",
            f"{', '.join(single[:3])} runs as {ConcurrencyMode.SINGLE_WRITER.value}"
            " with other writers active",
            f"set {CONCURRENCY_MODE.key}={ConcurrencyMode.OPTIMISTIC.value} for all writers",
        )


def _names_by(heartbeats: Heartbeats, of: Callable[[Heartbeat], str]) -> Mapping[str, list[str]]:
    """Return the names of writers that report their mode, grouped."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for heartbeat in heartbeats.values():
        record = heartbeat.record
        if record is not None and record.mode:
            found[of(record)].append(f"{record.host}:{record.pid}" if record.host else record.owner)
    return found


def _without_lock(recent: Sequence[LedgerEntry]) -> Iterator[DoctorFinding]:
    with_token: set[str] = set()
    without: set[str] = set()
    for entry in recent:
        if isinstance(entry.fact, Commit):
            (with_token if entry.fact.token else without).add(entry.owner)
    without -= with_token
    if with_token and without:
        yield note(
            "lock",
            f"{len(with_token)} writers of the last hour took the table's lock, {len(without)} did"
            f" not: {', '.join(sorted(without)[:3])}",
            "tidelock writers are safe through the ledger; Java writers require that all take it",
        )


def _token_restarts(recent: Sequence[LedgerEntry]) -> Iterator[DoctorFinding]:
    """Report tokens that restarted: another lock is in use, or its counter was lost."""
    restarts: list[LedgerEntry] = []
    epoch: int | None = None
    for entry in recent:
        if isinstance(entry.fact, Commit) and entry.fact.token:
            if epoch is not None and entry.fact.epoch > epoch:
                restarts.append(entry)
            epoch = entry.fact.epoch
    if not restarts:
        return
    last = restarts[-1]
    message = (
        f"the tokens of the table's lock restarted {len(restarts)} times in the last hour, last"
        f" with commit {last.position} of {last.owner}"
    )
    if len({entry.owner for entry in restarts}) > 1 and len(restarts) > 2:
        yield problem(
            "lock",
            f"{message}: writers use different locks, which do not exclude each other",
            f"set the same {PROVIDER.key} for every writer",
        )
    else:
        yield note(
            "lock",
            f"{message}: the lock was replaced, or its counter was lost",
            "no action is needed if you changed the lock or deleted its files",
        )


def _unlocked_external(
    settings: Mapping[str, object], state: LedgerState, recent: Sequence[LedgerEntry]
) -> Iterator[DoctorFinding]:
    unlocked = [e for e in recent if isinstance(e.fact, Commit) and not e.fact.token]
    java_name = next(n for n, known in registry.PROVIDERS.items() if known == registry.STORAGE)
    if state.external and (unlocked or (settings and registry.provider_name(settings) is None)):
        yield problem(
            "lock",
            "external writers (Java) write this table, and tidelock writers take no lock against"
            " them: a commit that one of them completes while tidelock decides another may hide"
            " it, or be hidden by it",
            f"set the storage lock for all of them: {PROVIDER.key}={java_name}",
        )


def _eager_cleaning(
    settings: Mapping[str, object], state: LedgerState, owners: set[str]
) -> Iterator[DoctorFinding]:
    policy = FAILED_WRITES.value(settings)
    if len(owners) + state.external > 1 and policy is FailedWrites.EAGER:
        yield problem(
            "mode",
            f"{FAILED_WRITES.key}: EAGER with {len(owners)} writers in the last hour; Java writers"
            " then roll back the writes of other writers",
            f"set {FAILED_WRITES.key}={FailedWrites.LAZY.value}",
            exit_code=_WRONG,
        )


def _clock_ahead(state: LedgerState, now_epoch_ms: int) -> Iterator[DoctorFinding]:
    if not state.position:
        return
    ahead_ms = parse_time(state.time) - now_epoch_ms
    if ahead_ms > 1_000:
        yield problem(
            "clock",
            f"the time of the last commit is {duration(ahead_ms)} ahead of the clock of this"
            " machine: the clock of a writer is wrong, and later times continue from there",
            "synchronize the clocks of the writers; commits stay in order anyway",
        )


_RECENT: Final = 1_000


@dataclass(frozen=True, slots=True)
class DoctorTarget:
    """A table to examine, and the settings of its writers."""

    store: ObjectStore
    properties: TableProperties
    settings: Mapping[str, object]
    clock: Clock
    ids: IdSource


def examine_table(target: DoctorTarget) -> Examination:
    """Check the settings, writers, plans, files, ledger, lock and clocks of a table."""
    found: list[DoctorFinding] = list(check_settings(target.settings, target.properties))
    try:
        found += _table_findings(target)
    except TidelockError as error:
        found.append(store_checks.failed("table", "the table could not be examined", error))
    lock = _lock_examination(target)
    return Examination((*found, *lock.findings), lock.seen, lock.counter)


def repair_table(examination: Examination, target: DoctorTarget) -> list[str]:
    """Repair the table and its lock; return a description of each repair.

    Raises: `Conflict` if an object changed since it was examined; `OutcomeUnknown`.
    """
    done = lock_doctor.repair_lock(examination, target.store, target.clock, target.ids)
    repairs = set(examination.repairs)
    if repairs.isdisjoint({Repair.ROLL_BACK, Repair.PUBLISH, Repair.SWEEP}):
        return done
    # This needs no lock: the ledger decides, and only writes of dead writers are rolled back.
    # Recovery publishes as well.
    with TransactionManager(
        target.store, {}, properties=target.properties, clock=target.clock
    ) as txn:
        recovered = txn.recover()
        cancelled = (
            remove_expired(txn, delay_ms=JAVA_LIFETIME_MS * 6)
            if Repair.ROLL_BACK in repairs
            else ()
        )
        state = txn.ledger.refresh()
    done += [f"rolled back {each.instant}" for each in recovered.rolled_back]
    done += [f"did not touch {instant}: its writer is alive" for instant in recovered.alive]
    done += [f"cancelled the plan {instant}" for instant in cancelled]
    if Repair.PUBLISH in repairs:
        done.append("published the commits of the ledger to the timeline")
    if Repair.SWEEP in repairs:
        done += _sweep(target, state)
    return done


def _table_findings(target: DoctorTarget) -> Iterator[DoctorFinding]:
    store, folder = target.store, target.properties.timeline_folder
    runner = EffectRunner(store, target.clock, target.ids)
    view = runner.perform(load())
    state = view.state
    seen = runner.perform(scan_pending(folder))
    writers = [
        writer_of(store, i, seen.heartbeats.get(i.requested), seen.now_epoch_ms, JAVA_LIFETIME_MS)
        for i in seen.pending
    ]
    recent = tuple(entries(store, after=max(0, state.position - _RECENT)))
    yield from check_changeable(target.properties, state)
    off = off_utc(state, seen, recent)
    yield from check_external(state, seen, off)
    external = state.external or bool(without_entry(state, seen))
    known = replace(state, external=external)
    yield from check_writers(target.settings, known, recent, _alive(seen), seen.now_epoch_ms)
    yield from check_stuck(writers, state)
    yield from check_plans(services_of(state.plans, seen), writers)
    yield from check_readable(load_timeline(store, folder))
    findings = validate(store, with_rows=False).findings
    # The time zones of the table and of these commits are reported above.
    reported = {KEY, *(f"{folder}/{instant.file_name}" for instant, _ in off)}
    others = [
        each
        for each in findings
        if each.check != validate_timeline.TIME_ZONES.name or each.object not in reported
    ]
    yield from from_validation(others, frozenset(state.aborted))


def _lock_examination(target: DoctorTarget) -> Examination:
    name = registry.provider_name(target.settings)
    if name is not None and not registry.is_storage(name):
        return Examination(tuple(_other_lock(target, registry.short_name(name))))
    try:
        lease = LockSettings.read(target.settings).lease
    except TidelockError:
        lease = LockSettings.read({}).lease
    found = lock_doctor.examine_lock(target.store, lease, target.clock, target.ids)
    return replace(found, findings=(*found.findings, *_waiting(target, found.seen)))


def _waiting(target: DoctorTarget, seen: Inspection | None) -> list[DoctorFinding]:
    """Report the waiters for the storage lock; empty if it was never acquired."""
    if seen is None or not seen.exists:
        return []
    try:
        return list(_waiters(target, storage_holding(seen, held_since(target.store, seen))))
    except TidelockError as error:
        return [store_checks.failed("waiting", "the check failed", error)]


def _other_lock(target: DoctorTarget, name: str) -> Iterator[DoctorFinding]:
    """Report the holder of another provider's lock."""
    try:
        provider = registry.open_provider(
            of_table(
                target.settings,
                target.store.uri,
                name=target.properties.name,
                database=target.properties.database,
            )
        )
        try:
            holder = provider.holder()
        finally:
            provider.close()
        holding = holder_holding(holder, target.clock.now().wall_epoch_ms)
        yield ok("lock", f"{name}: {holding}")
        if holder is not None and holder.waiters is not None:
            yield ok("waiting", f"{holder.waiters} in its queue")
        else:
            yield from _waiters(target, holding)
    except TidelockError as error:
        yield note(
            "lock", f"{name}: the holder could not be read: {error}", "run `tidelock lock status`"
        )


def _waiters(target: DoctorTarget, holding: str) -> Iterator[DoctorFinding]:
    now_epoch_ms = target.clock.now().wall_epoch_ms
    waiting = waiters(target.store, now_epoch_ms)
    heartbeats: Heartbeats = {}
    if waiting:
        runner = EffectRunner(target.store, target.clock, target.ids)
        heartbeats = _alive(runner.perform(scan_pending(target.properties.timeline_folder)))
    yield from check_waiting(holding, waiting, heartbeats, now_epoch_ms)


def _alive(seen: PendingScan) -> dict[str, HeartbeatStatus]:
    return {
        instant: heartbeat
        for instant, heartbeat in seen.heartbeats.items()
        if seen.is_alive(instant, default_lifetime_ms=JAVA_LIFETIME_MS)
    }


def _sweep(target: DoctorTarget, state: LedgerState) -> list[str]:
    """Delete leftovers of completed writes, and files of aborted writes."""
    store = target.store
    timeline = load_timeline(store, target.properties.timeline_folder)
    completed = frozenset(instant.requested for instant in timeline.completed())
    keys = sweepable(store, completed)
    aborted = frozenset(state.aborted)
    # C17: an aborted instant never completes, so no reader needs its files.
    keys += [
        file.key
        for file in list_files(store, partitioned=target.properties.is_partitioned)
        if file.instant in aborted and file.instant not in completed
    ]
    for key in keys:
        store.delete(key)
    return [f"deleted {len(keys)} unused objects"] if keys else []
