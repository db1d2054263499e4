"""`tidelock lock run`: a command that runs only while the lock is held."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Annotated

import typer
from rich.text import Text

from tidelock.base.clock import Clock
from tidelock.base.errors import HoldingLost, InvalidInput, Kind, OutcomeUnknown
from tidelock.ops.cli import options
from tidelock.ops.cli.anylock import AnyLock
from tidelock.ops.cli.child import CannotStart, Child
from tidelock.ops.cli.output import Output, error_facts
from tidelock.ops.cli.stopping import Stopping

Command = Annotated[
    list[str],
    typer.Argument(metavar="-- COMMAND [ARG]...", help="What to run.", show_default=False),
]
KillAfter = Annotated[
    float,
    typer.Option(
        "--kill-after",
        metavar="SECONDS",
        help="When the lock is lost: how long the command has between TERM and KILL.",
    ),
]


def run(
    resource: options.Resource,
    command: Command,
    *,
    kill_after: KillAfter = 5.0,
    wait: options.Wait = None,
    no_wait: options.NoWait = False,
    service: options.Service = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    validity: options.Validity = None,
    renew: options.Renew = None,
    as_json: options.Json = False,
) -> None:
    """Run a command under a lock.

    Takes the lock, runs the command, releases the lock, and ends as the command ended.

    The command finds TIDELOCK_TOKEN, TIDELOCK_LOCK and TIDELOCK_OWNER in its environment. If the
    lock is lost, the command and its children are ended and the exit code is 6. Exit code 4: not
    acquired, the command did not run. 127: no such command. 128 + n: ended by signal n.
    Standard output belongs to the command: --json writes to standard error.

        tidelock lock run s3://lake/orders --wait 300 -- spark-submit compact.py
    """
    target = options.target(
        resource, props, props_file, validity, renew, any_provider=True, service=service
    )
    output = Output(as_json=as_json, to_stderr=True)
    if not kill_after >= 0:
        raise InvalidInput(f"--kill-after {kill_after} cannot be", hint="use 0 or more seconds")
    with Stopping() as stopping, closing(target.lock()) as lock:
        lock.acquire(target.wait_s(wait, no_wait=no_wait))
        stopping.note_only()
        code = run_under(lock, command, stopping, output, target.clock, kill_after_s=kill_after)
    raise typer.Exit(code)


def run_under(
    lock: AnyLock,
    command: list[str],
    stopping: Stopping,
    output: Output,
    clock: Clock,
    *,
    kill_after_s: float,
) -> int:
    """Run `command` while `lock`, already acquired, is held; release it; return the exit code."""
    token = lock.token
    env = {
        **os.environ,
        "TIDELOCK_TOKEN": str(token),
        "TIDELOCK_LOCK": lock.uri,
        "TIDELOCK_OWNER": lock.owner,
    }
    try:
        child = Child.start(command, env, clock)
    except CannotStart as error:
        lock.release()
        output.result(error_facts("command", str(error)), Text(f"tidelock: {error}", style="red"))
        return error.exit_code
    loss = _Loss(child, output, kill_after_s)
    lock.on_lost(loss.act)
    stopping.forward_to(child.send)
    code = child.wait()
    lost = _released(lock, output)
    if lost or loss.is_known:
        # Whatever the command left running must not go on without the lock.
        child.end(kill_after_s)
        lost = True
    if output.as_json:
        facts = {"lock": lock.uri, "token": token, "owner": lock.owner}
        ended = "lost" if lost else "released"
        output.result({"event": ended, **facts, "command_exit_code": code})
    return Kind.HOLDING_LOST.exit_code if lost else code


class _Loss:
    """What happens when the lock is lost under a running command."""

    def __init__(self, child: Child, output: Output, kill_after_s: float) -> None:
        self._child = child
        self._output = output
        self._kill_after_s = kill_after_s
        self.is_known = False

    def act(self, cause: str) -> None:
        """End the command; called in a thread of its own."""
        self.is_known = True
        self._output.remark(
            Text(f"tidelock: the lock is lost ({cause}); ending the command", style="red")
        )
        self._child.end(self._kill_after_s)


def _released(lock: AnyLock, output: Output) -> bool:
    """Release; return whether it turned out that the lock had been lost before."""
    try:
        lock.release()
    except HoldingLost as error:
        output.remark(Text(f"tidelock: {error}", style="red"))
        return True
    except OutcomeUnknown as error:
        # The command ran under the lock to its end; only the next taker has to wait.
        output.remark(Text(f"tidelock: {error}", style="yellow"))
    return False
