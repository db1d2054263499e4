"""Row filters: the columns a condition needs, and the parts of a table it excludes.

What is known of a part (a partition's values, the bounds of a row group) is passed to Arrow as an
expression, and Arrow decides whether the condition can hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelock.core.errors import InvalidInput

_MISMATCH_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, KeyError)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition on rows of `schema`, and the columns it refers to."""

    expression: pc.Expression
    schema: pa.Schema
    columns: tuple[str, ...]

    @classmethod
    def of(cls, expression: pc.Expression, schema: pa.Schema) -> RowFilter:
        """Return the filter of an expression.

        Raises: `InvalidInput` for an expression that does not match the columns.
        """
        problem = _expression_error(expression, schema)
        if problem is not None:
            raise InvalidInput(
                f"filter {expression} does not match the table: {problem}",
                hint=f"the columns are {', '.join(schema.names)}",
            )
        # Arrow does not expose the columns of an expression; without one of them it fails.
        needed = tuple(
            name
            for i, name in enumerate(schema.names)
            if _expression_error(expression, schema.remove(i)) is not None
        )
        return cls(expression, schema, needed)

    def may_match(self, known: Sequence[pc.Expression | None]) -> list[bool]:
        """Return for each part whether rows may match; `known` is what holds for all its rows."""
        # Imported here, because reads without a condition do not need it.
        import pyarrow.dataset as pads
        import pyarrow.fs as pafs

        file_format, filesystem = pads.ParquetFileFormat(), pafs.LocalFileSystem()
        # Each part is represented by a file that is never opened.
        parts = [
            file_format.make_fragment(str(i), filesystem, partition_expression=each)
            for i, each in enumerate(known)
            if each is not None
        ]
        dataset = pads.FileSystemDataset(parts, self.schema, file_format, filesystem)
        remaining = {int(part.path) for part in dataset.get_fragments(filter=self.expression)}
        return [each is None or i in remaining for i, each in enumerate(known)]

    def row_groups(self, file: pq.ParquetFile) -> list[int]:
        """Return the row groups of a base file that may have matching rows."""
        groups = range(file.metadata.num_row_groups)
        known = [self._bounds(file, group) for group in groups]
        if all(each is None for each in known):
            return list(groups)
        may = self.may_match(known)
        return [group for group, passes in zip(groups, may, strict=True) if passes]

    def _bounds(self, file: pq.ParquetFile, group: int) -> pc.Expression | None:
        """Return what the footer states about the values in a row group."""
        found: pc.Expression | None = None
        names = file.schema_arrow.names
        part = file.metadata.row_group(group)
        # With nested columns the footer's columns differ from those of the schema.
        if part.num_columns != len(names):
            return None
        for name in self.columns:
            stats = part.column(names.index(name)).statistics if name in names else None
            if stats is None or not stats.has_min_max:
                continue
            bounds = _bounds_expression(
                file.schema_arrow.field(name), self.schema.field(name), stats
            )
            if bounds is not None:
                found = bounds if found is None else found & bounds
        return found


def _bounds_expression(
    written: pa.Field, read: pa.Field, stats: pq.Statistics
) -> pc.Expression | None:
    try:
        low = pa.scalar(stats.min, written.type).cast(read.type)
        high = pa.scalar(stats.max, written.type).cast(read.type)
    except _MISMATCH_ERRORS:
        return None
    field = pc.field(read.name)
    lower, upper = field >= low, field <= high
    if not stats.has_null_count or stats.null_count:
        lower, upper = lower | field.is_null(), upper | field.is_null()
    return lower & upper


def _expression_error(expression: pc.Expression, schema: pa.Schema) -> Exception | None:
    try:
        schema.empty_table().filter(expression)
    except _MISMATCH_ERRORS as error:
        return error
    return None
