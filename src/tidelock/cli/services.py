"""Commands that run and show table services.

`compact`, `log-compact`, `cluster` and `clean` have the same arguments, options and output. They
are rows of one table, `PLANNED_SERVICES`. The other services have arguments of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer
from rich.text import Text

from tidelock.cli import options
from tidelock.cli.ledger import opened_ledger
from tidelock.cli.options import argument, flag, option
from tidelock.cli.output import Output, columns, progress_bar
from tidelock.core.errors import ConfigInvalid, ErrorKind, InvalidInput
from tidelock.core.formatting import duration, fields_of
from tidelock.inspect.ledger_facts import group_names

if TYPE_CHECKING:
    from tidelock.operations.write import TableWriter
    from tidelock.services.pending import PendingService
    from tidelock.services.runner import Service, ServiceRun
    from tidelock.services.savepoint import SavepointInfo
    from tidelock.txn.plans import RollbackResult


class Step(StrEnum):
    """The part of a service to run."""

    SCHEDULE = "schedule"
    EXECUTE = "execute"
    RUN = "run"


class OnlyRun(StrEnum):
    """The only step of a service that has no plans."""

    RUN = "run"


StepName = Annotated[
    Step,
    argument(
        "schedule|execute|run",
        "Schedule a plan on the timeline, execute the pending plans, or do both.",
    ),
]
RunName = Annotated[OnlyRun, argument("run", "Run the service.")]
DryRun = Annotated[bool, flag("--dry-run", "Show what would be done, and change nothing.")]


class ServiceCommand(NamedTuple):
    """A service that is scheduled as a plan and executed later."""

    label: str
    """Its name in output. With underscores, the function of `tidelock.services.runner`."""
    help: str


PLANNED_SERVICES: Final = {
    "compact": ServiceCommand(
        "compaction",
        """Merge log files into base files.

    Applies to merge-on-read tables. Any number of processes may run this at the same time: each
    plan is executed by one of them, and another one takes over if that process dies. Plans that
    another process executes are skipped.

    Exit status: 0 on success, 4 if other processes are executing the plans.

        tidelock compact s3://lake/orders run
    """,
    ),
    "log-compact": ServiceCommand(
        "log compaction",
        """Merge log files into fewer log files.

    Writes no base files: cheaper than a compaction, and it makes reads faster. Writers have
    priority: if one of them changes a file group of a plan, the plan is rolled back.

    Exit status: 0 on success, 4 if the plans were left to other processes or lost to a writer.

        tidelock log-compact s3://lake/orders run \\
            -O hoodie.log.compaction.blocks.threshold=10
    """,
    ),
    "cluster": ServiceCommand(
        "clustering",
        """Rewrite small files as larger ones, optionally sorted.

    Writers have priority: if one of them changes a file group of a plan, the plan is rolled back,
    and the next plan starts from the files that the writer left.

    Exit status: 0 on success, 4 if the plans were left to other processes or lost to a writer.

        tidelock cluster s3://lake/orders run \\
            -O hoodie.clustering.plan.strategy.sort.columns=customer,ts
    """,
    ),
    "clean": ServiceCommand(
        "clean",
        """Delete files that no retained commit needs.

    Writes of dead writers are rolled back first.

    Exit status: 0 on success, 4 if other processes are executing the plans.

        tidelock clean s3://lake/orders run -O hoodie.clean.commits.retained=20
    """,
    ),
}


def planned_service_commands() -> dict[str, Callable[..., None]]:
    """Return the commands of the services with plans, by name."""
    return {name: _planned_command(service) for name, service in PLANNED_SERVICES.items()}


def _planned_command(service: ServiceCommand) -> Callable[..., None]:
    def command(
        uri: options.TableUri,
        step: StepName,
        *,
        instant: Annotated[
            str | None, option("--instant TIME", "With execute: only the plan of this instant.")
        ] = None,
        dry_run: DryRun = False,
        given: options.ServiceOptions,
    ) -> None:
        _run_service(ServiceRequest(service, uri, step, instant, dry_run=dry_run, given=given))

    command.__doc__ = service.help
    return command


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A planned service and the arguments of its command."""

    service: ServiceCommand
    uri: str
    step: Step
    instant: str | None
    dry_run: bool
    given: options.ServiceOptions


