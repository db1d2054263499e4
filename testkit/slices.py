"""Reading a file slice as one table, for tests and benchmarks of file groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidelock.execution.filegroup.read import slice_batches
from tidelock.hudi.file_groups import FileSlice
from tidelock.storage.contract import ObjectStore


def read_slice(
    store: ObjectStore,
    file_slice: FileSlice,
    schema: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> pa.Table:
    """Return all rows of a slice; see `slice_batches` for the options."""
    batches = slice_batches(store, file_slice, schema, columns=columns, **options)
    names = schema.names if columns is None else columns
    empty = pa.schema([schema.field(name) for name in names if name in schema.names]).empty_table()
    return pa.concat_tables([empty, *batches], promote_options="permissive")
