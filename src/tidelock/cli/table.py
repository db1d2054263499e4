"""`tidelock table create`, `describe`, `history`, `files`, `show` and `validate`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass
from datetime import date, time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from tidelock.cli import options
from tidelock.cli.options import flag, option
from tidelock.cli.output import Output, columns, facts
from tidelock.cli.output import columns as lines_of
from tidelock.core.errors import InvalidInput, NotFound
from tidelock.core.formatting import fields_of
from tidelock.lock.client import reject_unknown_keys
from tidelock.storage.uri import open_store

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelock.hudi.file_groups import FileSlice
    from tidelock.inspect.validate_findings import Validation, ValidationFinding
    from tidelock.operations.read import HistoryEntry
    from tidelock.table import Table


Partition = Annotated[
    list[str] | None,
    option("--partition PATH", "Only this partition, such as region=eu. May be repeated."),
]
AsOf = Annotated[
    str | None,
    option(
        "--as-of TIME",
        "Read the table as of this time: 17 or 14 digits, or ISO 8601; UTC without an offset.",
    ),
]


def opened(
    uri: str, given: options.CommonOptions, *, workers: int | None = None
) -> AbstractContextManager[Table]:
    """Open a table with the settings of the command line."""
    # Arrow takes longer to load than most lock commands take to run, so it loads here.
    from tidelock.table import Table

    return Table.open(uri, settings=given.settings(), workers=workers)


def describe(uri: options.TableUri, *, given: options.CommonOptions) -> None:
    """Show the type, version, keys, columns and size of a table.

    Sizes are those of the latest file slices.

        tidelock table describe s3://lake/orders
    """
    with opened(uri, given) as table:
        name, location, shown = table.properties.name, table.uri, _description(table)
        fields = [[field.name, str(field.type)] for field in table.schema]
    listed = [{"name": column, "type": kind} for column, kind in fields]
    given.output.result(
        {"name": name, "uri": location, **shown, "columns": listed},
        Text.assemble((name, "bold"), f"  {location}"),
        *facts([(each.replace("_", " "), _text(value)) for each, value in shown.items()]),
        "",
        *columns(["column", "type"], fields),
    )


def history(
    uri: options.TableUri,
    *,
    limit: Annotated[
        int, option("--limit N", "The number of actions to show.", min=1, show_default=True)
    ] = 20,
    given: options.CommonOptions,
) -> None:
    """Show the completed actions of a table, newest first.

    Includes archived actions. `timeline show` has the pending ones.

        tidelock table history s3://lake/orders --limit 5
    """
    with opened(uri, given) as table:
        entries = table.history(limit)
        location = table.uri
    output = given.output
    headings = ["completed", "requested", "action", "operation"]
    headings += ["files", "written", "inserted", "updated", "deleted", "bytes"]
    output.result(
        {"uri": location, "history": [asdict(entry) for entry in entries]},
        *_listed(
            headings, [_history_row(entry) for entry in entries], location, "no completed actions"
        ),
    )


def files(
    uri: options.TableUri,
    *,
    partition: Partition = None,
    as_of: AsOf = None,
    given: options.CommonOptions,
) -> None:
    """Show the data files of a table.

    Each line is a file slice: its base file, and the log files that are merged with it.

        tidelock table files s3://lake/orders --partition region=eu
    """
    with opened(uri, given) as table:
        slices = table.files(partition, as_of)
        location = table.uri
    output = given.output
    headings = ["partition", "file group", "base file", "bytes", "logs", "log bytes"]
    output.result(
        {"uri": location, "files": [_slice_facts(piece) for piece in slices]},
        *_listed(headings, [_slice_row(piece) for piece in slices], location, "no data files"),
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


def _listed(headings: list[str], rows: list[list[str]], location: str, empty: str) -> list[Text]:
    return columns(headings, rows) if rows else [Text(f"{location}: {empty}")]


def _text(value: object) -> str:
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
    rows = (entry.rows_written, entry.rows_inserted, entry.rows_updated, entry.rows_deleted)
    counts = (entry.operation, entry.files, *rows, entry.bytes_written)
    return [entry.completion, entry.requested, entry.action.value, *map(_text, counts)]


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
        _text(piece.base.size_bytes if piece.base else None),
        _text(len(piece.logs)),
        _text(sum(log.size_bytes for log in piece.logs)),
    ]


_CELL_CHARS_MAX: Final = 60
"""Text output truncates values to this length; JSON output does not."""
_ROWS_AT_ONCE: Final = 100


def show(
    uri: options.TableUri,
    *,
    columns: Annotated[
        str | None, option("--columns A,B", "Only these columns. [default: all]")
    ] = None,
    limit: Annotated[
        int, option("--limit N", "The number of rows.", min=1, show_default=True)
    ] = 20,
    as_of: AsOf = None,
    partition: Partition = None,
    meta: Annotated[bool, flag("--meta", "Show Hudi's meta columns too.")] = False,
    given: options.CommonOptions,
) -> None:
    """Show rows of a table, the latest or as of a time.

    Rows are in file order, not sorted. With --json each row is an object.

        tidelock table show s3://lake/orders --as-of 2025-07-13T01:05:36Z
    """
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    # One slice at a time: usually the first slice has enough rows.
    with opened(uri, given, workers=1) as table:
        batches = table.batches(
            chosen, partition, as_of, meta_columns=meta, batch_rows=max(limit + 1, 1_000)
        )
        with closing(batches):
            rows = list(islice(_rows(batches), limit + 1))
        location = table.uri
    if not rows and not given.as_json:
        given.output.result({}, f"{location}: no rows")
        return
    show_rows(given.output, list(rows[0]) if rows else [], rows, limit)


def show_rows(
    output: Output, names: Sequence[str], rows: Sequence[dict[str, object]], limit: int
) -> None:
    """Show up to `limit` rows: with `--json` each as an object, otherwise as a table."""
    if output.as_json:
        for row in rows[:limit]:
            output.result(row)
        return
    if names:
        cells = [[cell(value) for value in row.values()] for row in rows[:limit]]
        output.result({}, *lines_of([cell(name) for name in names], cells))
    if len(rows) > limit:
        output.remark(f"only the first {limit:,} rows are shown; use --limit for more")


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, object]]:
    for batch in batches:
        # Convert a few rows at a time: rarely all rows of a batch are shown.
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            for row in batch.slice(start, _ROWS_AT_ONCE).to_pylist():
                yield {name: plain_value(value) for name, value in row.items()}


def plain_value(value: object) -> object:
    """Return a value for JSON: bytes in hexadecimal, times and decimals as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case date() | time():
            return value.isoformat()
        case dict():
            return {str(key): plain_value(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain_value(inner) for inner in value]
        case _:
            return str(value)


def cell(value: object) -> str:
    """Return a value as text on one line, truncated if it is long."""
    text = "" if value is None else str(value)
    # A value must not contain control sequences of the terminal.
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    if len(shown) <= _CELL_CHARS_MAX:
        return shown
    return f"{shown[: _CELL_CHARS_MAX - 1]}…"


EXIT_PROBLEMS = 1


def validate(
    uri: options.TableUri,
    *,
    no_rows: Annotated[
        bool, flag("--no-rows", "Check only names, sizes and the timeline.")
    ] = False,
    given: options.CommonOptions,
) -> None:
    """Check that a table is consistent.

    Checks that the timeline is valid, that every file of a completed write exists with its size and
    that no other file is read, that log files are complete, partitions have their metadata, and the
    meta columns of every row are correct, that no key occurs twice in a partition, that the
    metadata table lists the existing files, and that the ledger is one chain that matches the
    timeline. Reads every row once and changes nothing.

    Exit status: 0 without problems, 1 with problems; warnings do not count.

        tidelock table validate s3://lake/orders
    """
    # Arrow takes longer to load than most lock commands take to run, so it loads here.
    from tidelock.inspect.validate import validate as validate_store

    settings = given.settings()
    reject_unknown_keys(settings)
    store = open_store(uri, settings)
    try:
        validation = validate_store(store, with_rows=not no_rows)
    finally:
        store.close()
    given.output.result(_facts(validation), *_lines(validation))
    raise typer.Exit(0 if validation.is_consistent else EXIT_PROBLEMS)


def _facts(validation: Validation) -> dict[str, object]:
    return {
        "uri": validation.uri,
        "consistent": validation.is_consistent,
        "examined": dict(validation.examined),
        "findings": [finding_facts(found) for found in validation.findings],
    }


def finding_facts(found: ValidationFinding) -> dict[str, object]:
    """Return a finding for JSON output."""
    return fields_of(found, "severity", "check", "object", "what", "next_step")


def _lines(validation: Validation) -> list[Text]:
    lines = [Text(validation.uri, style="bold")]
    for found in validation.findings:
        lines += finding_lines(found)
    examined = ", ".join(f"{number:,} {name}" for name, number in validation.examined.items())
    counts = ", ".join(
        f"{number} {level}" if number == 1 else f"{number:,} {level}s"
        for level, number in sorted(validation.counts.items())
    )
    verdict = (
        ("consistent", "bold green") if validation.is_consistent else ("inconsistent", "bold red")
    )
    lines.append(Text.assemble("  ", verdict, f": {counts or 'no findings'} ({examined})"))
    return lines


def finding_lines(found: ValidationFinding) -> list[Text]:
    """Return a finding as lines of text."""
    style = {"problem": "bold red", "warning": "yellow"}[found.severity]
    return [
        Text.assemble("  ", (f"{found.severity:<9}", style), f"{found.check}: {found.object}"),
        Text(f"{'':11}{found.what}"),
        Text(f"{'':11}{found.next_step}", style="dim"),
    ]


_TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}


