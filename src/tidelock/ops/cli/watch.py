"""`tidelock lock watch`: a line for every change of a lock."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tidelock.base.errors import InvalidInput, Unavailable
from tidelock.lock.inspect import Condition, Inspection, inspect_lock
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output, duration, moment
from tidelock.ops.cli.status import STYLES, lock_facts, who
from tidelock.ops.cli.stopping import Stopping
from tidelock.store.contract import ObjectStore

Interval = Annotated[
    float, typer.Option("--interval", metavar="SECONDS", help="How often to look: 0.05 or more.")
]
Renewals = Annotated[bool, typer.Option("--renewals", help="Show every renewal, too.")]
For = Annotated[
    float | None,
    typer.Option("--for", metavar="SECONDS", help="End after this long.", show_default=False),
]


def watch(
    resource: options.Resource,
    *,
    interval: Interval = 0.5,
    renewals: Renewals = False,
    for_s: For = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show every change of a lock.

    A line for each, until Ctrl-C. It looks only and writes nothing.

    Holdings shorter than the interval may pass unseen.

        tidelock lock watch s3://lake/orders --json
    """
    target = options.target(resource, props, props_file)
    output = Output(as_json=as_json)
    if not interval >= 0.05:
        raise InvalidInput(f"--interval {interval} is too short", hint="use 0.05 or more seconds")
    if for_s is not None and not for_s >= 0:
        raise InvalidInput(f"--for {for_s} cannot be", hint="use 0 or more seconds")
    clock, store = target.clock, target.store()
    until_ms = None if for_s is None else clock.now().monotonic_ms + for_s * 1000
    last = ""
    try:
        with Stopping() as stopping:
            stopping.note_only()
            while True:
                last = _look(store, target, output, last, renewals=renewals)
                left_ms = interval * 1000
                if until_ms is not None:
                    left_ms = min(left_ms, until_ms - clock.now().monotonic_ms)
                if left_ms <= 0 or stopping.wait(left_ms / 1000):
                    return
    finally:
        store.close()


def _look(
    store: ObjectStore, target: options.Target, output: Output, last: str, *, renewals: bool
) -> str:
    """Look once and say what changed; return what was seen, to compare the next look with."""
    try:
        seen = inspect_lock(store, target.lease, target.clock)
    except Unavailable as error:
        if last != error.message:
            now_ms = target.clock.now().wall_epoch_ms
            facts = {"state": "unavailable", "problem": error.message, "seen_epoch_ms": now_ms}
            output.result(facts, Text(f"{moment(now_ms)}  no answer  {error.message}", "yellow"))
        return error.message
    record = seen.record
    identity = [seen.condition.value, record.owner if record else "", str(record and record.token)]
    if renewals or seen.problem is not None:
        identity.append(seen.version)
    found = " ".join(identity)
    if found != last:
        output.result(lock_facts(seen), _line(seen))
    return found


def _line(seen: Inspection) -> Text:
    line = Text(f"{moment(seen.seen_at.wall_epoch_ms)}  ")
    line.append(f"{seen.condition.value:<10}", STYLES[seen.condition])
    record = seen.record
    if seen.problem is not None:
        line.append(f"  {seen.problem.message}")
    elif record is None:
        line.append("  never taken")
    else:
        token = f"  token {record.token}" if record.is_ours else ""
        line.append(f"{token}  {'last ' if record.expired else ''}owner {who(seen)}")
    if seen.condition is Condition.HELD and seen.expires_in_ms is not None:
        line.append(f"  expires in {duration(seen.expires_in_ms)}", "dim")
    return line
