"""The program `tidelock`: its commands, and what becomes of their errors.

Every error ends as a sentence and an exit code. A traceback is shown to nobody who did not ask for
one with TIDELOCK_DEBUG=1.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import traceback
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Any, TextIO

import typer

from tidelock.base.errors import Kind, TidelockError
from tidelock.ops.cli.acquire import acquire
from tidelock.ops.cli.audit import audit
from tidelock.ops.cli.demo import demo
from tidelock.ops.cli.doctor import doctor
from tidelock.ops.cli.force_release import force_release
from tidelock.ops.cli.ledger import conflicts, writers
from tidelock.ops.cli.ledger import show as show_ledger
from tidelock.ops.cli.ledger import verify as verify_ledger
from tidelock.ops.cli.lock_demo import lock_demo
from tidelock.ops.cli.metrics import metrics
from tidelock.ops.cli.observed import (
    LogJson,
    MetricsPort,
    MetricsPush,
    Observed,
    Trace,
    log_as_json,
)
from tidelock.ops.cli.output import Output, error_facts, kind_of
from tidelock.ops.cli.package import package
from tidelock.ops.cli.run import run as run_under_lock
from tidelock.ops.cli.serve import serve
from tidelock.ops.cli.services import services
from tidelock.ops.cli.soak import soak
from tidelock.ops.cli.sql import sql
from tidelock.ops.cli.status import status
from tidelock.ops.cli.stopping import Stopped
from tidelock.ops.cli.streamer import streamer
from tidelock.ops.cli.table import describe, files, history
from tidelock.ops.cli.table_create import create
from tidelock.ops.cli.table_doctor import table_doctor
from tidelock.ops.cli.table_services import archive, clean, cluster, compact, log_compact
from tidelock.ops.cli.table_show import show as show_rows
from tidelock.ops.cli.table_undo import restore, rollback, savepoint, ttl
from tidelock.ops.cli.table_validate import validate
from tidelock.ops.cli.timeline import show as show_timeline
from tidelock.ops.cli.ui import ui
from tidelock.ops.cli.watch import watch

EXIT_INTERNAL = 70
"""EX_SOFTWARE of sysexits.h: the program is wrong, not its user."""
EXIT_INTERRUPTED = 130

_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

app = typer.Typer(help="Many writers on one lakehouse table, safely.", **_SETTINGS)
lock_app = typer.Typer(help="Take, show, mend and audit locks.", **_SETTINGS)
app.add_typer(lock_app, name="lock")
lock_app.command("demo")(lock_demo)
lock_app.command("acquire")(acquire)
lock_app.command("run")(run_under_lock)
lock_app.command("status")(status)
lock_app.command("watch")(watch)
lock_app.command("force-release")(force_release)
lock_app.command("audit")(audit)
lock_app.command("doctor")(doctor)
table_app = typer.Typer(help="Create, show and validate tables.", **_SETTINGS)
app.add_typer(table_app, name="table")
table_app.command("create")(create)
table_app.command("describe")(describe)
table_app.command("history")(history)
table_app.command("files")(files)
table_app.command("show")(show_rows)
table_app.command("validate")(validate)
timeline_app = typer.Typer(help="Show timelines.", **_SETTINGS)
app.add_typer(timeline_app, name="timeline")
timeline_app.command("show")(show_timeline)
ledger_app = typer.Typer(help="Show and verify what was decided about tables.", **_SETTINGS)
app.add_typer(ledger_app, name="ledger")
ledger_app.command("show")(show_ledger)
ledger_app.command("verify")(verify_ledger)
ledger_app.command("conflicts")(conflicts)
app.command("writers")(writers)
app.command("services")(services)
app.command("compact")(compact)
app.command("log-compact")(log_compact)
app.command("cluster")(cluster)
app.command("clean")(clean)
app.command("archive")(archive)
app.command("rollback")(rollback)
app.command("savepoint")(savepoint)
app.command("restore")(restore)
app.command("ttl")(ttl)
app.command("streamer")(streamer)
app.command("package")(package)
app.command("sql")(sql)
app.command("serve")(serve)
app.command("ui")(ui)
app.command("doctor")(table_doctor)
app.command("metrics")(metrics)
app.command("demo")(demo)
app.command("soak")(soak)


def _show_version(value: bool) -> None:  # noqa: FBT001 - typer calls it so
    if value:
        typer.echo(f"tidelock {version('tidelock')}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    *,
    metrics_port: MetricsPort = None,
    metrics_push: MetricsPush = None,
    log_json: LogJson = False,
    trace: Trace = False,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and end.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Many writers on one lakehouse table, safely, with nothing to run but the storage itself."""
    del show_version  # its callback has shown it
    if log_json:
        log_as_json()
    if metrics_port is not None or metrics_push is not None or trace:
        observed = Observed(metrics_port, metrics_push, trace=trace)
        context.with_resource(observed.running())


