"""Generates reference pages of docs/: `python -m scripts.generate_docs`, or `--check` to compare.

Each page is generated from the code: the configuration catalogue, the list of metrics, the table of
the lock machine, the conflict rules and the commands.
"""

from __future__ import annotations

import argparse
import logging
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import typer

from tidelock.cli.config import load_catalogue
from tidelock.cli.help_pages import is_argument, usage
from tidelock.cli.main import EXIT_INTERNAL, EXIT_INTERRUPTED, app
from tidelock.core.config import ConfigKey, ConfigSection, declared_keys
from tidelock.core.errors import ErrorKind
from tidelock.core.telemetry import MetricName
from tidelock.core.unsupported_keys import KeySupport, hudi_keys
from tidelock.lock import events as e
from tidelock.lock.alerts import AlertKind
from tidelock.lock.machine import TABLE
from tidelock.lock.state import Phase
from tidelock.lock.telemetry import NOT_EMITTED
from tidelock.telemetry.prometheus import EVENTS, METRICS, SPANS
from tidelock.txn.conflicts import RULES, Resolution, rules_for
from tidelock.txn.footprint import CommitKind

_HEAD = """# The command line

Generated from the commands by `make docs`. `tidelock COMMAND --help` shows the same text.

A *resource* is the base path of a table or any other location to lock: a path, or a URI with the
scheme `file`, `s3`, `s3a`, `gs`, `abfs`, `abfss`, `wasb` or `wasbs`. Its lock is stored below it,
in `.hoodie/.locks/`.

With `--json` a command writes JSON to standard output, one object per line, and an error is
`{"error": {"kind": …, "message": …, "hint": …}}`. `lock run` leaves standard output to its command
and writes to standard error.

`TIDELOCK_DEBUG=1` in the environment adds the log and tracebacks to standard error.
"""
_MEANINGS = {
    ErrorKind.INVALID_INPUT: "invalid arguments or configuration; nothing was done",
    ErrorKind.UNAVAILABLE: "the store gave no usable answer; a later attempt may succeed",
    ErrorKind.CONFLICT: "not done because of another client: a held lock or a conflicting write",
    ErrorKind.OUTCOME_UNKNOWN: "it may have been done; check before trying again",
    ErrorKind.HOLDING_LOST: "the lock was lost while it was held",
    ErrorKind.DATA_CORRUPT: "an object does not match its format",
    ErrorKind.NOT_FOUND: "the bucket, container or file does not exist",
    ErrorKind.PERMISSION_DENIED: "the store rejected these credentials",
    ErrorKind.UNSUPPORTED: "not supported by this store or scheme, or an extra is not installed",
}


def commands_page() -> str:
    """Return the text of the page."""
    root: Any = typer.main.get_command(app)
    parts = [_HEAD, "\n## Exit codes\n\n", _exit_codes()]
    parts.append("\n## Global options\n\nThey precede the command: `tidelock OPTIONS COMMAND`.\n")
    parts.append("\n| option | |\n|---|---|\n")
    parts += [_row(param) for param in root.params if not getattr(param, "hidden", False)]
    for name, command in root.commands.items():
        below = getattr(command, "commands", None)
        found = {f"{name} {sub}": c for sub, c in below.items()} if below else {name: command}
        for path, leaf in found.items():
            parts.append(_section(path, leaf))
    return "".join(parts)


def _exit_codes() -> str:
    rows = {0: "success", 1: "a check found problems, or a question was answered with no"}
    rows |= {kind.exit_code: _MEANINGS[kind] for kind in ErrorKind}
    rows |= {
        EXIT_INTERNAL: "a bug in tidelock",
        EXIT_INTERRUPTED: "Ctrl-C; in general 128 + n for signal n",
    }
    lines = [f"| {code} | {says} |\n" for code, says in sorted(rows.items())]
    return (
        "| code | |\n|---|---|\n"
        + "".join(lines)
        + "\n`lock run` returns the exit code of its command.\n"
    )


def _section(path: str, command: Any) -> str:
    # A backspace marks a block that the help does not wrap.
    title, _, rest = command.help.replace("\b\n", "").partition("\n")
    arguments = [usage(param) for param in command.params if is_argument(param)]
    line = " ".join([f"tidelock {path} [OPTIONS]", *arguments])
    lines = [f"\n## {path}\n\n{title}\n\n```\n{line}\n```\n"]
    for block in rest.strip("\n").split("\n\n"):
        fenced = block.startswith("    ")
        text = textwrap.dedent(block)
        lines.append(f"\n```\n{text}\n```\n" if fenced else f"\n{_escaped(text)}\n")
    lines.append("\n| argument or option | |\n|---|---|\n")
    lines += [_row(param) for param in command.params if not getattr(param, "hidden", False)]
    return "".join(lines)


