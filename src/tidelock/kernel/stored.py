"""What a file slice holds, on its way into the file that will stand for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from tidelock.base.errors import Unsupported
from tidelock.kernel.basefile import read_base
from tidelock.kernel.custom import folded_by, overlaid_by
from tidelock.kernel.layers import check_ordering, read_layers
from tidelock.kernel.merge import MergeRule, Overlay, folded, overlaid
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile, FileSlice
from tidelock.table.logfile.reader import CorruptBlock
from tidelock.table.properties import MergeMode
from tidelock.table.schema.meta import RECORD_KEY


@dataclass(frozen=True, slots=True)
class Stored:
    """The rows of a slice, and what its log files had of them.

    `changes` is what remains of the log files, None without any. The numbers are for the stat.
    """

    batches: Iterable[pa.Table]
    changes: Overlay | None = None
    log_blocks: int = 0
    log_records: int = 0
    corrupt_blocks: int = 0


def stored_slice(
    store: ObjectStore, piece: FileSlice, schema: pa.Schema, rule: MergeRule
) -> Stored:
    """Return the rows of a slice as they count now; base rows stream.

    Raises: `NotFound`, `DataCorrupt`, `InvalidInput`, `Unsupported`.
    """
    base = () if piece.base is None else _base(store, piece.base, schema, rule)
    if not piece.logs:
        return Stored(base)
    check_ordering(rule, schema)
    corrupt: list[CorruptBlock] = []
    layers = read_layers(store, piece.logs, schema, rule, on_corrupt=corrupt.append)
    records = sum(len(layer.keys) for layer in layers)
    if rule.mode is not MergeMode.CUSTOM:
        changes = folded(layers, schema)
        batches = overlaid(base, changes, rule)
    elif rule.merger is None:
        raise no_merger(f"{store.uri}/{piece.logs[0].key}")
    else:
        changes = folded_by(rule.merger, layers, schema)
        batches = overlaid_by(rule.merger, base, changes)
    return Stored(batches, changes, len(layers), records, len(corrupt))


def _base(
    store: ObjectStore, base: BaseFile, schema: pa.Schema, rule: MergeRule
) -> Iterable[pa.Table]:
    """Return base rows; strings that nobody looks at stay encoded on their way."""
    looked_at = {RECORD_KEY, *rule.ordered_by}
    idle = [name for name in schema.names if name not in looked_at]
    return read_base(store, base, schema, encoded=() if rule.mode is MergeMode.CUSTOM else idle)


def no_merger(where: str) -> Unsupported:
    """Return the error for a table whose merge only its own Java class knows."""
    return Unsupported(
        f"{where}: the table merges by a class of its own",
        hint="give the merge as a Merger, or compact the table with the writer that has it",
    )
