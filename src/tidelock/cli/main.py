"""The program `tidelock`: its commands, and the handling of their errors.

Every error becomes a message and an exit status. Tracebacks are shown only with TIDELOCK_DEBUG=1.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Any, ClassVar, TextIO

import typer

from tidelock.cli import (
    config,
    dashboard,
    demo,
    doctor,
    ledger,
    lock,
    lock_audit,
    lock_run,
    serve,
    services,
    soak,
    sql,
    streamer,
    table,
    telemetry,
)
from tidelock.cli.help_pages import HelpCommand, HelpGroup
from tidelock.cli.options import expanded
from tidelock.cli.output import Output
from tidelock.cli.signals import Stopped
from tidelock.core.errors import ErrorKind, TidelockError
from tidelock.core.formatting import error_facts, kind_of

EXIT_INTERNAL = 70
"""EX_SOFTWARE of sysexits.h: a bug in the program."""
EXIT_INTERRUPTED = 130

_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

_GROUPS = {
    "lock": "Acquire, inspect, repair and audit locks.",
    "table": "Create, inspect and validate tables.",
    "timeline": "Show timelines.",
    "ledger": "Show and verify the ledger of tables.",
}
COMMANDS: dict[str, Callable[..., None]] = {
    "lock demo": demo.lock_demo,
    "lock acquire": lock.acquire,
    "lock run": lock_run.run,
    "lock status": lock.status,
    "lock watch": lock.watch,
    "lock force-release": lock.force_release,
    "lock audit": lock_audit.audit,
    "lock doctor": doctor.doctor,
    "table create": table.create,
    "table describe": table.describe,
    "table history": table.history,
    "table files": table.files,
    "table show": table.show,
    "table validate": table.validate,
    "timeline show": ledger.show_timeline,
    "ledger show": ledger.show,
    "ledger verify": ledger.verify,
    "ledger conflicts": ledger.conflicts,
    "writers": ledger.writers,
    "services": services.services,
    **services.planned_service_commands(),
    "archive": services.archive,
    "rollback": services.rollback,
    "savepoint": services.savepoint,
    "restore": services.restore,
    "ttl": services.ttl,
    "streamer": streamer.streamer,
    "package": sql.package,
    "sql": sql.sql,
    "serve": serve.serve,
    "ui": dashboard.ui,
    "doctor": doctor.table_doctor,
    "metrics": telemetry.metrics,
    "config": config.config,
    "demo": demo.demo,
    "soak": soak.soak,
}


class _Program(HelpGroup):
    sections: ClassVar = {
        "Tables": ("table", "timeline", "ledger", "writers", "doctor"),
        "Table services": (
            *("services", *services.PLANNED_SERVICES, "archive"),
            *("rollback", "savepoint", "restore", "ttl"),
        ),
        "Pipelines": ("streamer", "sql", "package"),
        "Locks": ("lock", "serve"),
        "Monitoring": ("ui", "metrics"),
        "Configuration": ("config",),
        "Demo": ("demo", "soak"),
    }


def _program() -> typer.Typer:
    about = "Safe concurrent writers for Apache Hudi tables."
    program = typer.Typer(help=about, cls=_Program, **_SETTINGS)
    groups = {name: typer.Typer(help=about, **_SETTINGS) for name, about in _GROUPS.items()}
    for name, group in groups.items():
        program.add_typer(group, name=name)
    for path, command in COMMANDS.items():
        group_name, _, name = path.rpartition(" ")
        groups.get(group_name, program).command(name, cls=HelpCommand)(expanded(command))
    return program


app = _program()


def _show_version(value: bool) -> None:  # noqa: FBT001 - the signature that typer expects
    if value:
        typer.echo(f"tidelock {version('tidelock')}")
        raise typer.Exit


def _root(
    context: typer.Context,
    *,
    given: telemetry.TelemetryOptions,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Safe concurrent writers for Apache Hudi tables, with no service besides the storage."""
    del show_version  # handled by its callback
    context.with_resource(given.running())


app.callback()(expanded(_root))


def run() -> None:
    """Run the program with the arguments of this process, and exit."""
    sys.exit(main(sys.argv[1:]))


def main(args: list[str]) -> int:
    """Run one command; return its exit status."""
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
        # A prompt was answered with Ctrl-C or the end of input.
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _broken_pipe()
    except TidelockError as error:
        _print_error(args, kind_of(error), error.message, error.hint)
        if debug:
            traceback.print_exc()
        return error.kind.exit_code
    except Exception as error:  # noqa: BLE001 - users never see a traceback
        return _unexpected(args, error, debug=debug)
    return code if isinstance(code, int) else 0


def _unexpected(args: list[str], error: Exception, *, debug: bool) -> int:
    """Report an error that is not a `TidelockError`: a usage error or a bug."""
    describe = getattr(error, "format_message", None)
    if callable(describe):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "tidelock"
        message = str(describe())
        if message:
            _print_error(
                args,
                ErrorKind.INVALID_INPUT.name.lower(),
                message,
                f"run `{command} --help` for usage",
            )
        return ErrorKind.INVALID_INPUT.exit_code
    _print_error(
        args,
        "internal",
        f"internal error: {type(error).__name__}: {error}",
        "this is a bug in tidelock; run the command with TIDELOCK_DEBUG=1 to see the traceback",
    )
    if debug:
        traceback.print_exc()
    return EXIT_INTERNAL


def _print_error(args: list[str], kind: str, message: str, hint: str) -> None:
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
    """Return whether this is `lock run`, whose standard output belongs to its command."""
    return "lock" in args and args[args.index("lock") :][:2] == ["lock", "run"]


def _broken_pipe() -> int:
    """Exit without a message when the reader of our output has ended."""
    # The interpreter flushes standard output at exit, which would fail again.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    return 128 + 13


def _prepare(*, debug: bool, serves: bool) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # An argument may contain bytes that cannot be decoded.
            stream.reconfigure(errors="backslashreplace")
    root = logging.getLogger("tidelock")
    root.handlers.clear()
    handler = logging.StreamHandler()
    if debug:
        root.setLevel(logging.DEBUG)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    else:
        # Commands report their errors themselves, so only warnings are logged. A server continues
        # after an error and reports it in its log.
        top = logging.CRITICAL if serves else logging.WARNING
        handler.addFilter(lambda record: logging.WARNING <= record.levelno <= top)
        handler.setFormatter(logging.Formatter("tidelock: %(message)s"))
    root.addHandler(handler)
    root.propagate = False
