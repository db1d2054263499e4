"""Procedures that run table services, show their plans, and roll back or restore a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tidelock.core.errors import InvalidInput, NotFound
from tidelock.core.system import SystemClock
from tidelock.services import config as c
from tidelock.services.pending import pending_services
from tidelock.services.runner import Service, ServiceRun, clean, clustering, compaction
from tidelock.spark.sql.procedures.procedure import (
    OPTIONS,
    TABLE,
    Argument,
    Call,
    Row,
    limit,
    procedure,
)
from tidelock.spark.sql.statement import suggestion
from tidelock.table import Table

_RUN_COLUMNS: Final = (
    "timestamp string, state string, completion_time string, files_written bigint, reason string"
)
_OP: Final = Argument("op", str, "run")
_PLAN_COLUMNS: Final = "timestamp string, operation_size bigint, state string, next_step string"
_INSTANT: Final = Argument("instant_time", str)
_STEPS: Final = {
    "schedule": Service.schedule_new,
    "run": Service.run,
    "scheduleandexecute": Service.run,
    "execute": Service.execute_pending,
}


def _run(
    call: Call, make: Callable[[Any, Mapping[str, object]], Service], **keys: str
) -> Iterable[Row]:
    """Run a service; `keys` are the options that the arguments of the call set."""
    step = _STEPS.get(str(call.values.get("op") or "run").lower())
    if step is None:
        raise InvalidInput(f"op: expected one of {', '.join(_STEPS)}, got {call['op']!r}")
    options = {key: call[name] for name, key in keys.items() if call[name] is not None}
    with call.open_table(options) as table:
        service = make(table.on_spark(call.spark).writer(), {**call.options, **options})
        return list(_run_rows(step(service)))


def _run_rows(run: ServiceRun) -> Iterable[Row]:
    for rollback in run.rolled_back:
        yield rollback.instant, "ROLLED_BACK", None, None, rollback.action
    for each in run.executed:
        yield each.instant, "COMPLETED", each.completion, each.files_written, ""
    for skipped in run.skipped:
        yield skipped.instant, "LEFT", None, None, skipped.why
    reported = {each.instant for each in run.executed} | {each.instant for each in run.skipped}
    if run.scheduled and run.scheduled not in reported:
        yield run.scheduled, "REQUESTED", None, None, ""


@procedure(
    "moves the oldest instants from the active to the archived timeline",
    "archived_instants bigint, deleted_ledger_entries bigint",
    TABLE,
    Argument("min_commits", int, None),
    Argument("max_commits", int, None),
)
def run_archive(call: Call) -> Iterable[Row]:
    bounds = {
        c.ARCHIVE_MIN.key: call["min_commits"],
        c.ARCHIVE_MAX.key: call["max_commits"],
    }
    with call.open_table(bounds) as table:
        archived = table.archive()
    return [(archived.instants, archived.entries)]


archive_commits: Final = replace(run_archive, name="archive_commits")


def _plans(call: Call, action: str) -> Iterable[Row]:
    with call.open_table() as table:
        return list(_services(table, action))[: call["limit"]]


def _services(table: Table, action: str) -> Iterator[Row]:
    store = table.writer().store
    for each in reversed(pending_services(store, clock=SystemClock())):
        if each.action == action:
            yield each.instant, len(each.groups), each.state.upper(), each.next_step
    for entry in table.history():
        operation = (entry.operation or "").lower()
        if operation == ("compact" if action == "compaction" else "cluster"):
            yield entry.requested, entry.files, "COMPLETED", ""


@procedure(
    "merges log files into base files; op is schedule, execute or run",
    _RUN_COLUMNS,
    _OP,
    TABLE,
    OPTIONS,
)
def run_compaction(call: Call) -> Iterable[Row]:
    return _run(call, compaction)


@procedure(
    "rewrites rows into fewer or better sorted file groups; op is schedule, execute or run",
    _RUN_COLUMNS,
    TABLE,
    Argument("order", str, None),
    _OP,
    OPTIONS,
)
def run_clustering(call: Call) -> Iterable[Row]:
    return _run(call, clustering, order=c.CLUSTER_SORT.key)


@procedure(
    "rolls back writes of dead writers and deletes unused files",
    _RUN_COLUMNS,
    TABLE,
    Argument("clean_policy", str, None),
    Argument("retain_commits", int, None),
    Argument("hours_retained", int, None),
    Argument("file_versions_retained", int, None),
    _OP,
    OPTIONS,
)
def run_clean(call: Call) -> Iterable[Row]:
    return _run(
        call,
        clean,
        clean_policy=c.CLEAN_POLICY.key,
        retain_commits=c.CLEAN_COMMITS.key,
        hours_retained=c.CLEAN_HOURS.key,
        file_versions_retained=c.CLEAN_VERSIONS.key,
    )


@procedure("shows pending, running and completed compactions", _PLAN_COLUMNS, TABLE, limit(20))
def show_compaction(call: Call) -> Iterable[Row]:
    return _plans(call, "compaction")


@procedure("shows pending, running and completed clusterings", _PLAN_COLUMNS, TABLE, limit(20))
def show_clustering(call: Call) -> Iterable[Row]:
    return _plans(call, "clustering")


@procedure(
    "rolls back the last commit, or a pending write of a dead writer",
    "rollback_result boolean",
    TABLE,
    _INSTANT,
)
def rollback_to_instant(call: Call) -> Iterable[Row]:
    with call.open_table() as table:
        table.rollback(call["instant_time"])
    return [(True,)]


@procedure(
    "creates a savepoint at a commit; default: the last one",
    "create_savepoint_result boolean, savepoint_time string",
    TABLE,
    Argument("commit_time", str, None),
    Argument("user", str, ""),
    Argument("comments", str, ""),
)
def create_savepoint(call: Call) -> Iterable[Row]:
    with call.open_table() as table:
        saved = table.savepoint(call["commit_time"], by=call["user"], comment=call["comments"])
    return [(True, saved.instant)]


@procedure(
    "shows the savepoints, newest first",
    "savepoint_time string, created_time string, user string, comments string, files bigint",
    TABLE,
)
def show_savepoints(call: Call) -> Iterable[Row]:
    with call.open_table() as table:
        return [
            (saved.instant, saved.completion, saved.by, saved.comment, saved.files)
            for saved in reversed(table.savepoints())
        ]


@procedure("deletes a savepoint", "delete_savepoint_result boolean", TABLE, _INSTANT)
def delete_savepoint(call: Call) -> Iterable[Row]:
    with call.open_table() as table:
        table.delete_savepoint(call["instant_time"])
    return [(True,)]


@procedure(
    "restores the table to a savepoint", "rollback_savepoint_result boolean", TABLE, _INSTANT
)
def rollback_to_savepoint(call: Call) -> Iterable[Row]:
    instant = call["instant_time"]
    with call.open_table() as table:
        savepoints = [saved.instant for saved in table.savepoints()]
        if instant not in savepoints:
            raise NotFound(
                f"{call.entry.name} has no savepoint {instant}",
                hint=suggestion(instant, savepoints),
            )
        table.restore(instant)
    return [(True,)]