@dataclass(frozen=True, kw_only=True)
class CreateOptions(options.CommonOptions):
    """The properties of a new table."""

    column_list: Annotated[
        str | None,
        option(
            "--columns LIST",
            'The columns with Spark types: "id long, ts timestamp, tags array<string>".',
        ),
    ] = None
    schema: Annotated[
        Path | None,
        option(
            "--schema FILE", "A file with the schema: an Avro schema (JSON), or any Parquet file."
        ),
    ] = None
    key: Annotated[str | None, option("--key COLUMN[,…]", "The columns of the record key.")] = None
    ordering: Annotated[
        str | None,
        option(
            "--ordering COLUMN",
            "The column that orders rows of one key: the larger value wins."
            " [default: the later write wins]",
        ),
    ] = None
    partition_by: Annotated[
        str | None, option("--partition-by COLUMN[,…]", "The columns that partition the table.")
    ] = None
    table_type: Annotated[
        str | None,
        option(
            "--type TYPE",
            "COPY_ON_WRITE (or cow) or MERGE_ON_READ (or mor). [default: COPY_ON_WRITE]",
        ),
    ] = None
    version: Annotated[
        int | None,
        option(
            "--version N",
            "The version of the table format: 9, or 8 for readers of Hudi 1.0. [default: 9]",
        ),
    ] = None
    name: Annotated[
        str | None,
        option("--name NAME", "The name of the table. [default: the last part of its path]"),
    ] = None
    extra: Annotated[
        list[str] | None,
        option(
            "-O --option KEY=VALUE",
            "Any other setting, by its hoodie.* key, such as hoodie.index.type=BUCKET."
            " May be repeated.",
        ),
    ] = None