@contextmanager
def _opened(uri: str, settings: Mapping[str, object]) -> Iterator[tuple[TableWriter, str]]:
    """Yield the writer of a table, and its URI."""
    # Arrow takes longer to load than most lock commands take to run, so it loads here.
    from tidelock.table import Table

    with Table.open(uri, options=settings) as table:
        yield table.writer(), table.uri


def _run_service(request: ServiceRequest) -> None:
    from tidelock.execution.service_tasks import ProgressListener
    from tidelock.services import runner

    if request.instant is not None and request.step is not Step.EXECUTE:
        raise InvalidInput(
            f"--instant: can only be used with execute, got {request.step}",
            hint="remove --instant, or use execute",
        )
    label, settings = request.service.label, request.given.settings()
    with _opened(request.uri, settings) as (writer, location):
        service: Service = getattr(runner, label.replace(" ", "_"))(writer, settings)
        if request.dry_run:
            _preview(request, service, location)
            return
        console = Output.console(stderr=True)
        with progress_bar(label, console, hidden=request.given.as_json) as on_progress:
            listener = ProgressListener(progress=on_progress)
            writer.services = runner.services_engine(writer.store, settings, None, listener)
            run = _run_step(request, service)
    _show_run(request, run, location)


def _run_step(request: ServiceRequest, service: Service) -> ServiceRun:
    from tidelock.services.runner import ServiceRun

    match request.step:
        case Step.SCHEDULE:
            return service.schedule_new()
        case Step.EXECUTE if request.instant is not None:
            return ServiceRun(None, (service.plans.execute(request.instant),))
        case Step.EXECUTE:
            return service.execute_pending()
        case Step.RUN:
            return service.run()


def _preview(request: ServiceRequest, service: Service, location: str) -> None:
    pending = service.plans.pending()
    if request.instant is not None:
        pending = tuple(instant for instant in pending if instant == request.instant)
    executes = () if request.step is Step.SCHEDULE else pending
    plans = () if request.step is Step.EXECUTE else service.preview()
    _show_preview(request.given.output, request.service.label, location, executes, plans=plans)


def _show_preview(
    output: Output,
    service: str,
    location: str,
    executes: Sequence[str],
    *,
    plans: Sequence[str] | None = None,
    removes: Sequence[str] = (),
) -> None:
    """Show what a service would execute, and the plans or removals that it would add."""
    verb, names, what = ("remove", removes, "") if plans is None else ("plan", plans, "the plan ")
    lines = [f"  would execute {what}{instant}" for instant in executes]
    lines += [f"  would {verb} {name}" for name in names]
    shown = {"would_execute": list(executes), f"would_{verb}": list(names)}
    output.result(
        {"uri": location, "service": service, "dry_run": True, **shown},
        Text(f"{location}  {service}: " + ("" if lines else "nothing to do")),
        *lines,
    )


def _show_run(request: ServiceRequest, run: ServiceRun, location: str) -> None:
    rows = [
        [each.instant, each.completion, str(each.files_written), f"{each.bytes_written:,}"]
        for each in run.executed
    ]
    lines = [Text(f"{location}  {request.service.label}: {_summary(request, run)}")]
    lines += columns(["instant", "completed", "files", "bytes"], rows) if rows else []
    lines += [
        Text(f"  {each.instant} was skipped: {each.why}", style="yellow") for each in run.skipped
    ]
    lines += [
        Text(f"  rolled back {each.instant} ({each.action}), {each.files_deleted} files deleted")
        for each in run.rolled_back
    ]
    request.given.output.result(
        {
            "uri": location,
            "service": request.service.label,
            "outcome": run.outcome.value,
            "rolled_back": [asdict(each) for each in run.rolled_back],
            "scheduled": run.scheduled,
            "executed": [asdict(each) for each in run.executed],
            "left": [asdict(each) for each in run.skipped],
        },
        *lines,
    )
    if run.skipped and not run.executed:
        raise typer.Exit(ErrorKind.CONFLICT.exit_code)