def _row(param: Any) -> str:
    says = param.help or ""
    if is_argument(param):
        return f"| `{param.metavar.replace('|', ', ')}` | {_escaped(says)} |\n"
    names = ", ".join([*param.opts, *param.secondary_opts])
    value = f" {param.metavar}" if param.metavar and not param.is_flag else ""
    if isinstance(param.default, int | float) and not isinstance(param.default, bool):
        says += f" [default: {param.default:g}]"
    return f"| `{names}{value}` | {_escaped(says)} |\n"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;")


_HEAD_EVENTS = """# Events, spans and alerts

Generated from the code by `make docs`.

Every log event has a name. With `tidelock --log-json COMMAND`, or with
`tidelock.telemetry.tracing.JsonLines` as the formatter of a handler, the log has one JSON
object per line: `time`, `level`, `logger`, `message`, `event`, `table`, `writer`, `instant`, and
the fields below.
"""


def events_page() -> str:
    """Return the text of the page."""
    lines = [
        _HEAD_EVENTS,
        "\n## Events\n\n| event | level | meaning | fields |\n|---|---|---|---|\n",
    ]
    for event in sorted(EVENTS, key=lambda each: each.name):
        level = logging.getLevelName(event.level).lower()
        fields = ", ".join(f"`{name}`" for name in event.fields)
        lines.append(f"| `{event.name}` | {level} | {event.doc} | {fields} |\n")
    lines.append(
        "\n## Spans\n\nInstall `tidelock[telemetry]`, and use `tidelock --trace COMMAND` or"
        " `tidelock.telemetry.tracing.tracing()`. Attribute names begin with `tidelock.`.\n"
        "\n| span | around |\n|---|---|\n"
    )
    lines += [f"| `{span.name}` | {span.doc} |\n" for span in SPANS]
    lines.append(
        "\n## Alerts\n\nAlerts go to the log, to the callbacks of `tidelock.on_alert`, and to"
        " `tidelock.alerts.webhook.url` if it is set. The webhook receives a JSON object with"
        " `kind`, `about`, `message`, `meaning`, `at_epoch_ms`, `writer`, `instant`.\n"
        "\n| alert | meaning |\n|---|---|\n"
    )
    lines += [f"| `{kind.value}` | {kind.meaning} |\n" for kind in AlertKind]
    return "".join(lines)


_HEAD_MACHINE = """# The lock machine

Generated from `src/tidelock/lock/machine.py` by `make docs`. The rules are in
[the protocol](lock.md). An event in a phase without a transition for it is a bug and stops the
process; only `Tick` is valid in every phase.
"""
_BACKGROUND_EVENTS = (e.Tick, e.Abandon)


def machine_page() -> str:
    """Return the text of the page."""
    parts = [_HEAD_MACHINE, "\n## States\n\n| phase | meaning |\n|---|---|\n"]
    parts += [f"| {phase.name} | {phase.value} |\n" for phase in Phase]
    parts += ["\n## Transitions\n\n", _diagram()]
    parts += ["\n## Abandoned operations\n\n", _abandoned()]
    return "".join(parts)


def _diagram() -> str:
    """Return a diagram of every transition, except `Abandon` and a `Tick` that stays."""
    edges: dict[tuple[Phase, Phase], list[str]] = {}
    for (phase, event), row in TABLE.items():
        if event is e.Abandon:
            continue
        for after in row.leads_to:
            if event in _BACKGROUND_EVENTS and after is phase:
                continue
            edges.setdefault((phase, after), []).append(event.__name__)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {Phase.IDLE.name}"]
    for (phase, after), events in edges.items():
        lines.append(f"    {phase.name} --> {after.name}: {', '.join(events)}")
    lines += [f"    {Phase.CLOSED.name} --> [*]", "```", ""]
    return "\n".join(lines)


def _abandoned() -> str:
    """Return the phases that an abandoned operation leads to."""
    lines = ["| abandoned in | next phase |\n|---|---|\n"]
    for (phase, event), row in TABLE.items():
        if event is e.Abandon and row.leads_to != (phase,):
            after = " or ".join(phase.name for phase in row.leads_to)
            lines.append(f"| {phase.name} | {after} |\n")
    return "".join(lines)


_HEAD_METRICS = """# Metrics

Generated from the code by `make docs`. Metrics are kept in memory: `lock.metrics.snapshot()`
returns the counters, gauges and timers of a lock, `tidelock.core.telemetry.PROCESS` those of the
process. `hoodie.metrics.reporter.metricsname.prefix` and a dot precede the names of a lock's
metrics. Timers retain their last 100 samples.

`tidelock --metrics-port PORT COMMAND` serves them for Prometheus while a command runs, and
`--metrics-push URL` pushes them to a gateway; `tidelock metrics URI` serves the metrics of tables.
In Prometheus a name begins with `tidelock_`, has `_` for every dot, and ends with `_total` for
counters and with `_ms_sum` and `_ms_count` for timers.
"""


