"""`tidelock table describe`, `history` and `files`: what a table is, became, and consists of."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output, columns, facts

if TYPE_CHECKING:
    from tidelock.operation.history import HistoryEntry
    from tidelock.table.filegroup.slice import FileSlice
    from tidelock.tableservice.table import Table

HistoryLimit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="How many actions to show.")
]
Partition = Annotated[
    list[str] | None,
    typer.Option(
        "--partition",
        metavar="PATH",
        help="Only this partition, such as region=eu. May be repeated.",
        show_default=False,
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME",
        help="The table as it was: 17 or 14 digits, or an ISO time, in UTC unless it says.",
        show_default=False,
    ),
]


def opened(
    uri: str,
    props: Sequence[str] | None,
    props_file: str | None,
    *,
    workers: int | None = None,
) -> AbstractContextManager[Table]:
    """Open a table with the settings of the command line, to use in a `with`."""
    # Arrow takes longer to load than most lock commands take to run, so it loads here.
    from tidelock.tableservice.table import Table

    settings = options.given_settings(props, props_file)
    return Table.open(uri, settings=settings, workers=workers)


def describe(
    uri: options.TableUri,
    *,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show what a table is: type, version, keys, columns, size.

    tidelock table describe s3://lake/orders
    """
    with opened(uri, props, props_file) as table:
        name, place, shown = table.properties.name, table.uri, _description(table)
        fields = [[field.name, str(field.type)] for field in table.schema]
    listed = [{"name": column, "type": kind} for column, kind in fields]
    Output(as_json=as_json).result(
        {"name": name, "uri": place, **shown, "columns": listed},
        Text.assemble((name, "bold"), f"  {place}"),
        *facts([(each.replace("_", " "), _said(value)) for each, value in shown.items()]),
        "",
        *columns(["column", "type"], fields),
    )


def history(
    uri: options.TableUri,
    *,
    limit: HistoryLimit = 20,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show what was done to a table, newest first.

    Shows completed actions, also those that were archived. `timeline show` has the unfinished ones.

        tidelock table history s3://lake/orders --limit 5
    """
    with opened(uri, props, props_file) as table:
        entries = table.history(limit)
        place = table.uri
    output = Output(as_json=as_json)
    headings = ["completed", "requested", "action", "operation"]
    headings += ["files", "written", "inserted", "updated", "deleted", "bytes"]
    output.result(
        {"uri": place, "history": [asdict(entry) for entry in entries]},
        *_listed(headings, [_history_row(entry) for entry in entries], place, "nothing done yet"),
    )


def files(
    uri: options.TableUri,
    *,
    partition: Partition = None,
    as_of: AsOf = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show the files that hold a table's rows.

    Each line is a file group: its base file, and the log files that are merged on top.

        tidelock table files s3://lake/orders --partition region=eu
    """
    with opened(uri, props, props_file) as table:
        slices = table.files(partition, as_of)
        place = table.uri
    output = Output(as_json=as_json)
    headings = ["partition", "file group", "base file", "bytes", "logs", "log bytes"]
    output.result(
        {"uri": place, "files": [_slice_facts(piece) for piece in slices]},
        *_listed(headings, [_slice_row(piece) for piece in slices], place, "no files with rows"),
    )


def _description(table: Table) -> dict[str, object]:
    properties, slices = table.properties, table.files()
    pending = [instant for instant in table.timeline if not instant.is_completed]
    bases = [piece.base for piece in slices if piece.base]
    logs = [log for piece in slices for log in piece.logs]
    return {
        "database": properties.database or None,
        "type": properties.type.value,
        "version": properties.version,
        "record_keys": list(properties.record_keys),
        "partition_fields": list(properties.partition_fields),
        "ordering_fields": list(properties.ordering_fields),
        "merge_mode": properties.merge_mode.value,
        "key_generator": properties.key_generator.value,
        "hive_style": properties.hive_style,
        "metadata_table": properties.has_metadata_table,
        "last_completion": table.latest_completion,
        "pending_actions": len(pending),
        "partitions": len({piece.partition for piece in slices}),
        "file_groups": len(slices),
        "base_files": len(bases),
        "base_bytes": sum(base.size_bytes for base in bases),
        "log_files": len(logs),
        "log_bytes": sum(log.size_bytes for log in logs),
    }


def _listed(headings: list[str], rows: list[list[str]], place: str, without: str) -> list[Text]:
    return columns(headings, rows) if rows else [Text(f"{place}: {without}")]


def _said(value: object) -> str:
    match value:
        case None | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list():
            return ", ".join(str(each) for each in value)
        case _:
            return str(value)


def _history_row(entry: HistoryEntry) -> list[str]:
    return [
        entry.completion,
        entry.requested,
        entry.action.value,
        _said(entry.operation),
        _said(entry.files),
        _said(entry.rows_written),
        _said(entry.rows_inserted),
        _said(entry.rows_updated),
        _said(entry.rows_deleted),
        _said(entry.bytes_written),
    ]


def _slice_facts(piece: FileSlice) -> dict[str, object]:
    base = piece.base
    return {
        "partition": piece.partition,
        "file_id": piece.file_id,
        "instant": piece.instant,
        "base": None if base is None else {"name": base.name, "size_bytes": base.size_bytes},
        "logs": [{"name": log.name, "size_bytes": log.size_bytes} for log in piece.logs],
    }


def _slice_row(piece: FileSlice) -> list[str]:
    return [
        piece.partition or "-",
        piece.file_id,
        piece.base.name if piece.base else "-",
        _said(piece.base.size_bytes if piece.base else None),
        _said(len(piece.logs)),
        _said(sum(log.size_bytes for log in piece.logs)),
    ]