def _summary(request: ServiceRequest, run: ServiceRun) -> str:
    if request.step is Step.SCHEDULE:
        return f"scheduled {run.scheduled}" if run.scheduled else "nothing to plan"
    if not run.executed and not run.skipped:
        return f"{len(run.rolled_back)} rolled back" if run.rolled_back else "nothing to do"
    return f"{len(run.executed)} executed, {len(run.skipped)} skipped"


def archive(
    uri: options.TableUri, step: RunName, *, dry_run: DryRun = False, given: options.ServiceOptions
) -> None:
    """Move the oldest instants to the archived timeline.

    Exit status: 0 on success, 4 if other processes keep archiving the table.

        tidelock archive s3://lake/orders run
    """
    from tidelock.services.archive import ArchiveService
    from tidelock.services.config import archive_bounds

    del step  # there is only one
    settings = given.settings()
    output = given.output
    with _opened(uri, settings) as (writer, location):
        service, bounds = ArchiveService(writer), archive_bounds(settings)
        if dry_run:
            instants = [instant.requested for instant in service.plan(bounds)]
            output.result(
                {"uri": location, "service": "archive", "dry_run": True, "would_archive": instants},
                Text(f"{location}  archive would move {len(instants)} instants"),
                *(f"  {instant}" for instant in instants),
            )
            return
        done = service.run(bounds)
    summary = f"{done.instants} instants archived, {done.entries} ledger entries deleted"
    output.result({"uri": location, "service": "archive", **asdict(done)}, f"{location}  {summary}")


class PlanAction(StrEnum):
    """An action on a pending plan."""

    CANCEL = "cancel"


def services(
    uri: options.TableUri,
    action: Annotated[PlanAction | None, argument("cancel", "Cancel the plan of INSTANT.")] = None,
    instant: Annotated[str | None, argument("INSTANT", "The instant of the plan.")] = None,
    *,
    force: Annotated[
        bool, flag("--force", "With cancel: also a plan that could be executed.")
    ] = False,
    given: options.CommonOptions,
) -> None:
    """Show or cancel pending plans.

    Each plan of a table service is shown with its executor and its file groups. Writers never wait
    for a plan. A file group of a pending plan is in no other plan, and its files are not cleaned.

    With cancel, roll back a plan: one of clustering or log compaction, one that cannot be executed
    because its file is corrupt or names missing files, or any with --force. A plan that is being
    executed is not cancelled.

        tidelock services s3://lake/orders
        tidelock services s3://lake/orders cancel 20261115142747949
    """
    from tidelock.services.pending import pending_services

    if (action is None) != (instant is None):
        raise InvalidInput(
            "cancel: expected the INSTANT of a plan",
            hint="list pending plans with `tidelock services URI`",
        )
    if instant is not None:
        _cancel(uri, instant, given, force=force)
        return
    with opened_ledger(uri, given) as (store, folder):
        pending = pending_services(store, folder=folder)
        location = store.uri
    alive = sum(service.alive for service in pending)
    headings = ["instant", "service", "age", "scheduled by", "attempt"]
    headings += ["heartbeat", "executor", "next step", "file groups"]
    given.output.result(
        {"uri": location, "services": [_pending_facts(service) for service in pending]},
        Text(f"{location}  {len(pending)} plans pending, {alive} being executed"),
        *(columns(headings, [_pending_row(service) for service in pending]) if pending else ()),
    )


def _cancel(uri: str, instant: str, given: options.CommonOptions, *, force: bool) -> None:
    from tidelock.services.pending import cancel

    with _opened(uri, given.settings()) as (writer, location):
        done = cancel(writer, instant, force=force)
    reason = f": {done.fault}" if done.fault else ""
    given.output.result(
        {"uri": location, "cancelled": done.instant, "service": done.action, "fault": done.fault},
        Text(f"{location}  the {done.action} {done.instant} is cancelled{reason}"),
    )


def _pending_facts(service: PendingService) -> dict[str, object]:
    return {
        "instant": service.instant,
        "service": service.action,
        "state": service.state,
        "age_ms": service.age_ms,
        "in_ledger": service.ours,
        **fields_of(service, "scheduled_by", "removable", "attempt", "owner", "alive"),
        **fields_of(service, "heartbeat_age_ms", "host", "pid", "next_step"),
        "groups": group_names(service.groups),
    }


