"""`tidelock ledger show|verify|conflicts` and `tidelock writers`: what was decided, and by whom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output, columns, counted, duration, moment
from tidelock.ops.cli.table_validate import finding_facts, finding_lines
from tidelock.store.contract import ObjectStore
from tidelock.store.uri import open_store

if TYPE_CHECKING:
    from tidelock.txn.entry import Entry
    from tidelock.txn.writers import Met, Writer

After = Annotated[
    int, typer.Option("--after", metavar="N", min=0, help="Only entries after this position.")
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="Only the last N.", show_default=False),
]

EXIT_PROBLEMS = 1


@contextmanager
def opened(
    uri: str, props: Sequence[str] | None, props_file: str | None
) -> Iterator[tuple[ObjectStore, str]]:
    """Open the store of a table, and say where its timeline is."""
    from tidelock.table.properties_file import load_properties

    store = open_store(uri, options.given_settings(props, props_file))
    try:
        yield store, load_properties(store).timeline_folder
    finally:
        store.close()


def show(
    uri: options.TableUri,
    *,
    after: After = 0,
    limit: Limit = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show the ledger of a table: every decision that is still kept, the newest last.

    tidelock ledger show s3://lake/orders
    """
    from tidelock.txn.writers import entries

    with opened(uri, props, props_file) as (store, _):
        found = list(entries(store, after=after))
        place = store.uri
    shown = found if limit is None else found[-limit:]
    output = Output(as_json=as_json)
    heads = ["position", "time", "kind", "instant", "what", "owner"]
    output.result(
        {"uri": place, "entries": [entry_facts(entry) for entry in shown]},
        Text(f"{place}  {len(found)} entries"),
        *columns(heads, [_entry_row(entry) for entry in shown]),
    )


