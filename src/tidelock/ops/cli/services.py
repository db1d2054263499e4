"""`tidelock services`: which plans wait, who executes them, and what waits with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from tidelock.ops.cli import options
from tidelock.ops.cli.ledger import group_names, opened
from tidelock.ops.cli.output import Output, columns, duration

if TYPE_CHECKING:
    from tidelock.tableservice.overview import PendingService


def services(
    uri: options.TableUri,
    *,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show which table services wait: who executes them, and which file groups they hold.

    Writers need not wait for any of them. A file group of a pending plan is in no other plan, and
    its files are not cleaned.

        tidelock services s3://lake/orders
    """
    from tidelock.tableservice.overview import pending_services

    with opened(uri, props, props_file) as (store, folder):
        found = pending_services(store, folder=folder)
        place = store.uri
    alive = sum(service.alive for service in found)
    heads = ["instant", "service", "age", "attempt", "heartbeat", "executor", "", "file groups"]
    Output(as_json=as_json).result(
        {"uri": place, "services": [_facts(service) for service in found]},
        Text(f"{place}  {len(found)} plans pending, {alive} being executed"),
        *(columns(heads, [_row(service) for service in found]) if found else ()),
    )


def _facts(service: PendingService) -> dict[str, object]:
    return {
        "instant": service.instant,
        "service": service.action,
        "state": service.state,
        "age_ms": service.age_ms,
        "in_ledger": service.ours,
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
        str(service.attempt),
        beat,
        f"{service.host}:{service.pid}" if service.host else service.owner or "-",
        service.next_step,
        " ".join(group_names(service.groups)) or "-",
    ]
