"""`tidelock lock force-release`: end a holding that is not yours."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

import typer
from rich.text import Text

from tidelock.base.errors import Conflict, DataCorrupt, InvalidInput
from tidelock.lock.force import Operator
from tidelock.lock.inspect import Condition, Inspection, inspect_lock
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output, duration
from tidelock.ops.cli.status import who
from tidelock.store.readback import Patience

IfToken = Annotated[
    int | None,
    typer.Option(
        "--if-token", metavar="N", help="Only if the holder's token is N.", show_default=False
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def force_release(
    resource: options.Resource,
    *,
    if_token: IfToken = None,
    yes: Yes = False,
    service: options.Service = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Release a lock whoever holds it.

    Only if it is still the holding that was looked at: the write is conditional.

    A holder that still runs learns of it at its next renewal and must stop. Until then both may
    believe: what checks tokens stays correct, nothing else does. Tokens keep growing. Ends with 0
    when the lock is free afterwards, 4 when it changed meanwhile or has another token.

        tidelock lock force-release s3://lake/orders --if-token 17
    """
    target = options.target(resource, props, props_file, any_provider=True, service=service)
    output = Output(as_json=as_json)
    if (elsewhere := target.elsewhere) is not None:
        with closing(elsewhere):
            if not yes:
                raise InvalidInput(f"{elsewhere.uri} would be released", hint="add --yes to do it")
            elsewhere.force(output, if_token)
        return
    store = target.store()
    try:
        seen = inspect_lock(store, target.lease, target.clock)
        if seen.problem is not None:
            raise DataCorrupt(
                f"{seen.uri} cannot be read: {seen.problem.message}",
                hint=seen.problem.hint or "`tidelock lock doctor --fix` saves it and mends it",
            )
        if seen.condition is Condition.FREE:
            facts = {"lock": seen.uri, "changed": False, "state": "free"}
            output.result(facts, f"{seen.uri} is free; nothing to release")
            return
        _check_token(seen, if_token)
        if not yes:
            _confirm(seen, output)
        operator = Operator(store, Patience(clock=target.clock))
        released = operator.force_release(seen)
    finally:
        store.close()
    facts = {
        "lock": seen.uri,
        "changed": True,
        "state": "free",
        "released_owner": released.owner,
        "released_token": released.token or None,
        "operator": operator.owner,
    }
    output.result(facts, Text(f"released {seen.uri}", style="green"), f"  was held by {who(seen)}")
    if seen.condition is Condition.HELD:
        output.remark(
            Text(
                "  if that holder still runs it learns of this at its next renewal; until then"
                " both may believe to hold the lock",
                style="yellow",
            )
        )


def _check_token(seen: Inspection, if_token: int | None) -> None:
    assert seen.record is not None
    if if_token is None:
        return
    if not seen.record.is_ours:
        raise Conflict(
            f"{seen.uri} is held by {who(seen)}, which has no token; expected {if_token}",
            hint="leave --if-token out to release it all the same",
        )
    if seen.record.token != if_token:
        raise Conflict(
            f"{seen.uri} has token {seen.record.token}, not {if_token}: it is another holding",
            hint="look with `tidelock lock status`; nothing was done",
        )


def _confirm(seen: Inspection, output: Output) -> None:
    assert seen.record is not None
    if output.as_json or not sys.stdin.isatty():
        raise InvalidInput(
            f"{seen.uri} is {seen.condition.value} by {who(seen)}; nobody can be asked here",
            hint="add --yes to release it",
        )
    token = f", token {seen.record.token}" if seen.record.is_ours else ""
    output.remark(f"{seen.uri}", f"  {seen.condition.value}: owner {who(seen)}{token}")
    if seen.expires_in_ms is not None and seen.expires_in_ms > 0:
        output.remark(f"  its lease runs for another {duration(seen.expires_in_ms)}")
    if not typer.confirm("Release it?", err=True):
        raise typer.Exit(1)