def run() -> None:
    """Run the program with the arguments of this process, and end it."""
    sys.exit(main(sys.argv[1:]))


def main(args: list[str]) -> int:
    """Run one command; return its exit code."""
    debug = os.environ.get("TIDELOCK_DEBUG", "") not in ("", "0")
    _prepare(debug=debug, serves=args[:1] in (["serve"], ["ui"]))
    try:
        code = app(args=args, prog_name="tidelock", standalone_mode=False)
        sys.stdout.flush()
    except Stopped as stopped:
        return stopped.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except typer.Abort:
        # A question was answered by Ctrl-C or by the end of the input.
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _hang_up()
    except TidelockError as error:
        _complain(args, kind_of(error), error.message, error.hint)
        if debug:
            traceback.print_exc()
        return error.kind.exit_code
    except Exception as error:  # noqa: BLE001 - the last line of defence before the user
        return _failed(args, error, debug=debug)
    return code if isinstance(code, int) else 0


def _failed(args: list[str], error: Exception, *, debug: bool) -> int:
    """End after an error that is not one of ours: a wrong call of the program, or a bug in it."""
    describe = getattr(error, "format_message", None)
    if callable(describe):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "tidelock"
        message = str(describe())
        if message:
            _complain(args, Kind.INVALID_INPUT.name.lower(), message, f"see `{command} --help`")
        return Kind.INVALID_INPUT.exit_code
    _complain(
        args,
        "internal",
        f"internal error: {type(error).__name__}: {error}",
        "this is a bug in tidelock; run it again with TIDELOCK_DEBUG=1 for the traceback",
    )
    if debug:
        traceback.print_exc()
    return EXIT_INTERNAL


def _complain(args: list[str], kind: str, message: str, hint: str) -> None:
    own = args[: args.index("--")] if "--" in args else args
    with contextlib.suppress(BrokenPipeError):
        if "--json" in own:
            stream: TextIO = sys.stderr if _runs_under_lock(own) else sys.stdout
            stream.write(json.dumps(error_facts(kind, message, hint)) + "\n")
            stream.flush()
            return
        console = Output.console(stderr=True)
        console.print(f"tidelock: {message}", style="red")
        if hint:
            console.print(f"  {hint}")


def _runs_under_lock(args: list[str]) -> bool:
    """Tell whether this is `lock run`, whose standard output belongs to its command."""
    return "lock" in args and args[args.index("lock") :][:2] == ["lock", "run"]


def _hang_up() -> int:
    """End quietly when the reader of our output has gone."""
    # The interpreter flushes once more at exit and would complain there.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return 128 + 13


def _prepare(*, debug: bool, serves: bool) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A name from the command line may hold bytes that no encoding has.
            stream.reconfigure(errors="backslashreplace")
    root = logging.getLogger("tidelock")
    root.handlers.clear()
    handler = logging.StreamHandler()
    if debug:
        root.setLevel(logging.DEBUG)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    else:
        # Commands say themselves what went wrong; the rest is warnings. A server goes on after an
        # error, and its log is where it says so.
        top = logging.CRITICAL if serves else logging.WARNING
        handler.addFilter(lambda record: logging.WARNING <= record.levelno <= top)
        handler.setFormatter(logging.Formatter("tidelock: %(message)s"))
    root.addHandler(handler)
    root.propagate = False
