"""`tidelock table validate`: prove a table consistent, or say what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.lock.opening import refuse_unknown
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output
from tidelock.store.uri import open_store

if TYPE_CHECKING:
    from tidelock.ops.validate.findings import Finding, Validation

NoRows = Annotated[
    bool, typer.Option("--no-rows", help="Look at names, sizes and the timeline only.")
]

EXIT_PROBLEMS = 1


def validate(
    uri: options.TableUri,
    *,
    no_rows: NoRows = False,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Prove a table consistent, or say what is wrong with it.

    Looks whether the timeline is lawful, every file that a completed write names is there with its
    size and no other is taken for rows, log files are whole, partitions are marked, the meta
    columns of every row are right, no key is in a partition twice, the metadata table lists the
    files that are there, and the ledger is one chain that the timeline agrees with.

    Reads every row once and changes nothing. Ends with 0 if there is no problem, otherwise with 1;
    warnings do not count.

        tidelock table validate s3://lake/orders
    """
    # Arrow takes longer to load than most lock commands take to run, so it loads here.
    from tidelock.ops.validate.validating import validate as validated

    settings = options.given_settings(props, props_file)
    refuse_unknown(settings)
    store = open_store(uri, settings)
    try:
        validation = validated(store, with_rows=not no_rows)
    finally:
        store.close()
    Output(as_json=as_json).result(_facts(validation), *_lines(validation))
    raise typer.Exit(0 if validation.is_consistent else EXIT_PROBLEMS)


def _facts(validation: Validation) -> dict[str, object]:
    return {
        "uri": validation.uri,
        "consistent": validation.is_consistent,
        "examined": dict(validation.examined),
        "findings": [finding_facts(found) for found in validation.findings],
    }


def finding_facts(found: Finding) -> dict[str, object]:
    """Return a finding as programs are told it."""
    return {
        "severity": found.severity.value,
        "check": found.check,
        "object": found.object,
        "what": found.what,
        "next_step": found.next_step,
    }


def _lines(validation: Validation) -> list[Text]:
    lines = [Text(validation.uri, style="bold")]
    for found in validation.findings:
        lines += finding_lines(found)
    looked = ", ".join(f"{number:,} {name}" for name, number in validation.examined.items())
    said = ", ".join(
        f"{number} {level}" if number == 1 else f"{number:,} {level}s"
        for level, number in sorted(validation.counts.items())
    )
    verdict = ("consistent", "bold green") if validation.is_consistent else ("broken", "bold red")
    lines.append(Text.assemble("  ", verdict, f": {said or 'nothing found'} ({looked})"))
    return lines


def finding_lines(found: Finding) -> list[Text]:
    """Return a finding as people are told it."""
    style = {"problem": "bold red", "warning": "yellow"}[found.severity]
    return [
        Text.assemble("  ", (f"{found.severity:<9}", style), f"{found.check}: {found.object}"),
        Text(f"{'':11}{found.what}"),
        Text(f"{'':11}{found.next_step}", style="dim"),
    ]