def create(uri: options.TableUri, *, given: CreateOptions) -> None:
    """Create an empty table.

    Fails if the table exists.

        tidelock table create s3://lake/orders \\
            --columns "id long, ts timestamp, day date" \\
            --key id --ordering ts --partition-by day --type mor
    """
    # Arrow takes longer to load than most lock commands take to run, so it loads here.
    from tidelock.table import Table

    kind = given.table_type
    table = Table.create(
        uri,
        _schema(given.column_list, given.schema),
        key=_names(given.key),
        ordering=_names(given.ordering),
        partition_by=_names(given.partition_by),
        type=None if kind is None else _TYPES.get(kind.lower(), kind),
        version=given.version,
        name=given.name,
        settings=given.settings(),
        options=options.key_values(given.extra, "-O"),
    )
    with table:
        location, properties = table.uri, table.properties
        listed = [[field.name, str(field.type)] for field in table.schema]
    shown = {
        "type": properties.type.value,
        "version": properties.version,
        "record_keys": list(properties.record_keys),
        "partition_fields": list(properties.partition_fields),
        "ordering_fields": list(properties.ordering_fields),
        "key_generator": properties.key_generator.value,
    }
    lines = [(each.replace("_", " "), _text(value)) for each, value in shown.items()]
    given.output.result(
        {
            "uri": location,
            "name": properties.name,
            **shown,
            "columns": [{"name": column, "type": kind} for column, kind in listed],
        },
        Text.assemble("created ", (properties.name, "bold"), f"  {location}"),
        *facts(lines),
        "",
        *columns(["column", "type"], listed),
    )


def _schema(columns: str | None, file: Path | None) -> pa.Schema:
    if columns is not None and file is None:
        from tidelock.operations.column_ddl import parse_columns

        return parse_columns(columns)
    if file is None or columns is not None:
        raise InvalidInput(
            "--columns or --schema: expected one of them",
            hint='for example --columns "id long, ts timestamp"',
        )
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tidelock.hudi.schema import arrow_schema, parse_schema, without_meta

    try:
        body = file.read_bytes()
    except OSError as error:
        raise NotFound(
            f"--schema {file}: cannot be read: {error.strerror}", hint="check the path"
        ) from error
    if body.startswith(b"PAR1"):
        try:
            return without_meta(pq.read_schema(pa.BufferReader(body)))
        except pa.ArrowInvalid as error:
            raise InvalidInput(
                f"--schema {file}: not a valid Parquet file: {error}",
                hint="use another Parquet file, or an Avro schema",
            ) from error
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"--schema {file}: neither JSON nor Parquet", hint="use an Avro schema in JSON"
        ) from error
    where = f"--schema {file}"
    return without_meta(arrow_schema(parse_schema(text, where=where), where=where))


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]
