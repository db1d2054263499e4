"""`tidelock rollback`, `savepoint`, `restore` and `ttl`: taking back, keeping, and expiring."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.base.errors import ConfigInvalid, InvalidInput
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output, columns
from tidelock.ops.cli.table_create import given_options
from tidelock.ops.cli.table_services import DryRun, Option, RunName, Step, StepName

if TYPE_CHECKING:
    from tidelock.tableservice.savepoint.execute import Saved
    from tidelock.txn.rollbacks import CarriedOut


class Keeping(StrEnum):
    """What to do with savepoints."""

    CREATE = "create"
    DELETE = "delete"
    LIST = "list"


KeepingName = Annotated[
    Keeping,
    typer.Argument(
        metavar="create|delete|list",
        help="Keep a state of the table, give it up, or show what is kept.",
        show_default=False,
    ),
]
Named = Annotated[
    str | None, typer.Argument(metavar="INSTANT", help="Which instant.", show_default=False)
]
Comment = Annotated[str, typer.Option("--comment", metavar="TEXT", help="Why it is kept.")]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who keeps it.")]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="INSTANT", help="The commit to go back to.", show_default=False),
]
Fence = Annotated[
    bool,
    typer.Option("--fence", help="Shut out writers that are alive, instead of refusing."),
]


def rollback(
    uri: options.TableUri,
    step: StepName,
    instant: Named = None,
    *,
    dry_run: DryRun = False,
    option: Option = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Roll back writes: those of dead writers, or the one of INSTANT.

    A write that has not completed must be dead. One that has completed is taken back if it is the
    last; what is later must go first, or use `tidelock restore`. With execute, INSTANT is that of
    the rollback. Rollbacks that others left are finished.

    Ends with 0, or with 4 if something is in the way.

        tidelock rollback s3://lake/orders run
        tidelock rollback s3://lake/orders run 20261115142748280
    """
    from tidelock.tableservice.rollback.execute import Rollback
    from tidelock.tableservice.table import Table

    with Table.open(uri, options=_chosen(option, props, props_file)) as table:
        service, place = Rollback(table.writer()), table.uri
        executes = instant if step is Step.EXECUTE else None
        if dry_run:
            waiting = service.pending() if executes is None else (executes,)
            dead = () if step is Step.EXECUTE else service.failed()
            named = dead if instant is None or executes else (instant,)
            _say_dry("rollback", place, waiting, named, as_json=as_json)
            return
        scheduled: tuple[str, ...] = ()
        if step is not Step.EXECUTE:
            scheduled = (
                service.schedule_failed() if instant is None else (service.schedule(instant),)
            )
        done: list[CarriedOut] = []
        if step is not Step.SCHEDULE:
            named = (executes,) if executes else scheduled if instant else ()
            done = [service.execute(each) for each in named]
            done += () if named else service.execute_pending()
    _say_done("rollback", place, scheduled, done, as_json=as_json)


