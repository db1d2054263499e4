"""Procedures about those who write a table: its lock, its writers, and whom they met."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from tidelock.base.clock import SystemClock
from tidelock.lock.audit import is_enabled
from tidelock.lock.audit_trail import set_enabled, validate
from tidelock.lock.config import LockSettings
from tidelock.lock.inspect import inspect_lock
from tidelock.pipeline.sql.procedures.procedure import (
    TABLE,
    Argument,
    Call,
    Procedure,
    Row,
    limit,
)
from tidelock.store.contract import ObjectStore
from tidelock.store.uri import open_store
from tidelock.txn.writers import conflicts, writers


@contextmanager
def _store(call: Call) -> Iterator[ObjectStore]:
    store = open_store(call.entry.uri, call.options)
    try:
        yield store
    finally:
        store.close()


def _show_locks(call: Call) -> Iterable[Row]:
    lease = LockSettings.read(call.options).lease
    with _store(call) as store:
        seen = inspect_lock(store, lease, SystemClock())
    record = seen.record
    yield (
        seen.uri,
        seen.condition.value,
        None if record is None else record.owner,
        None if record is None else record.valid_until_epoch_ms,
        seen.expires_in_ms,
    )


def _show_writers(call: Call) -> Iterable[Row]:
    with _store(call) as store:
        found = writers(store)
    for each in found:
        yield (
            each.instant,
            each.action,
            each.state,
            each.operation,
            each.owner,
            each.host,
            each.pid,
            each.alive,
            each.age_ms,
            len(each.groups),
        )


def _show_conflicts(call: Call) -> Iterable[Row]:
    with _store(call) as store:
        found = list(conflicts(store))
    for each in islice(reversed(found), call["limit"]):
        yield (
            each.position,
            each.time,
            each.instant,
            each.owner,
            ", ".join(each.overtaken_by),
            each.ended or None,
            len(each.groups),
            each.reason,
        )


def _validate_audit(call: Call) -> Iterable[Row]:
    drift_ms = LockSettings.read(call.options).lease.drift_ms
    with _store(call) as store:
        found = validate(store, drift_ms=drift_ms)
    says = "; ".join(issue.says for issue in found.issues) or "no overlap of two holders was found"
    yield call["table"], found.verdict.value, found.holdings, found.issues_found, says


def _set_audit(call: Call) -> Iterable[Row]:
    enabled = str(call["state"]).lower() == "enabled"
    with _store(call) as store:
        set_enabled(store, enabled=enabled)
    yield call["table"], "enabled" if enabled else "disabled"


def _audit_status(call: Call) -> Iterable[Row]:
    with _store(call) as store:
        yield call["table"], is_enabled(store)


LOCKS: Final = (
    Procedure(
        "show_locks",
        "who holds the table's lock file, and until when",
        (TABLE,),
        "lock string, state string, owner string, valid_until_epoch_ms bigint,"
        " expires_in_ms bigint",
        _show_locks,
    ),
    Procedure(
        "show_writers",
        "writes that have begun and not ended",
        (TABLE,),
        "instant_time string, action string, state string, operation string, owner string,"
        " host string, pid bigint, alive boolean, heartbeat_age_ms bigint, file_groups bigint",
        _show_writers,
    ),
    Procedure(
        "show_conflicts",
        "who was overtaken by whom, and how it ended, newest first",
        (TABLE, limit(20)),
        "position bigint, time string, instant_time string, owner string, overtaken_by string,"
        " ended_as string, file_groups bigint, reason string",
        _show_conflicts,
    ),
    Procedure(
        "validate_audit_lock",
        "checks by the lock's audit files that no two holders met",
        (TABLE,),
        "table string, validation_result string, transactions_validated bigint,"
        " issues_found bigint, details string",
        _validate_audit,
    ),
    Procedure(
        "set_audit_lock",
        "switches the lock's audit files on or off; state is enabled or disabled",
        (TABLE, Argument("state", str)),
        "table string, audit_state string",
        _set_audit,
    ),
    Procedure(
        "show_audit_lock_status",
        "tells whether the lock's audit files are written",
        (TABLE,),
        "table string, audit_enabled boolean",
        _audit_status,
    ),
)
