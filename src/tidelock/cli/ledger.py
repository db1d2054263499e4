"""`tidelock ledger show`, `verify` and `conflicts`, `tidelock writers` and `timeline show`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.cli import options
from tidelock.cli.options import option
from tidelock.cli.output import columns
from tidelock.cli.table import finding_facts, finding_lines, opened
from tidelock.core.formatting import duration, fields_of, format_epoch_ms
from tidelock.hudi.timeline.instant import Instant
from tidelock.inspect.ledger_facts import entry_facts, group_names
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import open_store

if TYPE_CHECKING:
    from tidelock.txn.entries import LedgerEntry
    from tidelock.txn.writers import ActiveWriter, ConflictRecord


After = Annotated[
    int, option("--after N", "Only entries after this position.", min=0, show_default=True)
]

EXIT_PROBLEMS = 1


@contextmanager
def opened_ledger(uri: str, given: options.CommonOptions) -> Iterator[tuple[ObjectStore, str]]:
    """Yield the store of a table and the folder of its timeline."""
    from tidelock.hudi.properties import load_properties

    store = open_store(uri, given.settings())
    try:
        yield store, load_properties(store).timeline_folder
    finally:
        store.close()


def show(
    uri: options.TableUri,
    *,
    after: After = 0,
    limit: Annotated[int | None, option("--limit N", "Only the last N entries.", min=1)] = None,
    given: options.CommonOptions,
) -> None:
    """Show the ledger of a table, newest entry last.

    Only entries that are retained; older ones are in its checkpoint.

        tidelock ledger show s3://lake/orders
    """
    from tidelock.txn.writers import entries

    with opened_ledger(uri, given) as (store, _):
        found = list(entries(store, after=after))
        location = store.uri
    shown = found if limit is None else found[-limit:]
    output = given.output
    headings = ["position", "time", "kind", "instant", "what", "owner"]
    output.result(
        {"uri": location, "entries": [entry_facts(entry) for entry in shown]},
        Text(f"{location}  {len(found)} entries"),
        *columns(headings, [_entry_row(entry) for entry in shown]),
    )


def verify(uri: options.TableUri, *, given: options.CommonOptions) -> None:
    """Check the ledger of a table against its timeline.

    The entries must form one chain without gaps, and each must be valid after its predecessors; the
    checkpoint must match them; every commit must be on the timeline with the bytes that the ledger
    decided. Changes nothing.

    Exit status: 0 without problems, 1 with problems; warnings do not count.

        tidelock ledger verify s3://lake/orders
    """
    from tidelock.hudi.snapshot import open_table
    from tidelock.inspect.validate_findings import Severity
    from tidelock.inspect.validate_ledger import check_ledger

    with opened_ledger(uri, given) as (store, _):
        findings = list(check_ledger(open_table(store)))
        location = store.uri
    problems = sum(found.severity is Severity.PROBLEM for found in findings)
    summary = f"{problems} problems" if problems else "the ledger is valid"
    given.output.result(
        {
            "uri": location,
            "sound": not problems,
            "findings": [finding_facts(found) for found in findings],
        },
        Text(f"{location}  {summary}", style="bold red" if problems else "bold green"),
        *(line for found in findings for line in finding_lines(found)),
    )
    raise typer.Exit(EXIT_PROBLEMS if problems else 0)


def conflicts(uri: options.TableUri, *, after: After = 0, given: options.CommonOptions) -> None:
    """Show conflicts between writes.

    Each is shown with its file groups and its outcome. Includes writes that were aborted or whose
    writer died, with the reason. --json has full names.

        tidelock ledger conflicts s3://lake/orders
    """
    from tidelock.txn.writers import conflicts as conflict_records

    with opened_ledger(uri, given) as (store, _):
        found = list(conflict_records(store, after=after))
        location = store.uri
    output = given.output
    headings = ["position", "instant", "conflicts with", "outcome", "file groups", "reason"]
    output.result(
        {"uri": location, "conflicts": [_conflict_facts(record) for record in found]},
        Text(f"{location}  {len(found)} conflicts and rollbacks"),
        *columns(headings, [_conflict_row(record) for record in found]),
    )


def writers(uri: options.TableUri, *, given: options.CommonOptions) -> None:
    """Show the active writers of a table.

    Each is shown with its start, heartbeat and file groups. A writer whose heartbeat expired is
    shown as dead.

        tidelock writers s3://lake/orders
    """
    from tidelock.txn.writers import writers as active_writers

    with opened_ledger(uri, given) as (store, folder):
        found = active_writers(store, folder=folder)
        location = store.uri
    alive = sum(writer.alive for writer in found)
    output = given.output
    headings = ["instant", "action", "state", "operation", "heartbeat", "since", "writer", "groups"]
    output.result(
        {"uri": location, "writers": [_writer_facts(writer) for writer in found]},
        Text(f"{location}  {len(found)} writes in progress, {alive} with a live writer"),
        *columns(headings, [_writer_row(writer) for writer in found]),
    )


def _entry_row(entry: LedgerEntry) -> list[str]:
    facts = entry_facts(entry)
    return [str(facts[name] or "-") for name in ("position", "time", "kind", "instant", "what")] + [
        entry.owner
    ]


def _conflict_facts(record: ConflictRecord) -> dict[str, object]:
    return {
        **fields_of(record, "position", "time", "instant", "owner"),
        "overtaken_by": list(record.conflicts_with),
        "overtaken_by_owners": list(record.conflicting_owners),
        "committed_as": record.ended or None,
        "groups": group_names(record.groups),
        "reason": record.reason,
    }


def _conflict_row(record: ConflictRecord) -> list[str]:
    rivals = (f"({_brief(owner)})" for owner in record.conflicting_owners)
    by = " ".join((*record.conflicts_with, *rivals)) or "-"
    ended = f"committed as {record.ended}" if record.ended else "not committed"
    names = [_brief(name) for name in group_names(record.groups)]
    groups = names[0] + (f" and {len(names) - 1} more" if names[1:] else "") if names else "-"
    # The first part of the reason repeats the other columns.
    reason = record.reason.rpartition(": ")[2]
    return [str(record.position), record.instant, by, ended, groups, reason]


def _brief(name: str) -> str:
    """Return a name with every UUID shortened to its first part."""
    return re.sub(
        r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(-\d+)?", r"\1", name
    )


def _writer_facts(writer: ActiveWriter) -> dict[str, object]:
    return {
        **fields_of(writer, "instant", "action", "state", "operation", "alive"),
        "heartbeat_age_ms": writer.age_ms,
        **fields_of(writer, "since_epoch_ms", "owner", "host", "pid"),
        "groups": group_names(writer.groups),
    }


def _writer_row(writer: ActiveWriter) -> list[str]:
    age = "none" if writer.age_ms is None else f"{duration(writer.age_ms)} ago"
    return [
        writer.instant,
        writer.action,
        writer.state,
        writer.operation or "-",
        age if writer.alive else f"{age}, dead",
        "-" if writer.since_epoch_ms is None else format_epoch_ms(writer.since_epoch_ms),
        f"{writer.host}:{writer.pid}" if writer.host else "-",
        " ".join(group_names(writer.groups)) or "-",
    ]


def show_timeline(uri: options.TableUri, *, given: options.CommonOptions) -> None:
    """Show the active timeline of a table, oldest first.

    Each action is shown once, in its latest state: requested, inflight or completed.

        tidelock timeline show s3://lake/orders
    """
    with opened(uri, given) as table:
        instants, location = table.timeline, table.uri
    pending = sum(not instant.is_completed for instant in instants)
    given.output.result(
        {"uri": location, "instants": [_instant_facts(instant) for instant in instants]},
        Text(f"{location}  {len(instants)} actions, {pending} pending"),
        *columns(["requested", "completed", "action", "state"], [_row(each) for each in instants]),
    )


def _instant_facts(instant: Instant) -> dict[str, object]:
    return {
        "requested": instant.requested,
        "completion": instant.completion or None,
        "action": instant.action.value,
        "state": instant.state.name.lower(),
    }


def _row(instant: Instant) -> list[str]:
    state = instant.state.name.lower()
    return [instant.requested, instant.completion or "-", instant.action.value, state]