def restore(
    uri: options.TableUri,
    step: StepName,
    *,
    to: To = None,
    fence: Fence = False,
    dry_run: DryRun = False,
    option: Option = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Bring the table back to what it was when the commit of --to had completed.

    Everything that completed later is taken back, the newest first. While that is not done nothing
    else can complete; execute finishes a restore that was cut short. Refused while writers are
    alive, unless --fence shuts them out, below a savepoint, and where a clean has deleted files of
    that state.

    Ends with 0, or with 4 if something is in the way.

        tidelock restore s3://lake/orders run --to 20261115142747949
    """
    from tidelock.tableservice.restore.execute import Restore
    from tidelock.tableservice.table import Table

    if (to is None) != (step is Step.EXECUTE):
        raise InvalidInput("--to goes with schedule and run, and not with execute")
    with Table.open(uri, options=_chosen(option, props, props_file)) as table:
        service, place = Restore(table.writer(), fence=fence), table.uri
        if dry_run:
            taken = service.plan(to).instants if to is not None else ()
            waiting = service.pending() if step is Step.EXECUTE else ()
            named = tuple(each.requested for each in taken)
            _say_dry("restore", place, waiting, named, as_json=as_json)
            return
        scheduled = service.schedule(to) if to is not None else None
        done: list[CarriedOut] = []
        if step is not Step.SCHEDULE:
            chosen = service.pending() if to is None else (scheduled,) if scheduled else ()
            done = [service.execute(each) for each in chosen]
    _say_done("restore", place, (scheduled,) if scheduled else (), done, as_json=as_json)


def savepoint(
    uri: options.TableUri,
    what: KeepingName,
    instant: Named = None,
    *,
    comment: Comment = "",
    by: By = "",
    option: Option = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Keep states of the table from cleaning and archiving, to read or restore them later.

    Without INSTANT, create keeps the last commit.

    Ends with 0, or with 4 if the state cannot be kept.

        tidelock savepoint s3://lake/orders create --comment "before the migration"
    """
    from tidelock.tableservice.savepoint.execute import Savepoints
    from tidelock.tableservice.table import Table

    if what is Keeping.DELETE and instant is None:
        raise InvalidInput("which savepoint is to be deleted?", hint="name its INSTANT")
    with Table.open(uri, options=_chosen(option, props, props_file)) as table:
        service, place = Savepoints(table.writer()), table.uri
        found: tuple[Saved, ...] = ()
        match what:
            case Keeping.CREATE:
                found = (service.create(instant, by=by, comment=comment),)
            case Keeping.DELETE:
                assert instant is not None
                service.delete(instant)
            case Keeping.LIST:
                found = service.found()
    rows = [
        [each.instant, each.completion, str(each.files), each.by, each.comment] for each in found
    ]
    said = (
        f"savepoint of {instant} deleted" if what is Keeping.DELETE else f"{len(found)} savepoints"
    )
    Output(as_json=as_json).result(
        {
            "uri": place,
            "savepoints": [asdict(each) for each in found],
            "deleted": instant if what is Keeping.DELETE else None,
        },
        Text(f"{place}  {said}"),
        *(columns(["instant", "since", "files", "by", "comment"], rows) if rows else ()),
    )


def ttl(
    uri: options.TableUri,
    step: RunName,
    *,
    dry_run: DryRun = False,
    option: Option = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Delete partitions that are older than hoodie.partition.ttl.strategy.days.retain days.

    Ends with 0, or with 4 if writers were faster each time.

        tidelock ttl s3://lake/events run -O hoodie.partition.ttl.strategy.days.retain=90
    """
    from tidelock.tableservice.table import Table
    from tidelock.tableservice.ttl.config import TTL_DAYS, expiry
    from tidelock.tableservice.ttl.execute import PartitionTtl

    del step  # there is but one
    chosen = _chosen(option, props, props_file)
    when = expiry(chosen)
    if when is None:
        raise ConfigInvalid(
            f"no partition ever expires: {TTL_DAYS.key} is not set",
            hint=f"say how long they stay: -O {TTL_DAYS.key}=90",
        )
    with Table.open(uri, options=chosen) as table:
        service, place = PartitionTtl(table.writer()), table.uri
        if dry_run:
            _say_dry("ttl", place, (), service.plan(when), as_json=as_json)
            return
        done = service.run(when)
    Output(as_json=as_json).result(
        {"uri": place, "service": "ttl", **asdict(done)},
        Text(f"{place}  {len(done.partitions)} partitions have expired"),
        *(f"  {partition}" for partition in done.partitions),
    )


def _chosen(
    option: list[str] | None, props: list[str] | None, props_file: str | None
) -> dict[str, object]:
    return {**options.given_settings(props, props_file), **given_options(option)}


def _say_dry(
    service: str, place: str, waiting: tuple[str, ...], named: tuple[str, ...], *, as_json: bool
) -> None:
    lines = [f"  would execute {instant}" for instant in waiting]
    lines += [f"  would remove {name}" for name in named]
    Output(as_json=as_json).result(
        {
            "uri": place,
            "service": service,
            "dry_run": True,
            "would_execute": list(waiting),
            "would_remove": list(named),
        },
        Text(f"{place}  {service}: " + ("" if lines else "nothing to do")),
        *lines,
    )


def _say_done(
    service: str,
    place: str,
    scheduled: tuple[str, ...],
    done: list[CarriedOut],
    *,
    as_json: bool,
) -> None:
    rows = [
        [each.instant, undone.instant, undone.action, str(len(undone.files))]
        for each in done
        for undone in each.undone
    ]
    said = (
        f"{len(done)} done"
        if done
        else f"{len(scheduled)} scheduled"
        if scheduled
        else "nothing to do"
    )
    Output(as_json=as_json).result(
        {
            "uri": place,
            "service": service,
            "scheduled": list(scheduled),
            "executed": [asdict(each) for each in done],
        },
        Text(f"{place}  {service}: {said}"),
        *(columns([service, "removed", "action", "files"], rows) if rows else ()),
    )
