"""`tidelock doctor` and `tidelock lock doctor`: diagnose a table or a lock, and repair it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tidelock.cli import options
from tidelock.cli.options import flag
from tidelock.cli.output import Output
from tidelock.core.formatting import fields_of
from tidelock.core.system import SystemClock, SystemIds
from tidelock.inspect.findings import DoctorFinding, Examination, Level
from tidelock.inspect.lock_doctor import examine_lock, repair_lock
from tidelock.storage.uri import open_store

Fix = Annotated[
    bool,
    flag("--fix", "Repair what conditional writes can repair, and keep a copy of corrupt records."),
]

_STYLES = {Level.OK: "green", Level.NOTE: "yellow", Level.PROBLEM: "bold red"}


def doctor(resource: options.Resource, *, fix: Fix = False, given: options.CommonOptions) -> None:
    """Diagnose a lock.

    Checks its record, its tokens, the guarantees of its store, and the clocks. Tests the store with
    temporary objects, which it deletes.

    Exit status: 0 without problems, otherwise that of the first problem: 7 unreadable record, 9
    permission denied, 10 unsafe store, 1 clock.

        tidelock lock doctor s3://lake/orders --fix
    """
    target = given.target(resource)
    output = given.output
    clock, ids = target.clock, SystemIds()
    with target.store() as store:
        examination = examine_lock(store, target.lease, clock, ids)
        done: list[str] = []
        if fix and examination.repairs:
            if not given.as_json:
                output.result({}, *_lines(examination, store.uri, fixing=True))
            done = repair_lock(examination, store, clock, ids)
            examination = examine_lock(store, target.lease, clock, ids)
    report(output, examination, store.uri, done, fixing=fix)
    raise typer.Exit(examination.exit_code)


def report(
    output: Output, examination: Examination, uri: str, done: list[str], *, fixing: bool
) -> None:
    """Show the findings of an examination, and the repairs."""
    facts = {
        "resource": uri,
        "healthy": examination.exit_code == 0,
        "findings": [_facts(found) for found in examination.findings],
        "fixed": done,
    }
    repaired = [Text(f"  {step}", style="green") for step in done]
    output.result(facts, *repaired, *_lines(examination, uri, fixing=fixing))


def _facts(found: DoctorFinding) -> dict[str, object]:
    return {
        "about": found.about,
        "level": found.level.value,
        **fields_of(found, "message", "advice"),
        "fix": found.repair.value if found.repair else None,
    }


def _lines(examination: Examination, uri: str, *, fixing: bool) -> list[Text]:
    lines = [Text(uri, style="bold")]
    for found in examination.findings:
        mark = {Level.OK: "ok", Level.NOTE: "note", Level.PROBLEM: "PROBLEM"}[found.level]
        lines.append(
            Text.assemble(
                "  ", (f"{mark:<8}", _STYLES[found.level]), f"{found.about:<10} {found.message}"
            )
        )
        if found.advice:
            lines.append(Text(f"{'':21}{found.advice}", style="dim"))
    if examination.repairs and not fixing:
        lines.append(Text("  run the command again with --fix to repair this", style="bold"))
    return lines


def table_doctor(uri: options.TableUri, *, fix: Fix = False, given: options.CommonOptions) -> None:
    """Diagnose a table, and repair it.

    Shows problems, their causes, and the fix for each. Checks the settings of a writer (--props,
    --prop), the heartbeats of writers, writes of dead writers, pending and corrupt plans, files
    that no commit references, the ledger, the lock, the guarantees of the store, and the clocks.
    Tests the store with temporary objects, which it deletes. --fix rolls back writes of dead
    writers, publishes decided commits, deletes unused files and repairs the lock; it does not touch
    active writers.

    Exit status: 0 without problems, otherwise that of the first problem: 2 settings, 7 unreadable,
    9 permission denied, 10 unsafe store, 1 anything else.

        tidelock doctor s3://lake/orders --props writer.properties
    """
    from tidelock.hudi.properties import load_properties
    from tidelock.inspect.table_doctor import DoctorTarget, examine_table, repair_table

    settings = given.settings()
    output = given.output
    store = open_store(uri, settings)
    try:
        target = DoctorTarget(store, load_properties(store), settings, SystemClock(), SystemIds())
        examination = examine_table(target)
        done: list[str] = []
        if fix and examination.repairs:
            done = repair_table(examination, target)
            examination = examine_table(target)
        report(output, examination, store.uri, done, fixing=fix)
    finally:
        store.close()
    raise typer.Exit(examination.exit_code)
