"""The common form of rows for all readers: Python values by column, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import types as pt

from tidelock.hudi.schema import COMMIT_SEQNO, PARTITION_PATH, RECORD_KEY

Row = dict[str, Any]


class Judge(Protocol):
    """An independent reader. Rows have the meta columns and are sorted by `ordered`.

    `table` is the folder of a table. `since` and `until` are completion times, `as_of` is a request
    time.
    """

    @property
    def name(self) -> str:
        """The name of the reader."""
        ...

    def snapshot(self, table: str, as_of: str | None = None) -> list[Row]:
        """Return the current rows, or those of commits requested up to `as_of`."""
        ...

    def read_optimized(self, table: str) -> list[Row]:
        """Return the rows of base files only."""
        ...

    def changes(self, table: str, since: str, until: str | None = None) -> list[Row]:
        """Return the rows changed by commits completed in (since, until]."""
        ...


def ordered(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return rows sorted by partition and key.

    Inserts may store several rows with one key; they are sorted by their sequence number.
    """
    names = (PARTITION_PATH, RECORD_KEY, COMMIT_SEQNO)
    return sorted((dict(row) for row in rows), key=lambda row: [row[name] or "" for name in names])


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of an Arrow table, sorted, with maps as dictionaries."""
    plain = {field.name: _values(table.column(field.name), field.type) for field in table.schema}
    return ordered(
        dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)
    )


def _values(column: pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    return [_plain(value, kind) for value in column.to_pylist()]


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value with all nested maps as dictionaries: Arrow returns lists of pairs."""
    if value is None:
        return None
    if pt.is_map(kind):
        return {key: _plain(item, kind.item_type) for key, item in value}
    if pt.is_list(kind) or pt.is_large_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pt.is_struct(kind):
        return {
            kind.field(i).name: _plain(value[kind.field(i).name], kind.field(i).type)
            for i in range(kind.num_fields)
        }
    return value
