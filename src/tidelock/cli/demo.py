"""`tidelock demo` and `tidelock lock demo`."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.cli import options
from tidelock.cli.options import flag, option
from tidelock.cli.output import Output
from tidelock.cli.signals import Stopping
from tidelock.core.errors import InvalidInput
from tidelock.core.system import SystemClock

if TYPE_CHECKING:
    from tidelock.workload.report import DemoReport


def lock_demo(
    *,
    seconds: Annotated[
        float,
        option(
            "--seconds SECONDS",
            "Duration of the demo; the two faults and their takeovers take about 30.",
            show_default=True,
        ),
    ] = 36.0,
    keep: Annotated[
        bool, flag("--keep", "Keep the folder with the lock and the journals.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Watch five processes contend for one lock.

    The demo runs in a temporary folder. One holder is killed, another is suspended past its lease.
    At the end the journals of the writers are checked against the counter that they incremented.
    Exit status: 0 if every check passed, 1 if one failed.

        tidelock lock demo --keep
    """
    from tidelock.workload.lock_demo import LockDemo, LockDemoPlan
    from tidelock.workload.lock_program import LockFleetSpec, lock_pool
    from tidelock.workload.screen import Screen

    _check_seconds(seconds)
    output = Output(as_json=as_json)
    plan = LockDemoPlan(seconds=seconds)
    with Stopping(), demo_folder(keep=keep) as folder:
        screen = Screen(output.console(), quiet=as_json)
        with screen, lock_pool(folder, LockFleetSpec(plan.lease)) as pool:
            report = LockDemo(plan, pool, screen, SystemClock()).run()
        _show_lock_demo(report, output, folder if keep else None)
    raise typer.Exit(0 if report.passed else 1)


def _check_seconds(seconds: float) -> None:
    if not 0 <= seconds <= 86_400:
        raise InvalidInput(
            f"--seconds: expected a number from 0 to 86400, got {seconds:g}",
            hint="use a value in that range",
        )


@contextmanager
def demo_folder(*, keep: bool) -> Iterator[Path]:
    """Create a folder for a demo; delete it at the end unless `keep`."""
    folder = Path(tempfile.mkdtemp(prefix="tidelock-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _show_lock_demo(report: DemoReport, output: Output, folder: Path | None) -> None:
    commands = lock_demo_next_commands(folder)
    counted, acknowledged = report.figures["unfenced"], report.figures["unfenced_acknowledged"]
    note = (
        f"  note  a counter without fencing shows {counted} after {acknowledged} increments:"
        f" the late writer overwrote {acknowledged - counted}"
    )
    kept = [] if folder is None else [f"kept: {folder}"]
    lines: list[Text | str] = [Text(note, style="dim"), "", report.verdict(), *kept]
    _show(report, output, folder, "Next:", commands, *lines)


def _show(
    report: DemoReport,
    output: Output,
    folder: Path | None,
    title: str,
    commands: list[str],
    *human: Text | str,
) -> None:
    """Show the checks, the lines of one demo, and the commands to run next."""
    following = ["", title, *(f"  {command}" for command in commands)] if commands else []
    output.result(
        {**report.as_dict(), "folder": None if folder is None else str(folder), "next": commands},
        *("", *report.check_lines(), *human, *following),
    )


def lock_demo_next_commands(folder: Path | None) -> list[str]:
    """Return three commands that can be run as printed."""
    program = program_name()
    path = Path(tempfile.gettempdir()) / "tidelock-try" if folder is None else folder / "table"
    uri = shlex.quote(str(path))
    return [
        f"{program} lock run {uri} -- sh -c 'echo \"I hold token $TIDELOCK_TOKEN\"'",
        f"{program} lock status {uri}",
        f"{program} lock doctor {uri}",
    ]


def program_name() -> str:
    """Return the command that runs this program from the current folder."""
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


Keep = Annotated[bool, flag("--keep/--no-keep", "Keep the folder with the table and the journals.")]
Spark = Annotated[bool, flag("--spark/--no-spark", "Use PySpark writers, or plain Python only.")]


def demo(
    *,
    seconds: Annotated[
        float,
        option(
            "--seconds SECONDS",
            "How long the programs write, half of it before the kill and half after it.",
            show_default=True,
        ),
    ] = 50.0,
    keep: Keep = True,
    spark: Spark = True,
    as_json: options.Json = False,
) -> None:
    """Watch several programs write one table at the same time.

    Two PySpark writers, a plain Python writer and a SQL loop change the same rows while
    compaction, clustering, clean and archive run concurrently. One writer is killed inside a write;
    the others roll it back, and it restarts. At the end every row is checked against the journals
    of the programs, and the table is read with Apache Hudi's own reader.
    Exit status: 0 if every check passed, 1 if one failed.

        tidelock demo --no-spark
    """
    from tidelock.workload.demo import WITH_SPARK, WITHOUT_SPARK, TableDemo, TableDemoPlan
    from tidelock.workload.screen import Screen
    from tidelock.workload.table_program import (
        FAST_OPTIONS,
        LOCK_OPTIONS,
        Role,
        TableFleetSpec,
        table_pool,
    )

    _check_seconds(seconds)
    output = Output(as_json=as_json)
    missing = _missing_for_spark() if spark else "not requested"
    programs = WITHOUT_SPARK if missing else WITH_SPARK
    if missing and spark:
        output.remark(f"running without Spark writers and SQL: {missing}")
    plan = TableDemoPlan(dict(programs), phase_s=seconds / 2)
    with Stopping(), demo_folder(keep=keep) as folder:
        spec = TableFleetSpec(
            # Long pauses: three JVMs and the Python programs may share two cores.
            str(folder / "orders"),
            options={**FAST_OPTIONS, **LOCK_OPTIONS},
            pause_ms=250,
            service_pause_ms=1_000,
            deletes=Role.SQL in programs.values(),
        )
        screen = Screen(output.console(), quiet=as_json)
        with table_pool(folder, spec) as pool, screen:
            report = TableDemo(plan, pool, screen, SystemClock()).run()
        _show_demo(report, output, folder if keep else None)
    raise typer.Exit(0 if report.passed else 1)


def _missing_for_spark() -> str:
    """Return what is missing to run Spark; empty if it can run."""
    for module in ("pyspark", "sqlglot"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed (pip install 'tidelock[spark]')"
    return "" if shutil.which("java") else "Java was not found (17 or newer is required)"


def _show_demo(report: DemoReport, output: Output, folder: Path | None) -> None:
    commands = [] if folder is None else next_commands(folder)
    figures = report.figures
    summary = (
        f"{figures['writes']} writes, {figures['conflicts_solved']} conflicts resolved,"
        f" {figures['services_run']} services run, {len(report.faults)} writer killed"
    )
    verdict = Text.assemble(report.verdict(), "  ", summary)
    _show(report, output, folder, "The table was kept. Inspect it:", commands, "", verdict)


def next_commands(folder: Path) -> list[str]:
    """Return three commands that can be run as printed."""
    program, table = program_name(), folder / "orders"
    return [
        f"{program} table show {table} --limit 5",
        f"{program} ledger conflicts {table}",
        f"{program} ui {table}",
    ]
