"""`tidelock services`: which plans wait, who executes them, and how to free one of them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.base.errors import InvalidInput
from tidelock.ops.cli import options
from tidelock.ops.cli.ledger import group_names, opened
from tidelock.ops.cli.output import Output, columns, duration

if TYPE_CHECKING:
    from tidelock.tableservice.overview import PendingService


class Deed(StrEnum):
    """What to do with a plan."""

    CANCEL = "cancel"


DeedName = Annotated[
    Deed | None,
    typer.Argument(metavar="[cancel]", help="Free the plan of INSTANT.", show_default=False),
]
Planned = Annotated[
    str | None, typer.Argument(metavar="[INSTANT]", help="Which plan.", show_default=False)
]
Force = Annotated[
    bool, typer.Option("--force", help="With cancel: also a plan that could be executed.")
]


def services(
    uri: options.TableUri,
    deed: DeedName = None,
    instant: Planned = None,
    *,
    force: Force = False,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show which table services wait: who executes them, and which file groups they hold.

    Writers need not wait for any of them. A file group of a pending plan is in no other plan, and
    its files are not cleaned.

    With cancel, roll a plan back: one of clustering or log compaction, one that cannot be executed
    because its file is broken or names missing files, or with --force any. One that is being
    executed is left alone.

        tidelock services s3://lake/orders
        tidelock services s3://lake/orders cancel 20261115142747949
    """
    from tidelock.tableservice.overview import pending_services

    if (deed is None) != (instant is None):
        raise InvalidInput("cancel goes with the INSTANT of a plan")
    if instant is not None:
        settings = options.given_settings(props, props_file)
        _cancel(uri, instant, settings, force=force, as_json=as_json)
        return
    with opened(uri, props, props_file) as (store, folder):
        found = pending_services(store, folder=folder)
        place = store.uri
    alive = sum(service.alive for service in found)
    heads = ["instant", "service", "age", "scheduled by", "attempt"]
    heads += ["heartbeat", "executor", "", "file groups"]
    Output(as_json=as_json).result(
        {"uri": place, "services": [_facts(service) for service in found]},
        Text(f"{place}  {len(found)} plans pending, {alive} being executed"),
        *(columns(heads, [_row(service) for service in found]) if found else ()),
    )


def _cancel(
    uri: str,
    instant: str,
    settings: dict[str, object],
    *,
    force: bool,
    as_json: bool,
) -> None:
    from tidelock.tableservice.cancelling import cancel
    from tidelock.tableservice.table import Table

    with Table.open(uri, options=settings) as table:
        done, place = cancel(table.writer(), instant, force=force), table.uri
    why = f": {done.fault}" if done.fault else ""
    Output(as_json=as_json).result(
        {"uri": place, "cancelled": done.instant, "service": done.action, "fault": done.fault},
        Text(f"{place}  the {done.action} {done.instant} is cancelled{why}"),
    )


def _facts(service: PendingService) -> dict[str, object]:
    return {
        "instant": service.instant,
        "service": service.action,
        "state": service.state,
        "age_ms": service.age_ms,
        "in_ledger": service.ours,
        "scheduled_by": service.scheduled_by,
        "removable": service.removable,
        "attempt": service.attempt,
        "owner": service.owner,
        "alive": service.alive,
        "heartbeat_age_ms": service.heartbeat_age_ms,
        "host": service.host,
        "pid": service.pid,
        "next_step": service.next_step,
        "groups": group_names(service.groups),
    }


def _row(service: PendingService) -> list[str]:
    age_ms = service.heartbeat_age_ms
    beat = "none" if age_ms is None else f"{duration(age_ms)} ago"
    return [
        service.instant,
        service.action,
        duration(service.age_ms),
        service.scheduled_by,
        str(service.attempt),
        beat,
        f"{service.host}:{service.pid}" if service.host else service.owner or "-",
        service.next_step,
        " ".join(group_names(service.groups)) or "-",
    ]
