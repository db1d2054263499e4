"""`tidelock lock demo`: a fight for one lock that can be watched."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tidelock.base.clock import SystemClock
from tidelock.base.errors import InvalidInput
from tidelock.ops.cli.options import Json
from tidelock.ops.cli.output import Output
from tidelock.ops.cli.stopping import Stopping
from tidelock.ops.lockdemo.board import Board
from tidelock.ops.lockdemo.director import Director, Outcome
from tidelock.ops.lockdemo.plan import Plan

Seconds = Annotated[
    float,
    typer.Option(
        "--seconds",
        metavar="SECONDS",
        help="How long to go on in all; the two faults and their takeovers take about 30.",
    ),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the folder with lock and journals.")]


def lock_demo(*, seconds: Seconds = 36.0, keep: Keep = False, as_json: Json = False) -> None:
    """Watch five processes fight for one lock.

    All in a temporary folder. One holder is killed, another put to sleep past its lease; at the
    end the writers' journals are checked against the counter that they all incremented. Ends with 0
    if every promise was kept, 1 if not.

        tidelock lock demo --keep
    """
    if not 0 <= seconds <= 86_400:
        raise InvalidInput(f"--seconds {seconds} cannot be", hint="use 0 to 86400")
    output = Output(as_json=as_json)
    clock = SystemClock()
    plan = replace(Plan(), seconds=seconds)
    with Stopping(), demo_folder(keep=keep) as folder:
        board = Board(output.console(), plan.lease, quiet=as_json)
        with board, Director(plan, folder, board, clock) as director:
            outcome = director.play()
        _tell(outcome, output, folder if keep else None)
    raise typer.Exit(0 if outcome.passed else 1)


@contextmanager
def demo_folder(*, keep: bool) -> Iterator[Path]:
    """Make a folder for a demo; it goes with the demo unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="tidelock-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _tell(outcome: Outcome, output: Output, folder: Path | None) -> None:
    facts = {
        "passed": outcome.passed,
        "checks": [{"passed": check.passed, "says": check.says} for check in outcome.checks],
        "grants": outcome.grants,
        "faults": outcome.faults,
        "fenced": outcome.fenced,
        "unfenced": outcome.plain,
        "unfenced_acknowledged": outcome.plain_acknowledged,
        "folder": None if folder is None else str(folder),
        "next": next_commands(folder),
    }
    lines = [
        Text.assemble(
            ("  ok    ", "green") if check.passed else ("  WRONG ", "bold red"), check.says
        )
        for check in outcome.checks
    ]
    lost = outcome.plain_acknowledged - outcome.plain
    lines.append(
        Text(
            f"  note  a counter without fencing says {outcome.plain} after"
            f" {outcome.plain_acknowledged} increments: the late writer destroyed {lost}",
            style="dim",
        )
    )
    verdict = Text("PASS" if outcome.passed else "FAIL")
    verdict.stylize("bold green" if outcome.passed else "bold red")
    commands = [f"  {command}" for command in next_commands(folder)]
    kept = [] if folder is None else [f"kept: {folder}"]
    output.result(facts, "", *lines, "", verdict, *kept, "", "Next:", *commands)


def next_commands(folder: Path | None) -> list[str]:
    """Return three commands that work as they stand."""
    program = program_name()
    place = Path(tempfile.gettempdir()) / "tidelock-try" if folder is None else folder / "table"
    where = shlex.quote(str(place))
    return [
        f"{program} lock run {where} -- sh -c 'echo \"I hold token $TIDELOCK_TOKEN\"'",
        f"{program} lock status {where}",
        f"{program} lock doctor {where}",
    ]


def program_name() -> str:
    """Return what a person must type here to run this program."""
    called = Path(sys.argv[0])
    if called.name != "tidelock":
        return "tidelock"
    found = shutil.which("tidelock")
    if found is not None and Path(found).resolve() == called.resolve():
        return "tidelock"
    try:
        return shlex.quote(str(called.absolute().relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(called.absolute()))
