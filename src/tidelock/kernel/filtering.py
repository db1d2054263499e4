"""Rows by a condition: which columns it needs, and which parts of a table cannot have any.

What is known of a part (a partition's values, the least and greatest value of a row group) is told
to Arrow as an expression, and Arrow says whether the condition can hold beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelock.base.errors import InvalidInput

_UNFIT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, KeyError)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition on rows of `schema`, and the columns that it looks at."""

    expression: pc.Expression
    schema: pa.Schema
    columns: tuple[str, ...]

    @classmethod
    def of(cls, expression: pc.Expression, schema: pa.Schema) -> RowFilter:
        """Return the filter of an expression.

        Raises: `InvalidInput` for an expression that does not fit the columns.
        """
        problem = _problem(expression, schema)
        if problem is not None:
            raise InvalidInput(
                f"the filter {expression} does not fit the table: {problem}",
                hint=f"the columns are {', '.join(schema.names)}",
            )
        # Arrow does not tell which columns an expression names; without one of them it fails.
        needed = tuple(
            name
            for i, name in enumerate(schema.names)
            if _problem(expression, schema.remove(i)) is not None
        )
        return cls(expression, schema, needed)

    def possible(self, known: Sequence[pc.Expression | None]) -> list[bool]:
        """Tell for each part whether rows of it may pass; `known` is what is sure of its rows."""
        # Loaded here: a read without a condition does not pay for it.
        import pyarrow.dataset as pads
        import pyarrow.fs as pafs

        kind, place = pads.ParquetFileFormat(), pafs.LocalFileSystem()
        # Each part stands as a file that is never opened.
        parts = [
            kind.make_fragment(str(i), place, partition_expression=each)
            for i, each in enumerate(known)
            if each is not None
        ]
        every = pads.FileSystemDataset(parts, self.schema, kind, place)
        left = {int(part.path) for part in every.get_fragments(filter=self.expression)}
        return [each is None or i in left for i, each in enumerate(known)]

    def row_groups(self, file: pq.ParquetFile) -> list[int]:
        """Return the row groups of a base file that may have rows that pass."""
        groups = range(file.metadata.num_row_groups)
        known = [self._bounds(file, group) for group in groups]
        if all(each is None for each in known):
            return list(groups)
        may = self.possible(known)
        return [group for group, passes in zip(groups, may, strict=True) if passes]

    def _bounds(self, file: pq.ParquetFile, group: int) -> pc.Expression | None:
        """Return what the footer says of the values in a row group."""
        found: pc.Expression | None = None
        names = file.schema_arrow.names
        part = file.metadata.row_group(group)
        # With nested columns the footer's columns are not those of the schema.
        if part.num_columns != len(names):
            return None
        for name in self.columns:
            stats = part.column(names.index(name)).statistics if name in names else None
            if stats is None or not stats.has_min_max:
                continue
            bounds = _between(file.schema_arrow.field(name), self.schema.field(name), stats)
            if bounds is not None:
                found = bounds if found is None else found & bounds
        return found


def _between(written: pa.Field, read: pa.Field, stats: pq.Statistics) -> pc.Expression | None:
    try:
        low = pa.scalar(stats.min, written.type).cast(read.type)
        high = pa.scalar(stats.max, written.type).cast(read.type)
    except _UNFIT:
        return None
    field = pc.field(read.name)
    least, most = field >= low, field <= high
    if not stats.has_null_count or stats.null_count:
        least, most = least | field.is_null(), most | field.is_null()
    return least & most


def _problem(expression: pc.Expression, schema: pa.Schema) -> Exception | None:
    try:
        schema.empty_table().filter(expression)
    except _UNFIT as error:
        return error
    return None
