"""`tidelock compact`, `log-compact`, `cluster`, `clean`, `archive`: services from any process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.base.errors import InvalidInput, Kind
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output, columns
from tidelock.ops.cli.progress import progress_bar
from tidelock.ops.cli.table_create import given_options

if TYPE_CHECKING:
    from tidelock.operation.writer import TableWriter
    from tidelock.tableservice.running import Ran, Service


class Step(StrEnum):
    """How far to go."""

    SCHEDULE = "schedule"
    EXECUTE = "execute"
    RUN = "run"


class OnlyRun(StrEnum):
    """The step of a service that has no plans."""

    RUN = "run"


StepName = Annotated[
    Step,
    typer.Argument(
        metavar="schedule|execute|run",
        help="Put a plan on the timeline, execute the plans that wait there, or do both.",
        show_default=False,
    ),
]
RunName = Annotated[OnlyRun, typer.Argument(metavar="run", help="Do it.", show_default=False)]
AtInstant = Annotated[
    str | None,
    typer.Option(
        "--instant",
        metavar="TIME",
        help="With execute: only the plan of this instant.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "-O",
        "--option",
        metavar="KEY=VALUE",
        help="A setting of the service by Hudi's name. May be repeated.",
        show_default=False,
    ),
]


def compact(
    uri: options.TableUri,
    step: StepName,
    *,
    instant: AtInstant = None,
    dry_run: DryRun = False,
    option: Option = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Merge the log files of a merge-on-read table into base files.

    Any number of processes may do this at once: each plan is executed by one of them, and one that
    dies is taken over. Plans that somebody else is executing are left to them.

    Ends with 0, or with 4 if what was to be executed was left to others: they are at it.

        tidelock compact s3://lake/orders run
    """
    from tidelock.tableservice.running import compaction

    asked = Asked("compaction", uri, step, instant, dry_run=dry_run, as_json=as_json)
    _carry_out(asked, compaction, _chosen(option, props, props_file))