def metrics_page() -> str:
    """Return the text of the page."""
    hudis = [metric for _, metrics in METRICS for metric in metrics if metric.is_hudi_metric]
    parts = [_HEAD_METRICS, "\n## Metrics with Hudi's names\n\n", _table(hudis)]
    for title, metrics in METRICS:
        ours = [metric for metric in metrics if not metric.is_hudi_metric]
        parts += [f"\n## {title}\n\n", _table(ours)]
    parts.append("\n## Hudi metrics that are not emitted\n\n")
    parts += [f"- `{name}`: {reason}.\n" for name, reason in NOT_EMITTED.items()]
    return "".join(parts)


def _table(metrics: list[MetricName]) -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind.value} | {metric.doc} |\n"
        for metric in sorted(metrics, key=lambda metric: metric.name)
    ]
    return "| metric | type | meaning |\n|---|---|---|\n" + "".join(rows)


_HEAD_CONFIGURATION = """# Configuration

Generated from the configuration catalogue by `make docs`; `tidelock config KEY` explains one key.
Pass keys as a mapping to `tidelock.lock(uri, settings=…)`, as `--prop KEY=VALUE` on the command
line, or in a Java properties file (`--props FILE`). Keys that start with `hoodie.` are Hudi's and
have the same meaning; ours start with `tidelock.`. An old name is accepted and logged. An unknown
name is an error that suggests the most similar key.

Every key of Hudi 1.2 is known. Keys in the first tables are honoured. Some others
[have no effect](#hudi-keys-without-effect): they are logged once per process. The rest are
[refused](#hudi-keys-that-are-refused) before anything is written, because the feature is not
supported. Hudi's default value, and a value that disables the feature, are never refused. A name
that ends with `*` stands for every key that begins with the rest.
"""

_REFUSED = """
## Hudi keys that are refused

| key | accepted values | reason | instead |
|---|---|---|---|
"""

_IGNORED = """
## Hudi keys without effect

| reason | keys |
|---|---|
"""


def configuration_page() -> str:
    """Return the text of the page."""
    load_catalogue()
    parts = [_HEAD_CONFIGURATION]
    for section in ConfigSection:
        parts.append(f"\n## {section}\n\n| key | type | default | meaning |\n|---|---|---|---|\n")
        parts += [_config_row(key) for key in declared_keys() if key.section is section]
    return "".join([*parts, _REFUSED, *_refused(), _IGNORED, *_ignored()])


def _refused() -> Iterator[str]:
    for key in hudi_keys():
        if key.support is not KeySupport.REFUSED:
            continue
        allowed = [f"`{value}`" for value in key.allowed_text()]
        yield f"| `{key.key}` | {', '.join(allowed)} | {_capital(key.reason)} | {key.hint} |\n"


def _ignored() -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for key in hudi_keys():
        if key.support is KeySupport.IGNORED:
            by_reason.setdefault(key.reason, []).append(f"`{key.key}`")
    for reason, names in by_reason.items():
        yield f"| {_capital(reason)} | {', '.join(names)} |\n"


def _config_row(key: ConfigKey[Any]) -> str:
    doc = f"{_capital(key.doc)}."
    if key.choices:
        doc += f" Values: {', '.join(f'`{value}`' for value in key.choices)}."
    if key.aliases:
        doc += f" Old name: {', '.join(f'`{alias}`' for alias in key.aliases)}."
    if key.secret:
        doc += " Never shown in messages."
    default = key.default_text
    default = f"`{default}`" if default else ""
    return f"| `{key.key}` | {key.type_name} | {default} | {doc.replace('|', chr(92) + '|')} |\n"


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


_HEAD_MATRIX: Final = """# Conflict matrix

Generated from the conflict rules by `make docs`.

Two transactions commute if neither writes what the other writes or depends on: file groups
written, created, appended to or replaced; buckets, keys and partitions whose absence was relied on;
the schema; the plan that is executed. Of two that do not commute, the later one in the ledger must
have read the result of the earlier one and have the later request time, because Hudi's readers
order the versions of a file group, the log files of a slice and the schemas of the table by it.
A writer has not read commits that completed after its snapshot, so every overlap with such a commit
is a conflict: the write is retried under a new instant, and a table service is preempted and
planned again. The rules below follow from what each kind of commit can do. The exceptions at the
end have a proof each.

A row is the operation that is about to commit; a column is an operation that was committed after
the snapshot of the row's writer. An empty cell means that both commits are kept without a check.
Otherwise the cell names the overlap that is checked; both are kept if there is none.

"""

