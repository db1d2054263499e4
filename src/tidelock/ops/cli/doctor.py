"""`tidelock lock doctor`: explain what is wrong with a lock, and mend what may safely be mended."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tidelock.base.ids import SystemIds
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output
from tidelock.ops.doctor.examining import cure, examine
from tidelock.ops.doctor.findings import Examination, Finding, Level

Fix = Annotated[
    bool,
    typer.Option(
        "--fix", help="Mend what can be mended by conditional writes, keeping a copy of the rest."
    ),
]

_STYLES = {Level.FINE: "green", Level.NOTE: "yellow", Level.PROBLEM: "bold red"}


def doctor(
    resource: options.Resource,
    *,
    fix: Fix = False,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Examine a lock and explain what is wrong.

    Looks at its record, its tokens, what its store promises, and the clocks.

    Tries the store with scratch objects that it removes again. Ends with 0 when nothing is wrong,
    otherwise with the code of the first problem: 7 unreadable, 9 denied, 10 unsafe store, 1 clock.

        tidelock lock doctor s3://lake/orders --fix
    """
    target = options.target(resource, props, props_file)
    output = Output(as_json=as_json)
    clock, ids, store = target.clock, SystemIds(), target.store()
    try:
        examination = examine(store, target.lease, clock, ids)
        done: list[str] = []
        if fix and examination.cures:
            if not as_json:
                output.result({}, *_lines(examination, store.uri, fixing=True))
            done = cure(examination, store, clock, ids)
            examination = examine(store, target.lease, clock, ids)
    finally:
        store.close()
    report(output, examination, store.uri, done, fixing=fix)
    raise typer.Exit(examination.exit_code)


def report(
    output: Output, examination: Examination, uri: str, done: list[str], *, fixing: bool
) -> None:
    """Say what an examination found, and what was mended."""
    facts = {
        "resource": uri,
        "healthy": examination.exit_code == 0,
        "findings": [_facts(found) for found in examination.findings],
        "fixed": done,
    }
    repaired = [Text(f"  {step}", style="green") for step in done]
    output.result(facts, *repaired, *_lines(examination, uri, fixing=fixing))


def _facts(found: Finding) -> dict[str, object]:
    return {
        "about": found.about,
        "level": found.level.value,
        "message": found.says,
        "advice": found.advice,
        "fix": found.cure.value if found.cure else None,
    }


def _lines(examination: Examination, uri: str, *, fixing: bool) -> list[Text]:
    lines = [Text(uri, style="bold")]
    for found in examination.findings:
        mark = {Level.FINE: "ok", Level.NOTE: "note", Level.PROBLEM: "PROBLEM"}[found.level]
        lines.append(
            Text.assemble(
                "  ", (f"{mark:<8}", _STYLES[found.level]), f"{found.about:<10} {found.says}"
            )
        )
        if found.advice:
            lines.append(Text(f"{'':21}{found.advice}", style="dim"))
    if examination.cures and not fixing:
        lines.append(Text("  run it again with --fix to mend this", style="bold"))
    return lines