def _pending_row(service: PendingService) -> list[str]:
    age_ms = service.heartbeat_age_ms
    return [
        service.instant,
        service.action,
        duration(service.age_ms),
        service.scheduled_by,
        str(service.attempt),
        "none" if age_ms is None else f"{duration(age_ms)} ago",
        f"{service.host}:{service.pid}" if service.host else service.owner or "-",
        service.next_step,
        " ".join(group_names(service.groups)) or "-",
    ]


class SavepointAction(StrEnum):
    """An action on savepoints."""

    CREATE = "create"
    DELETE = "delete"
    LIST = "list"


CommitInstant = Annotated[str | None, argument("INSTANT", "The instant of a commit.")]
Fence = Annotated[bool, flag("--fence", "Fence off active writers instead of failing.")]


def rollback(
    uri: options.TableUri,
    step: StepName,
    instant: CommitInstant = None,
    *,
    dry_run: DryRun = False,
    given: options.ServiceOptions,
) -> None:
    """Roll back failed or completed writes.

    Without INSTANT, the writes of dead writers are rolled back, otherwise the write of INSTANT. The
    writer of an incomplete write must be dead. A completed write can be rolled back if it is
    the latest; roll back the later ones first, or use `tidelock restore`. With execute, INSTANT is
    that of the rollback. Unfinished rollbacks of other processes are completed.

    Exit status: 0 on success, 4 if a writer or a later commit prevents the rollback.

        tidelock rollback s3://lake/orders run
        tidelock rollback s3://lake/orders run 20261115142748280
    """
    from tidelock.services.rollback import RollbackService

    with _opened(uri, given.settings()) as (writer, location):
        service = RollbackService(writer)
        executes = instant if step is Step.EXECUTE else None
        if dry_run:
            pending = service.pending() if executes is None else (executes,)
            dead = () if step is Step.EXECUTE else service.failed()
            removes = dead if instant is None or executes else (instant,)
            _show_preview(given.output, "rollback", location, pending, removes=removes)
            return
        scheduled: tuple[str, ...] = ()
        if step is not Step.EXECUTE:
            scheduled = (
                service.schedule_failed() if instant is None else (service.schedule(instant),)
            )
        done: list[RollbackResult] = []
        if step is not Step.SCHEDULE:
            named = (executes,) if executes else scheduled if instant else ()
            done = [service.execute(each) for each in named]
            done += () if named else service.execute_pending()
    _show_rollbacks(given.output, "rollback", location, scheduled, done)


def restore(
    uri: options.TableUri,
    step: StepName,
    *,
    to: Annotated[str | None, option("--to INSTANT", "The commit to restore.")] = None,
    fence: Fence = False,
    dry_run: DryRun = False,
    given: options.ServiceOptions,
) -> None:
    """Restore the table to an earlier commit.

    Everything that completed after the commit of --to is rolled back, the newest first. No other
    write can complete until the restore is done; execute finishes an interrupted restore. Fails
    while writers are active unless --fence is given, if a later savepoint exists, and if a clean
    has deleted files of that state.

    Exit status: 0 on success, 4 if a writer, a savepoint or a clean prevents the restore.

        tidelock restore s3://lake/orders run --to 20261115142747949
    """
    from tidelock.services.restore import Restore

    if to is None and step is not Step.EXECUTE:
        raise InvalidInput(
            f"--to: required with {step}", hint="list commits with `tidelock table history URI`"
        )
    if to is not None and step is Step.EXECUTE:
        raise InvalidInput(
            "--to: cannot be used with execute",
            hint="remove --to, which the scheduled restore contains",
        )
    with _opened(uri, given.settings()) as (writer, location):
        service = Restore(writer, fence=fence)
        if dry_run:
            instants = service.plan(to).instants if to is not None else ()
            pending = service.pending() if step is Step.EXECUTE else ()
            removes = tuple(each.requested for each in instants)
            _show_preview(given.output, "restore", location, pending, removes=removes)
            return
        scheduled = service.schedule(to) if to is not None else None
        done: list[RollbackResult] = []
        if step is not Step.SCHEDULE:
            chosen = service.pending() if to is None else (scheduled,) if scheduled else ()
            done = [service.execute(each) for each in chosen]
    _show_rollbacks(given.output, "restore", location, (scheduled,) if scheduled else (), done)


