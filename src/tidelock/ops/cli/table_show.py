"""`tidelock table show`: the first rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from datetime import date, time
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output
from tidelock.ops.cli.output import columns as lines_of
from tidelock.ops.cli.table import AsOf, Partition, opened

if TYPE_CHECKING:
    import pyarrow as pa

Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="A,B", help="Only these columns. [default: all]", show_default=False
    ),
]
RowLimit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="How many rows.")]
MetaColumns = Annotated[bool, typer.Option("--meta", help="Show Hudi's meta columns too.")]

_CELL_LETTERS_MAX: Final = 60
"""People see this much of a value; programs see all of it."""
_ROWS_AT_ONCE: Final = 100


def show(
    uri: options.TableUri,
    *,
    columns: Columns = None,
    limit: RowLimit = 20,
    as_of: AsOf = None,
    partition: Partition = None,
    meta: MetaColumns = False,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show rows of a table, now or as it was.

    The rows come in the order of the files, not sorted. With --json each row is an object.

        tidelock table show s3://lake/orders --columns id,amount --as-of 2025-07-13T01:05:36Z
    """
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    # One slice at a time: the first rows are most often all in the first.
    with opened(uri, props, props_file, workers=1) as table:
        batches = table.batches(
            chosen, partition, as_of, meta_columns=meta, batch_rows=max(limit + 1, 1_000)
        )
        with closing(batches):
            rows = list(islice(_rows(batches), limit + 1))
        place = table.uri
    output = Output(as_json=as_json)
    if as_json:
        for row in rows[:limit]:
            output.result(row)
        return
    if not rows:
        output.result({}, f"{place}: no rows")
        return
    cells = [[cell(value) for value in row.values()] for row in rows[:limit]]
    output.result({}, *lines_of([cell(name) for name in rows[0]], cells))
    if len(rows) > limit:
        output.remark(f"only the first {limit:,} rows; --limit shows more")


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, object]]:
    for batch in batches:
        # Rows become Python objects a few at a time, since seldom all of a batch are shown.
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            for row in batch.slice(start, _ROWS_AT_ONCE).to_pylist():
                yield {name: plain_value(value) for name, value in row.items()}


def plain_value(value: object) -> object:
    """Return a value as JSON has it: bytes in hexadecimal, times and decimals as text."""
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
    """Return a value as people see it, on one line and not too long."""
    text = "" if value is None else str(value)
    # A value must not move the cursor or colour the terminal.
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    if len(shown) <= _CELL_LETTERS_MAX:
        return shown
    return f"{shown[: _CELL_LETTERS_MAX - 1]}…"