def log_compact(
    uri: options.TableUri,
    step: StepName,
    *,
    instant: AtInstant = None,
    dry_run: DryRun = False,
    option: Option = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Merge the log files of a file group with each other, where there are many.

    Base files are not written: this is cheaper than a compaction, and reads get faster by it.
    Writers come first: where one was in the way, the plan is undone.

    Ends with 0, or with 4 if what was to be executed was left: others are at it, or came between.

        tidelock log-compact s3://lake/orders run -O hoodie.log.compaction.blocks.threshold=10
    """
    from tidelock.tableservice.running import log_compaction

    asked = Asked("log compaction", uri, step, instant, dry_run=dry_run, as_json=as_json)
    _carry_out(asked, log_compaction, _chosen(option, props, props_file))


def cluster(
    uri: options.TableUri,
    step: StepName,
    *,
    instant: AtInstant = None,
    dry_run: DryRun = False,
    option: Option = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Write small files together as larger ones, with their rows sorted if asked.

    Writers come first: where one changed what was being clustered, the plan is undone, and the
    next one starts from what the writer left.

    Ends with 0, or with 4 if what was to be executed was left: others are at it, or came between.

        tidelock cluster s3://lake/orders run \\
            -O hoodie.clustering.plan.strategy.sort.columns=customer,ts
    """
    from tidelock.tableservice.running import clustering

    asked = Asked("clustering", uri, step, instant, dry_run=dry_run, as_json=as_json)
    _carry_out(asked, clustering, _chosen(option, props, props_file))


def clean(
    uri: options.TableUri,
    step: StepName,
    *,
    instant: AtInstant = None,
    dry_run: DryRun = False,
    option: Option = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Roll back what dead writers left, then delete files that no retained state needs.

    Ends with 0, or with 4 if what was to be executed was left to others: they are at it.

        tidelock clean s3://lake/orders run -O hoodie.clean.commits.retained=20
    """
    from tidelock.tableservice.running import clean as cleaning

    asked = Asked("clean", uri, step, instant, dry_run=dry_run, as_json=as_json)
    _carry_out(asked, cleaning, _chosen(option, props, props_file))


def archive(
    uri: options.TableUri,
    step: RunName,
    *,
    dry_run: DryRun = False,
    option: Option = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Move the oldest instants from the active timeline to the history.

    Ends with 0, or with 4 if other processes archive the table all the time.

        tidelock archive s3://lake/orders run
    """
    from tidelock.tableservice.archive.execute import Archiving
    from tidelock.tableservice.config import archive_bounds
    from tidelock.tableservice.table import Table

    del step  # there is but one
    chosen = _chosen(option, props, props_file)
    with Table.open(uri, options=chosen) as table:
        place, bounds, service = table.uri, archive_bounds(chosen), Archiving(table.writer())
        output = Output(as_json=as_json)
        if dry_run:
            leaving = [instant.requested for instant in service.plan(bounds)]
            output.result(
                {"uri": place, "service": "archive", "dry_run": True, "would_archive": leaving},
                Text(f"{place}  archive would move {len(leaving)} instants"),
                *(f"  {instant}" for instant in leaving),
            )
            return
        done = service.run(bounds)
    said = f"{done.instants} instants archived, {done.entries} ledger entries deleted"
    output.result({"uri": place, "service": "archive", **asdict(done)}, f"{place}  {said}")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    service: str
    uri: str
    step: Step
    instant: str | None
    dry_run: bool
    as_json: bool


def _chosen(
    option: list[str] | None, props: list[str] | None, props_file: str | None
) -> dict[str, object]:
    return {**options.given_settings(props, props_file), **given_options(option)}


def _carry_out(
    asked: Asked,
    make: Callable[[TableWriter, Mapping[str, object]], Service],
    chosen: Mapping[str, object],
) -> None:
    # Arrow takes longer to load than most lock commands take to run, so it loads here.
    from tidelock.engine.service import Watch
    from tidelock.tableservice.engines import services_engine
    from tidelock.tableservice.table import Table

    if asked.instant is not None and asked.step is not Step.EXECUTE:
        raise InvalidInput(f"--instant goes with execute, not with {asked.step}")
    with Table.open(asked.uri, options=chosen) as table:
        service, place = make(table.writer(), chosen), table.uri
        if asked.dry_run:
            _preview(asked, service, place)
            return
        console = Output.console(stderr=True)
        with progress_bar(asked.service, console, hidden=asked.as_json) as told:
            watch = Watch(progress=told)
            table.writer().services = services_engine(table.writer().store, chosen, None, watch)
            done = _done(asked, service)
    _report(asked, done, place)


def _done(asked: Asked, service: Service) -> Ran:
    from tidelock.tableservice.running import Ran

    match asked.step:
        case Step.SCHEDULE:
            return service.plan_anew()
        case Step.EXECUTE if asked.instant is not None:
            return Ran(None, (service.plans.execute(asked.instant),))
        case Step.EXECUTE:
            return service.execute_pending()
        case Step.RUN:
            return service.run()


def _preview(asked: Asked, service: Service, place: str) -> None:
    waiting = service.plans.pending()
    if asked.instant is not None:
        waiting = tuple(instant for instant in waiting if instant == asked.instant)
    executes = () if asked.step is Step.SCHEDULE else waiting
    plans = () if asked.step is Step.EXECUTE else service.preview()
    lines = [f"  would execute the plan {instant}" for instant in executes]
    lines += [f"  would plan {name}" for name in plans]
    Output(as_json=asked.as_json).result(
        {
            "uri": place,
            "service": asked.service,
            "dry_run": True,
            "would_execute": list(executes),
            "would_plan": list(plans),
        },
        Text(f"{place}  {asked.service}: " + ("" if lines else "nothing to do")),
        *lines,
    )


def _report(asked: Asked, done: Ran, place: str) -> None:
    rows = [
        [each.instant, each.completion, str(each.files_written), f"{each.bytes_written:,}"]
        for each in done.executed
    ]
    lines = [Text(f"{place}  {asked.service}: {_said(asked, done)}")]
    lines += columns(["instant", "completed", "files", "bytes"], rows) if rows else []
    lines += [Text(f"  {each.instant} was left: {each.why}", style="yellow") for each in done.left]
    lines += [
        Text(f"  rolled back {each.instant} ({each.action}), {each.files_deleted} files deleted")
        for each in done.rolled_back
    ]
    Output(as_json=asked.as_json).result(
        {
            "uri": place,
            "service": asked.service,
            "outcome": done.outcome.value,
            "rolled_back": [asdict(each) for each in done.rolled_back],
            "scheduled": done.scheduled,
            "executed": [asdict(each) for each in done.executed],
            "left": [asdict(each) for each in done.left],
        },
        *lines,
    )
    if done.left and not done.executed:
        raise typer.Exit(Kind.CONFLICT.exit_code)


def _said(asked: Asked, done: Ran) -> str:
    if asked.step is Step.SCHEDULE:
        return f"scheduled {done.scheduled}" if done.scheduled else "nothing to plan"
    if not done.executed and not done.left:
        return f"{len(done.rolled_back)} rolled back" if done.rolled_back else "nothing to do"
    if not done.executed:
        return f"{len(done.left)} left to others"
    return f"{len(done.executed)} executed, {len(done.left)} left"