def savepoint(
    uri: options.TableUri,
    action: Annotated[
        SavepointAction,
        argument("create|delete|list", "Create or delete a savepoint, or list the savepoints."),
    ],
    instant: CommitInstant = None,
    *,
    comment: Annotated[
        str, option("--comment TEXT", "The reason for the savepoint.", show_default=True)
    ] = "",
    by: Annotated[
        str, option("--by NAME", "The creator of the savepoint.", show_default=True)
    ] = "",
    given: options.ServiceOptions,
) -> None:
    """Create, list or delete savepoints.

    A savepoint protects a state of the table from clean and archive, to read or restore it later.
    Without INSTANT, create uses the latest commit.

    Exit status: 0 on success, 4 if the state cannot be protected.

        tidelock savepoint s3://lake/orders create --comment "before migration"
    """
    from tidelock.services.savepoint import Savepoints

    if action is SavepointAction.DELETE and instant is None:
        raise InvalidInput(
            "savepoint delete: expected the INSTANT of a savepoint",
            hint="list savepoints with `tidelock savepoint URI list`",
        )
    with _opened(uri, given.settings()) as (writer, location):
        service = Savepoints(writer)
        found: tuple[SavepointInfo, ...] = ()
        match action:
            case SavepointAction.CREATE:
                found = (service.create(instant, by=by, comment=comment),)
            case SavepointAction.DELETE:
                assert instant is not None
                service.delete(instant)
            case SavepointAction.LIST:
                found = service.list()
    deleted = instant if action is SavepointAction.DELETE else None
    rows = [
        [each.instant, each.completion, str(each.files), each.by, each.comment] for each in found
    ]
    summary = f"savepoint of {deleted} deleted" if deleted else f"{len(found)} savepoints"
    given.output.result(
        {"uri": location, "savepoints": [asdict(each) for each in found], "deleted": deleted},
        Text(f"{location}  {summary}"),
        *(columns(["instant", "since", "files", "by", "comment"], rows) if rows else ()),
    )


def ttl(
    uri: options.TableUri, step: RunName, *, dry_run: DryRun = False, given: options.ServiceOptions
) -> None:
    """Delete expired partitions.

    A partition expires after hoodie.partition.ttl.strategy.days.retain days.

    Exit status: 0 on success, 4 if every attempt conflicted with a concurrent write.

        tidelock ttl s3://lake/events run \\
            -O hoodie.partition.ttl.strategy.days.retain=90
    """
    from tidelock.services.config import TTL_DAYS, ttl_rule
    from tidelock.services.ttl import PartitionTtl

    del step  # there is only one
    settings = given.settings()
    when = ttl_rule(settings)
    if when is None:
        raise ConfigInvalid(
            f"{TTL_DAYS.key}: not set, so no partition expires",
            hint=f"set the number of days: -O {TTL_DAYS.key}=90",
        )
    with _opened(uri, settings) as (writer, location):
        service = PartitionTtl(writer)
        if dry_run:
            _show_preview(given.output, "ttl", location, (), removes=service.plan(when))
            return
        done = service.run(when)
    given.output.result(
        {"uri": location, "service": "ttl", **asdict(done)},
        Text(f"{location}  {len(done.partitions)} expired partitions deleted"),
        *(f"  {partition}" for partition in done.partitions),
    )


def _show_rollbacks(
    output: Output,
    service: str,
    location: str,
    scheduled: Sequence[str],
    done: Sequence[RollbackResult],
) -> None:
    rows = [
        [each.instant, removed.instant, removed.action, str(len(removed.files))]
        for each in done
        for removed in each.rolled_back
    ]
    summary = f"{len(scheduled)} scheduled" if scheduled else "nothing to do"
    executed = [
        {
            "instant": each.instant,
            "completion": each.completion,
            "undone": [asdict(removed) for removed in each.rolled_back],
        }
        for each in done
    ]
    shown = {"scheduled": list(scheduled), "executed": executed}
    output.result(
        {"uri": location, "service": service, **shown},
        Text(f"{location}  {service}: {f'{len(done)} done' if done else summary}"),
        *(columns([service, "removed", "action", "files"], rows) if rows else ()),
    )
