"""Procedures that run table services, and show their plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tidelock.base.clock import SystemClock
from tidelock.base.errors import InvalidInput
from tidelock.pipeline.sql.procedures.procedure import (
    OPTIONS,
    TABLE,
    Argument,
    Call,
    Procedure,
    Row,
    limit,
)
from tidelock.tableservice.overview import pending_services
from tidelock.tableservice.running import Ran, Service, clean, clustering, compaction
from tidelock.tableservice.table import Table

_STEPS: Final = {
    "schedule": "schedule",
    "run": "run",
    "scheduleandexecute": "run",
    "execute": "execute",
}


def _run(
    call: Call, make: Callable[[Any, Mapping[str, object]], Service], extra: Mapping[str, object]
) -> Iterable[Row]:
    step = _STEPS.get(str(call.values.get("op") or "run").lower())
    if step is None:
        raise InvalidInput(f"op = {call['op']} is not known", hint=f"use {', '.join(_STEPS)}")
    given = {key: value for key, value in extra.items() if value is not None}
    with call.opened(given) as table:
        service = make(table.on_spark(call.spark).writer(), {**call.options, **given})
        return list(_ran(_step(service, step)))


def _step(service: Service, step: str) -> Ran:
    match step:
        case "schedule":
            return service.plan_anew()
        case "execute":
            return service.execute_pending()
        case _:
            return service.run()


def _ran(done: Ran) -> Iterable[Row]:
    for undone in done.rolled_back:
        yield undone.instant, "ROLLED_BACK", None, None, undone.action
    for each in done.executed:
        yield each.instant, "COMPLETED", each.completion, each.files_written, ""
    for left in done.left:
        yield left.instant, "LEFT", None, None, left.why
    told = {each.instant for each in done.executed} | {each.instant for each in done.left}
    if done.scheduled and done.scheduled not in told:
        yield done.scheduled, "REQUESTED", None, None, ""


def _compaction(call: Call) -> Iterable[Row]:
    return _run(call, compaction, {})


def _clustering(call: Call) -> Iterable[Row]:
    order = call["order"]
    columns = {"hoodie.clustering.plan.strategy.sort.columns": order}
    return _run(call, clustering, columns)


def _clean(call: Call) -> Iterable[Row]:
    return _run(
        call,
        clean,
        {
            "hoodie.clean.policy": call["clean_policy"],
            "hoodie.clean.commits.retained": call["retain_commits"],
            "hoodie.clean.hours.retained": call["hours_retained"],
            "hoodie.clean.fileversions.retained": call["file_versions_retained"],
        },
    )


def _archive(call: Call) -> Iterable[Row]:
    bounds = {
        "hoodie.keep.min.commits": call["min_commits"],
        "hoodie.keep.max.commits": call["max_commits"],
    }
    with call.opened(bounds) as table:
        done = table.archive()
    return [(done.instants, done.entries)]


def _pending(action: str) -> Callable[[Call], Iterable[Row]]:
    def rows(call: Call) -> Iterable[Row]:
        with call.opened() as table:
            found = list(_services(table, action))
        return found[: call["limit"]]

    return rows


def _services(table: Table, action: str) -> Iterable[Row]:
    store = table.writer().store
    for each in reversed(pending_services(store, clock=SystemClock())):
        if each.action == action:
            yield each.instant, len(each.groups), each.state.upper(), each.next_step
    for entry in table.history():
        operation = (entry.operation or "").lower()
        if operation == ("compact" if action == "compaction" else "cluster"):
            yield entry.requested, entry.files, "COMPLETED", ""


_RAN: Final = (
    "timestamp string, state string, completion_time string, files_written bigint, reason string"
)
_OP: Final = Argument("op", str, "run")
_PLANS: Final = "timestamp string, operation_size bigint, state string, next_step string"

SERVICES: Final = (
    Procedure(
        "run_compaction",
        "merges log files into base files; op is schedule, execute or run",
        (_OP, TABLE, OPTIONS),
        _RAN,
        _compaction,
    ),
    Procedure(
        "run_clustering",
        "moves rows to fewer, or better sorted, file groups; op is schedule, execute or run",
        (TABLE, Argument("order", str, None), _OP, OPTIONS),
        _RAN,
        _clustering,
    ),
    Procedure(
        "run_clean",
        "rolls back what dead writers left, and deletes files that nobody needs",
        (
            TABLE,
            Argument("clean_policy", str, None),
            Argument("retain_commits", int, None),
            Argument("hours_retained", int, None),
            Argument("file_versions_retained", int, None),
            _OP,
            OPTIONS,
        ),
        _RAN,
        _clean,
    ),
    *(
        Procedure(
            name,
            "moves the oldest instants from the active timeline to the history",
            (TABLE, Argument("min_commits", int, None), Argument("max_commits", int, None)),
            "archived_instants bigint, deleted_ledger_entries bigint",
            _archive,
        )
        for name in ("run_archive", "archive_commits")
    ),
    Procedure(
        "show_compaction",
        "compactions that wait, are at work, or were done",
        (TABLE, limit(20)),
        _PLANS,
        _pending("compaction"),
    ),
    Procedure(
        "show_clustering",
        "clusterings that wait, are at work, or were done",
        (TABLE, limit(20)),
        _PLANS,
        _pending("clustering"),
    ),
)
