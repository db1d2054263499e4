"""Rows as every reader can be asked for them: Python values by column, in one order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import types as pt

from tidelock.table.schema.meta import COMMIT_SEQNO, PARTITION_PATH, RECORD_KEY

Row = dict[str, Any]


class Judge(Protocol):
    """A reader that is not ours. Rows come with the meta columns, ordered by `ordered`.

    `table` is the folder of a table. `since` and `until` are completion times, `as_of` a request
    time.
    """

    @property
    def name(self) -> str:
        """Say which reader it is."""
        ...

    def snapshot(self, table: str, as_of: str | None = None) -> list[Row]:
        """Return the rows now, or of writes requested by `as_of`."""
        ...

    def read_optimized(self, table: str) -> list[Row]:
        """Return the rows of base files alone."""
        ...

    def changes(self, table: str, since: str, until: str | None = None) -> list[Row]:
        """Return the rows that writes completed in (since, until] left behind."""
        ...


def ordered(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return rows sorted by partition and key.

    Plain inserts may leave a key in several rows; the sequence number tells those apart.
    """
    names = (PARTITION_PATH, RECORD_KEY, COMMIT_SEQNO)
    return sorted((dict(row) for row in rows), key=lambda row: [row[name] or "" for name in names])


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of an Arrow table in the one order, maps as dictionaries."""
    plain = {field.name: _values(table.column(field.name), field.type) for field in table.schema}
    return ordered(
        dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)
    )


def _values(column: pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    return [_plain(value, kind) for value in column.to_pylist()]


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value with every map in it as a dictionary: Arrow gives a list of pairs."""
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
