"""docs/cli.md, from the commands themselves."""

from __future__ import annotations

import inspect
from typing import Any

import typer

from tidelock.base.errors import Kind
from tidelock.ops.cli.main import EXIT_INTERNAL, EXIT_INTERRUPTED, app

_HEAD = """# The command line

Generated from the commands by `make docs`. `tidelock COMMAND --help` says the same.

A *resource* is a table's base path or any other place to lock: a path, or a URI with the scheme
`file`, `s3`, `s3a`, `gs`, `abfs`, `abfss`, `wasb` or `wasbs`. Its lock lies below it, in
`.hoodie/.locks/`.

With `--json` a command writes JSON to standard output, one object to a line, and an error is
`{"error": {"kind": …, "message": …, "hint": …}}`. `lock run` leaves standard output to its command
and writes to standard error.

`TIDELOCK_DEBUG=1` in the environment adds the log and tracebacks on standard error.
"""
_MEANINGS = {
    Kind.INVALID_INPUT: "the call is wrong; nothing was tried",
    Kind.UNAVAILABLE: "the store gave no answer that helps; later may work",
    Kind.CONFLICT: "not done because of somebody else: the lock is held, or changed meanwhile",
    Kind.OUTCOME_UNKNOWN: "it may have happened; look before trying again",
    Kind.HOLDING_LOST: "the lock was lost while it was needed",
    Kind.DATA_CORRUPT: "an object cannot be read for what it should be",
    Kind.NOT_FOUND: "the bucket, container or file is not there",
    Kind.PERMISSION_DENIED: "the store refused these credentials",
    Kind.UNSUPPORTED: "this store or scheme cannot do that, or its extra is not installed",
}


def commands_page() -> str:
    """Return the page."""
    root: Any = typer.main.get_command(app)
    parts = [_HEAD, "\n## Exit codes\n\n", _exit_codes()]
    parts.append("\n## Before the command\n\n`tidelock OPTIONS COMMAND` watches any command.\n")
    parts.append("\n| option | |\n|---|---|\n")
    parts += [_row(param) for param in root.params if not getattr(param, "hidden", False)]
    for name, command in root.commands.items():
        below = getattr(command, "commands", None)
        found = {f"{name} {sub}": c for sub, c in below.items()} if below else {name: command}
        for path, leaf in found.items():
            parts.append(_section(path, leaf))
    return "".join(parts)


def _exit_codes() -> str:
    rows = {0: "done", 1: "what was checked is not as it should be, or a question was answered no"}
    rows |= {kind.exit_code: _MEANINGS[kind] for kind in Kind}
    rows |= {
        EXIT_INTERNAL: "a bug in tidelock",
        EXIT_INTERRUPTED: "Ctrl-C; likewise 128 + n for another signal n",
    }
    lines = [f"| {code} | {says} |\n" for code, says in sorted(rows.items())]
    return (
        "| code | |\n|---|---|\n"
        + "".join(lines)
        + "\n`lock run` passes on the exit code of its command.\n"
    )


def _section(path: str, command: Any) -> str:
    title, _, rest = inspect.cleandoc(command.callback.__doc__).partition("\n")
    arguments = [_usage(param) for param in command.params if _is_argument(param)]
    usage = " ".join([f"tidelock {path} [OPTIONS]", *arguments])
    lines = [f"\n## {path}\n\n{title}\n\n```\n{usage}\n```\n"]
    for block in rest.strip("\n").split("\n\n"):
        fenced = block.startswith("    ")
        text = inspect.cleandoc(block)
        lines.append(f"\n```\n{text}\n```\n" if fenced else f"\n{_escaped(text)}\n")
    lines.append("\n| argument or option | |\n|---|---|\n")
    lines += [_row(param) for param in command.params if not getattr(param, "hidden", False)]
    return "".join(lines)


def _is_argument(param: Any) -> bool:
    return str(param.param_type_name) == "argument"


def _usage(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _row(param: Any) -> str:
    says = param.help or ""
    if _is_argument(param):
        return f"| `{_usage(param).replace('|', ', ')}` | {_escaped(says)} |\n"
    names = ", ".join([*param.opts, *param.secondary_opts])
    value = f" {param.metavar}" if param.metavar and not param.is_flag else ""
    if isinstance(param.default, int | float) and not isinstance(param.default, bool):
        says += f" [default: {param.default:g}]"
    return f"| `{names}{value}` | {_escaped(says)} |\n"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;")
