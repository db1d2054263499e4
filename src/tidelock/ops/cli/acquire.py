"""`tidelock lock acquire`: hold a lock in the foreground, or take it and leave."""

from __future__ import annotations

import shlex
from contextlib import closing
from typing import Annotated

import typer
from rich.text import Text

from tidelock.base.clock import Clock
from tidelock.base.errors import HoldingLost, InvalidInput
from tidelock.base.runtime import start_thread
from tidelock.ops.cli import options
from tidelock.ops.cli.anylock import AnyLock
from tidelock.ops.cli.detach import take_and_leave
from tidelock.ops.cli.output import Output, duration, moment
from tidelock.ops.cli.stopping import Stopping, stop_at_end_of_input

UntilEof = Annotated[bool, typer.Option("--until-eof", help="Release when standard input ends.")]
For = Annotated[
    float | None,
    typer.Option("--for", metavar="SECONDS", help="Release after this long.", show_default=False),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach", help="Take the lock without renewing it, and leave it until it expires."
    ),
]


def acquire(
    resource: options.Resource,
    *,
    until_eof: UntilEof = False,
    for_s: For = None,
    detach: Detach = False,
    wait: options.Wait = None,
    no_wait: options.NoWait = False,
    service: options.Service = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    validity: options.Validity = None,
    renew: options.Renew = None,
    as_json: options.Json = False,
) -> None:
    """Take a lock and keep it in the foreground.

    It is renewed until Ctrl-C, TERM, --for or --until-eof, and then released.

    Ends with 0 when the lock was released, 4 when it was not acquired, 6 when it was lost.

        tidelock lock acquire s3://lake/orders --for 60
    """
    target = options.target(
        resource, props, props_file, validity, renew, any_provider=not detach, service=service
    )
    output = Output(as_json=as_json)
    if for_s is not None and not for_s >= 0:
        raise InvalidInput(f"--for {for_s} cannot be", hint="use 0 or more seconds")
    wait_s = target.wait_s(wait, no_wait=no_wait)
    with Stopping() as stopping:
        if detach:
            if until_eof or for_s is not None:
                raise InvalidInput("--detach leaves at once: use it without --for and --until-eof")
            _detached(target, wait_s, output)
            return
        with closing(target.lock()) as lock:
            lock.acquire(wait_s)
            stopping.note_only()
            hold(lock, stopping, output, target.clock, for_s=for_s, until_eof=until_eof)


def hold(
    lock: AnyLock,
    stopping: Stopping,
    output: Output,
    clock: Clock,
    *,
    for_s: float | None = None,
    until_eof: bool = False,
) -> None:
    """Keep an acquired lock until something ends it, then release it.

    Raises: `HoldingLost` when it is lost meanwhile.
    """
    lost: list[str] = []
    began_ms = clock.now().monotonic_ms

    def note_loss(cause: str) -> None:
        lost.append(cause)
        stopping.stop()

    lock.on_lost(note_loss)
    facts = {"lock": lock.uri, "token": lock.token, "owner": lock.owner}
    output.result(
        {"event": "acquired", **facts},
        Text(f"acquired {lock.uri}", style="green"),
        f"  token {lock.token}, owner {lock.owner}",
    )
    output.remark(_how_it_ends(for_s, until_eof=until_eof))
    if until_eof:
        start_thread("tidelock-stdin", stop_at_end_of_input(stopping))
    stopping.wait(for_s)
    if lost:
        raise HoldingLost(
            f"the lock {lock.uri} was lost: {lost[0]}",
            hint="stop what it protected; acquire again and start over",
        )
    lock.release()
    held_ms = clock.now().monotonic_ms - began_ms
    output.result(
        {"event": "released", **facts, "held_ms": held_ms}, f"released after {duration(held_ms)}"
    )


def _how_it_ends(for_s: float | None, *, until_eof: bool) -> Text:
    ways = ["Ctrl-C"]
    if until_eof:
        ways.append("the end of standard input")
    if for_s is not None:
        ways.append(f"{for_s:g} s")
    return Text(f"  renewed until {' or '.join(ways)}", style="dim")


def _detached(target: options.Target, wait_s: float | None, output: Output) -> None:
    taken = take_and_leave(target.store(), target.lease, wait_s=wait_s, clock=target.clock)
    command = f"tidelock lock force-release {shlex.quote(target.uri)} --if-token {taken.token}"
    output.result(
        {
            "event": "acquired",
            "lock": taken.uri,
            "token": taken.token,
            "owner": taken.owner,
            "valid_until_epoch_ms": taken.valid_until_epoch_ms,
            "release_with": command,
        },
        Text(f"acquired {taken.uri}", style="green"),
        f"  token {taken.token}, owner {taken.owner}",
        f"  not renewed: valid until {moment(taken.valid_until_epoch_ms)}",
        f"  to release it earlier: {command}",
    )