def verify(
    uri: options.TableUri,
    *,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Check the ledger of a table, and that the timeline says what it says.

    Entries must be one unbroken chain, each lawful after those below it; the checkpoint must agree
    with them; every commit must be on the timeline with the very bytes that were decided.

    Changes nothing. Ends with 0 if there is no problem, otherwise with 1; warnings do not count.

        tidelock ledger verify s3://lake/orders
    """
    from tidelock.ops.validate.findings import Severity
    from tidelock.ops.validate.ledger import check_ledger
    from tidelock.table.snapshot import open_table

    with opened(uri, props, props_file) as (store, _):
        findings = list(check_ledger(open_table(store)))
        place = store.uri
    problems = sum(found.severity is Severity.PROBLEM for found in findings)
    said = f"{problems} problems" if problems else "the ledger is sound"
    Output(as_json=as_json).result(
        {
            "uri": place,
            "sound": not problems,
            "findings": [finding_facts(found) for found in findings],
        },
        Text(f"{place}  {said}", style="bold red" if problems else "bold green"),
        *(line for found in findings for line in finding_lines(found)),
    )
    raise typer.Exit(EXIT_PROBLEMS if problems else 0)


def conflicts(
    uri: options.TableUri,
    *,
    after: After = 0,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show who was overtaken by whom, in which file groups, and how it ended.

    Writes that were given up or died are shown too, with the reason. --json has every name in full.

    tidelock ledger conflicts s3://lake/orders
    """
    from tidelock.txn.writers import conflicts as met_in

    with opened(uri, props, props_file) as (store, _):
        found = list(met_in(store, after=after))
        place = store.uri
    output = Output(as_json=as_json)
    heads = ["position", "instant", "overtaken by", "ended", "file groups", "reason"]
    output.result(
        {"uri": place, "conflicts": [_met_facts(met) for met in found]},
        Text(f"{place}  {len(found)} conflicts and roll-backs"),
        *columns(heads, [_met_row(met) for met in found]),
    )


def writers(
    uri: options.TableUri,
    *,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show who is writing a table: since when, how alive, and which file groups.

    tidelock writers s3://lake/orders
    """
    from tidelock.txn.writers import writers as at_work

    with opened(uri, props, props_file) as (store, folder):
        found = at_work(store, folder=folder)
        place = store.uri
    alive = sum(writer.alive for writer in found)
    output = Output(as_json=as_json)
    heads = ["instant", "action", "state", "operation", "heartbeat", "since", "writer", "groups"]
    output.result(
        {"uri": place, "writers": [_writer_facts(writer) for writer in found]},
        Text(f"{place}  {len(found)} writes under way, {alive} of them alive"),
        *columns(heads, [_writer_row(writer) for writer in found]),
    )


def entry_facts(entry: Entry) -> dict[str, object]:
    """Return an entry as programs are told it."""
    return {
        "position": entry.position,
        "time": entry.time,
        "kind": type(entry.fact).__name__.lower(),
        "instant": getattr(entry.fact, "instant", None),
        "what": _what(entry),
        "owner": entry.owner,
        "published": entry.published,
    }


def _entry_row(entry: Entry) -> list[str]:
    facts = entry_facts(entry)
    return [str(facts[name] or "-") for name in ("position", "time", "kind", "instant", "what")] + [
        entry.owner
    ]


def _what(entry: Entry) -> str:
    from tidelock.txn.entry import (
        Adopt,
        Boundary,
        Claim,
        Commit,
        Foreign,
        Plan,
        Release,
        Rollback,
        Turn,
        Undo,
    )

    match entry.fact:
        case Commit(footprint=footprint) | Foreign(footprint=footprint):
            count = len(footprint.written) + len(footprint.replaced)
            return f"{footprint.deed}, {counted(count, 'file group')}"
        case Plan(action, targets):
            return f"{action}, {counted(len(targets), 'file group')}"
        case Adopt(action=action, targets=targets):
            return f"{action} of a writer without a ledger, {counted(len(targets), 'file group')}"
        case Claim(attempt=attempt):
            return f"attempt {attempt}"
        case Rollback(reason=reason):
            return reason
        case Boundary(position):
            return f"up to {position}"
        case Turn(groups=groups):
            return counted(len(groups), "file group")
        case Undo(action, instants):
            return f"{action} of {', '.join(instants[:3])}" + (" ..." if instants[3:] else "")
        case Release():
            return "savepoint given up"


def _met_facts(met: Met) -> dict[str, object]:
    return {
        "position": met.position,
        "time": met.time,
        "instant": met.instant,
        "owner": met.owner,
        "overtaken_by": list(met.overtaken_by),
        "overtaken_by_owners": list(met.rivals),
        "committed_as": met.ended or None,
        "groups": group_names(met.groups),
        "reason": met.reason,
    }


def _met_row(met: Met) -> list[str]:
    by = " ".join((*met.overtaken_by, *(f"({_brief(owner)})" for owner in met.rivals))) or "-"
    ended = f"committed as {met.ended}" if met.ended else "not committed"
    names = [_brief(name) for name in group_names(met.groups)]
    groups = names[0] + (f" and {len(names) - 1} more" if names[1:] else "") if names else "-"
    # The rest of the reason names what stands in the other columns.
    return [str(met.position), met.instant, by, ended, groups, met.reason.rpartition(": ")[2]]


def _brief(name: str) -> str:
    """Return a name with the first part of each UUID in it, which tells them apart."""
    return re.sub(
        r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(-\d+)?", r"\1", name
    )


def _writer_facts(writer: Writer) -> dict[str, object]:
    return {
        "instant": writer.instant,
        "action": writer.action,
        "state": writer.state,
        "operation": writer.operation,
        "alive": writer.alive,
        "heartbeat_age_ms": writer.age_ms,
        "since_epoch_ms": writer.since_epoch_ms,
        "owner": writer.owner,
        "host": writer.host,
        "pid": writer.pid,
        "groups": group_names(writer.groups),
    }


def _writer_row(writer: Writer) -> list[str]:
    age = "none" if writer.age_ms is None else f"{duration(writer.age_ms)} ago"
    return [
        writer.instant,
        writer.action,
        writer.state,
        writer.operation or "-",
        age if writer.alive else f"{age}, dead",
        "-" if writer.since_epoch_ms is None else moment(writer.since_epoch_ms),
        f"{writer.host}:{writer.pid}" if writer.host else "-",
        " ".join(group_names(writer.groups)) or "-",
    ]


def group_names(groups: Iterable[tuple[str, str]]) -> list[str]:
    """Return file groups as people and programs are told them."""
    return sorted("/".join(filter(None, group)) for group in groups)
