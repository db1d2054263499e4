"""Procedures that show the timeline, files, locks and writers of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from statistics import fmean, pstdev

from tidelock.core.system import SystemClock
from tidelock.lock.admin import inspect_lock
from tidelock.lock.audit import is_enabled, set_enabled, validate
from tidelock.lock.config import LockSettings
from tidelock.spark.sql.procedures.procedure import TABLE, Argument, Call, Row, limit, procedure
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import open_store
from tidelock.txn.writers import conflicts, writers


@procedure(
    "shows the commits of a table, newest first",
    "commit_time string, completion_time string, action string, operation string,"
    " total_bytes_written bigint, total_files_written bigint, total_records_written bigint,"
    " total_records_inserted bigint, total_update_records_written bigint,"
    " total_records_deleted bigint",
    TABLE,
    limit(10),
)
def show_commits(call: Call) -> Iterable[Row]:
    with call.open_table() as table:
        writes = (entry for entry in table.history() if entry.action.writes_data)
        return [
            (
                entry.requested,
                entry.completion,
                entry.action.value,
                entry.operation,
                entry.bytes_written,
                entry.files,
                entry.rows_written,
                entry.rows_inserted,
                entry.rows_updated,
                entry.rows_deleted,
            )
            for entry in islice(writes, call["limit"])
        ]


@procedure(
    "shows the instants of the active timeline in their latest state, newest first",
    "instant_time string, action string, state string, completed_time string",
    TABLE,
    limit(20),
)
def show_timeline(call: Call) -> Iterable[Row]:
    with call.open_table() as table:
        return [
            (i.requested, i.action.value, i.state.name, i.completion if i.is_completed else None)
            for i in islice(reversed(table.timeline), call["limit"])
        ]


@procedure(
    "shows the table properties and the options in the catalog",
    "key string, value string",
    TABLE,
    limit(200),
)
def show_table_properties(call: Call) -> Iterable[Row]:
    with call.open_table() as table:
        properties = {**table.properties.values, **call.entry.properties}
    return list(islice(sorted(properties.items()), call["limit"]))


@procedure(
    "shows statistics of base file sizes in bytes, per commit",
    "commit_time string, min bigint, 10th bigint, 50th bigint, avg double, 95th bigint,"
    " max bigint, num_files bigint, stddev double",
    TABLE,
    Argument("partition_path", str, ""),
    limit(10),
)
def stats_file_sizes(call: Call) -> Iterable[Row]:
    """Yield base file sizes per commit, newest first, and in total."""
    partition = call["partition_path"]
    by_commit: dict[str, list[int]] = {}
    with call.open_table() as table:
        for piece in table.files():
            if piece.base is not None and (not partition or piece.partition == partition):
                by_commit.setdefault(piece.base.instant, []).append(piece.base.size_bytes)
    newest = islice(sorted(by_commit.items(), reverse=True), call["limit"])
    total = [size for sizes in by_commit.values() for size in sizes]
    yield from (_sizes(instant, sizes) for instant, sizes in newest)
    if total:
        yield _sizes("ALL", total)


def _sizes(name: str, sizes: list[int]) -> Row:
    ordered = sorted(sizes)
    p10, p50, p95 = (ordered[int(share * (len(ordered) - 1))] for share in (0.1, 0.5, 0.95))
    return (
        name,
        ordered[0],
        p10,
        p50,
        fmean(ordered),
        p95,
        ordered[-1],
        len(ordered),
        pstdev(ordered),
    )


@procedure(
    "shows the partitions of a table with their file groups and bytes",
    "partition string, file_groups bigint, bytes bigint",
    TABLE,
    limit(1000),
)
def show_partitions(call: Call) -> Iterator[Row]:
    counts: dict[str, list[int]] = {}
    with call.open_table() as table:
        for piece in table.files():
            counts.setdefault(piece.partition, []).append(piece.size_bytes)
    for partition, sizes in islice(sorted(counts.items()), call["limit"]):
        yield partition, len(sizes), sum(sizes)


def _store(call: Call) -> closing[ObjectStore]:
    return closing(open_store(call.entry.uri, call.options))


@procedure(
    "shows the holder and expiry of the table lock",
    "lock string, state string, owner string, valid_until_epoch_ms bigint, expires_in_ms bigint",
    TABLE,
)
def show_locks(call: Call) -> Iterable[Row]:
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


@procedure(
    "shows the writes in progress",
    "instant_time string, action string, state string, operation string, owner string,"
    " host string, pid bigint, alive boolean, heartbeat_age_ms bigint, file_groups bigint",
    TABLE,
)
def show_writers(call: Call) -> Iterable[Row]:
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


@procedure(
    "shows conflicts between writers and their outcome, newest first",
    "position bigint, time string, instant_time string, owner string, overtaken_by string,"
    " ended_as string, file_groups bigint, reason string",
    TABLE,
    limit(20),
)
def show_conflicts(call: Call) -> Iterable[Row]:
    with _store(call) as store:
        found = list(conflicts(store))
    for each in islice(reversed(found), call["limit"]):
        yield (
            each.position,
            each.time,
            each.instant,
            each.owner,
            ", ".join(each.conflicts_with),
            each.ended or None,
            len(each.groups),
            each.reason,
        )


@procedure(
    "checks the lock's audit files for overlapping holders",
    "table string, validation_result string, transactions_validated bigint,"
    " issues_found bigint, details string",
    TABLE,
)
def validate_audit_lock(call: Call) -> Iterable[Row]:
    drift_ms = LockSettings.read(call.options).lease.drift_ms
    with _store(call) as store:
        found = validate(store, drift_ms=drift_ms)
    details = "; ".join(issue.message for issue in found.issues) or "no two holders overlapped"
    yield call["table"], found.verdict.value, found.holdings, found.issues_found, details


@procedure(
    "enables or disables the lock's audit files; state is enabled or disabled",
    "table string, audit_state string",
    TABLE,
    Argument("state", str),
)
def set_audit_lock(call: Call) -> Iterable[Row]:
    enabled = str(call["state"]).lower() == "enabled"
    with _store(call) as store:
        set_enabled(store, enabled=enabled)
    yield call["table"], "enabled" if enabled else "disabled"


@procedure(
    "shows whether the lock's audit files are enabled", "table string, audit_enabled boolean", TABLE
)
def show_audit_lock_status(call: Call) -> Iterable[Row]:
    with _store(call) as store:
        yield call["table"], is_enabled(store)