EXCEPTIONS: Final = """
## Exceptions

- **A log file after a compaction is kept.** A compaction keeps every row, and readers assign a log
  file to a slice by its completion time. The log completes after the compaction was requested, so
  it is applied on top of the compacted base file.
- **A base file after a compaction or log compaction with an earlier request time is kept.** It was
  merged from the files that the service rewrote, so it has the same rows, and its later request
  time makes it the newer version. (A merged log block that completed after that request time would
  be applied on top of it: that is `log`.)
- **A compaction after log files is kept.** They completed after its plan, so they are applied on
  top of its result.
- **Log files of two non-blocking writers are kept if the later commit has the later request time.**
  Neither has read the file group, and readers apply the log files of a slice in the order of
  request times, which then is the order of the ledger, also for equal ordering values and deletes.
  In the other order the files are compared: if no key is in both, or the ordering values of every
  common key differ, the order does not matter. Otherwise the later commit is retried. So are rows
  after a delete of the same key without an ordering value, which may be older than the deleted
  row: in a log file they would restore that row. A commit records whether it deletes, whatever its
  operation, and its files are compared if it does.
- **An overwrite adds new file groups to its replaced list instead of being retried.** Its rows do
  not depend on the previous content. A replaced file group is hidden from every snapshot reader
  after the completion, whichever request time is later. With a bucket index an overwrite writes
  the buckets themselves, and is retried.
- **Plain inserts into new file groups do not conflict with each other.** They depend on no key.
  A keyed write after an insert looks up its keys in the new files, and is retried only if one is
  there (`key`). If the ledger does not have the new keys, they are compared in the files as well.
  A write that appends to log files compares its keys with all new ones: it may have found a key
  in a base file whose log files no longer have it.
- **Clean, archive and rollbacks of incomplete writes conflict with nothing.** They remove only
  files that no snapshot has. No savepoint, restore or rollback of a commit comes between the plan
  of a clean and its end: the ledger accepts none while the plan is pending, and no plan that was
  made before one of them. The files of a clean are deleted before its conflict check, so preempting
  it for an external writer would save nothing and leave its plan pending forever.
- **A table service claimed after a restore or rollback of a commit is kept.** The commits it was
  planned on completed before its plan, and the rolled back commits completed later, or the plan
  would have been removed with them. No claim comes between such a decision and its end, so
  everything else was read after it.
"""
"""Overlaps that are not conflicts, and why. The interleaving tests check each with an oracle."""

_THEN: Final = {
    Resolution.REBASE: "the file groups are merged again on top of the other commit",
    Resolution.RERUN: "the statement runs again on the current table",
    Resolution.REPLAN: "the list of replaced file groups is computed again; the data is kept",
    Resolution.PREEMPT: "the table service is preempted and planned again",
    Resolution.ABORT: "the write fails",
}


def matrix_page() -> str:
    """Return the text of the page."""
    kinds = tuple(CommitKind)
    lines = [_HEAD_MATRIX]
    lines.append("| committing \\ committed | " + " | ".join(kinds) + " |\n")
    lines.append("|---" * (len(kinds) + 1) + "|\n")
    for mine in kinds:
        cells = (" ".join(f"`{rule.word}`" for rule in rules_for(mine, other)) for other in kinds)
        lines.append(f"| {mine} | " + " | ".join(cells) + " |\n")
    lines.append("\n| overlap | check | resolution |\n|---|---|---|\n")
    by_word = {rule.word: rule for rule in RULES}
    lines += [
        f"| `{word}` | {rule.sentence} | {_THEN[rule.then]} |\n" for word, rule in by_word.items()
    ]
    lines.append(EXCEPTIONS)
    return "".join(lines)


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration_page,
    "metrics.md": metrics_page,
    "events.md": events_page,
    "cli.md": commands_page,
    "protocol/lock-machine.md": machine_page,
    "protocol/conflicts.md": matrix_page,
}


def stale(folder: Path) -> list[str]:
    """Return the pages in `folder` that are missing or out of date."""
    return [name for name, page in PAGES.items() if _read(folder / name) != page()]


def write(folder: Path) -> list[str]:
    """Write the stale pages; return their names."""
    names = stale(folder)
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGES[name](), encoding="utf-8")
    return names


def main(args: list[str]) -> int:
    """Write or check the pages in a folder; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m scripts.generate_docs")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a page is stale"
    )
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    given = parser.parse_args(args)
    if given.check:
        names = stale(given.folder)
        for name in names:
            print(f"{given.folder / name} is stale: run `make docs`", file=sys.stderr)
        return 1 if names else 0
    if not given.folder.is_dir():
        print(
            f"the folder {given.folder} does not exist: run this in the root of the project",
            file=sys.stderr,
        )
        return 2
    for name in write(given.folder):
        print(f"wrote {given.folder / name}")
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
