"""`tidelock timeline show`: every action on a table's active timeline, finished or not."""

from __future__ import annotations

from rich.text import Text

from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output, columns
from tidelock.ops.cli.table import opened
from tidelock.table.timeline.instant import Instant


def show(
    uri: options.TableUri,
    *,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show the active timeline of a table, oldest first.

    Each action is shown once, in the state it has come to: requested, inflight or completed.

        tidelock timeline show s3://lake/orders
    """
    with opened(uri, props, props_file) as table:
        instants, place = table.timeline, table.uri
    pending = sum(not instant.is_completed for instant in instants)
    output = Output(as_json=as_json)
    output.result(
        {"uri": place, "instants": [_instant_facts(instant) for instant in instants]},
        Text(f"{place}  {len(instants)} actions, {pending} pending"),
        *columns(["requested", "completed", "action", "state"], [_row(each) for each in instants]),
    )


def _instant_facts(instant: Instant) -> dict[str, object]:
    return {
        "requested": instant.requested,
        "completion": instant.completion or None,
        "action": instant.action.value,
        "state": instant.state.name.lower(),
    }


def _row(instant: Instant) -> list[str]:
    state = instant.state.name.lower()
    return [instant.requested, instant.completion or "-", instant.action.value, state]
