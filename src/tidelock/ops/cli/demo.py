"""`tidelock demo`: several programs write one table; one is killed, and every row is checked."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.base.clock import SystemClock
from tidelock.base.errors import InvalidInput
from tidelock.ops.cli.lock_demo import demo_folder, program_name
from tidelock.ops.cli.options import Json
from tidelock.ops.cli.output import Output
from tidelock.ops.cli.stopping import Stopping

if TYPE_CHECKING:
    from tidelock.ops.demo.director import Outcome

Seconds = Annotated[
    float,
    typer.Option(
        "--seconds",
        metavar="SECONDS",
        help="How long everybody writes, half of it before the kill and half after it.",
    ),
]
Keep = Annotated[
    bool, typer.Option("--keep/--no-keep", help="Keep the folder with table and journals.")
]
Spark = Annotated[
    bool, typer.Option("--spark/--no-spark", help="With PySpark writers, or plain Python alone.")
]


def demo(
    *, seconds: Seconds = 50.0, keep: Keep = True, spark: Spark = True, as_json: Json = False
) -> None:
    """Watch several programs write one table at the same time.

    Two PySpark writers, a plain Python writer and a SQL loop change the same rows while
    compaction, clustering, clean and archive run beside them. One writer is killed within a write;
    the others clear it away, and it comes back. In the end every row is checked against what the
    programs did, and read with Apache Hudi's own reader. Ends with 0 if all is right, 1 if not.

        tidelock demo --no-spark
    """
    from tidelock.ops.demo.board import Board
    from tidelock.ops.demo.director import Director
    from tidelock.ops.demo.plan import WITH_SPARK, WITHOUT_SPARK, Plan
    from tidelock.ops.fleet.articles import BRISK, LOCKED, Articles
    from tidelock.ops.fleet.crew import Crew
    from tidelock.ops.fleet.member import Role

    if not 0 <= seconds <= 86_400:
        raise InvalidInput(f"--seconds {seconds} cannot be", hint="use 0 to 86400")
    output = Output(as_json=as_json)
    missing = _missing_for_spark() if spark else "not asked for"
    programs = WITHOUT_SPARK if missing else WITH_SPARK
    if missing and spark:
        output.remark(f"without Spark writers and SQL: {missing}")
    plan = replace(Plan(dict(programs)), calm_s=seconds / 2)
    with Stopping(), demo_folder(keep=keep) as folder:
        articles = Articles(
            # Gently: three JVMs start beside the Python programs, perhaps on two cores.
            str(folder / "orders"),
            options={**BRISK, **LOCKED},
            pause_ms=250,
            service_pause_ms=1_000,
            deletes=Role.SQL in programs.values(),
        )
        board = Board(output.console(), quiet=as_json)
        with Crew[Articles, Role](folder, articles) as crew, board:
            outcome = Director(plan, crew, board, SystemClock()).play()
        _tell(outcome, output, folder if keep else None)
    raise typer.Exit(0 if outcome.passed else 1)


def _missing_for_spark() -> str:
    """Return what Spark would need and is not here; empty if it can run."""
    for module in ("pyspark", "sqlglot"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed (pip install 'tidelock[spark]')"
    return "" if shutil.which("java") else "no Java was found (17 or newer is needed)"


def _tell(outcome: Outcome, output: Output, folder: Path | None) -> None:
    facts = {
        "passed": outcome.passed,
        "checks": [{"passed": check.passed, "says": check.says} for check in outcome.checks],
        "writes": outcome.landed,
        "conflicts_solved": outcome.solved,
        "services_run": outcome.served,
        "faults": outcome.faults,
        "folder": None if folder is None else str(folder),
        "next": [] if folder is None else next_commands(folder),
    }
    marks = {
        True: ("  ok    ", "green"),
        False: ("  WRONG ", "bold red"),
        None: ("  -     ", "dim"),
    }
    lines = [Text.assemble(marks[check.passed], check.says) for check in outcome.checks]
    verdict = Text("PASS" if outcome.passed else "FAIL")
    verdict.stylize("bold green" if outcome.passed else "bold red")
    summary = (
        f"{outcome.landed} writes, {outcome.solved} conflicts solved,"
        f" {outcome.served} services run, {len(outcome.faults)} writer killed"
    )
    following = []
    if folder is not None:
        commands = [f"  {command}" for command in next_commands(folder)]
        following = ["", "The table is still there. Look at it:", *commands]
    output.result(facts, "", *lines, "", Text.assemble(verdict, "  ", summary), *following)


def next_commands(folder: Path) -> list[str]:
    """Return three commands that work as they stand."""
    program, table = program_name(), folder / "orders"
    return [
        f"{program} table show {table} --limit 5",
        f"{program} ledger conflicts {table}",
        f"{program} ui {table}",
    ]
