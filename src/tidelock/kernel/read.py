"""Reading a file slice: base rows with the log files' changes on top, as batches of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.base.errors import InvalidInput, Unsupported
from tidelock.kernel.basefile import BATCH_ROWS, read_base
from tidelock.kernel.custom import folded_by, overlaid_by
from tidelock.kernel.filtering import RowFilter
from tidelock.kernel.layers import check_ordering, read_layers
from tidelock.kernel.merge import MergeRule, folded, overlaid
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.logfile.reader import CorruptBlock
from tidelock.table.properties import MergeMode
from tidelock.table.schema.meta import COMMIT_TIME, RECORD_KEY


def read_slice(
    store: ObjectStore,
    piece: FileSlice,
    schema: pa.Schema,
    *,
    rule: MergeRule,
    columns: Sequence[str] | None = None,
    as_of: str | None = None,
    commit_times: Collection[str] | None = None,
    on_corrupt: Callable[[CorruptBlock], None] | None = None,
) -> pa.Table:
    """Return all rows of a slice at once; `slice_batches` says what the arguments mean.

    Raises: what `slice_batches` raises, and `InvalidInput` for no columns at all.
    """
    if columns is not None and not columns:
        raise InvalidInput(
            "no columns are asked for", hint="to count rows, add up those of `slice_batches`"
        )
    batches = slice_batches(
        store,
        piece,
        schema,
        rule=rule,
        columns=columns,
        as_of=as_of,
        commit_times=commit_times,
        on_corrupt=on_corrupt,
    )
    empty = _chosen(schema, columns).empty_table()
    return pa.concat_tables([empty, *batches], promote_options="permissive")


def slice_batches(
    store: ObjectStore,
    piece: FileSlice,
    schema: pa.Schema,
    *,
    rule: MergeRule,
    columns: Sequence[str] | None = None,
    as_of: str | None = None,
    commit_times: Collection[str] | None = None,
    on_corrupt: Callable[[CorruptBlock], None] | None = None,
    batch_rows: int = BATCH_ROWS,
    passing: RowFilter | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of a slice, merged, with `columns` (all of `schema` if None).

    `schema` is the table's, meta columns included; files written under an older one are widened to
    it. Log blocks of instants after `as_of` do not count. With `commit_times`, only rows whose
    current version was written by one of these instants are yielded: that is what an incremental
    query asks. With `passing`, only rows that pass it are. Torn log blocks are skipped and told to
    `on_corrupt`.

    Base rows stream; what the log files hold is in memory as a whole.

    Raises: `NotFound`, `DataCorrupt`, `InvalidInput`, `Unsupported`.
    """
    wanted = _chosen(schema, columns)
    extra: tuple[str, ...] = () if commit_times is None else (COMMIT_TIME,)
    extra += () if passing is None else passing.columns
    if not piece.logs:
        # Of rows that will mostly be left out, strings are decoded once it is known which stay.
        idle = () if passing is None and commit_times is None else wanted.names
        looked_at = () if passing is None else passing.columns
        batches = _base(
            store,
            piece,
            _needed(schema, wanted, extra),
            batch_rows,
            passing,
            encoded={*idle, *extra}.difference(looked_at),
        )
    else:
        check_ordering(rule, schema)
        more = (RECORD_KEY, *rule.ordered_by, *extra, *(rule.merger.columns if rule.merger else ()))
        needed = _needed(schema, wanted, more)
        layers = read_layers(store, piece.logs, needed, rule, as_of=as_of, on_corrupt=on_corrupt)
        # A base row that does not pass may still beat a change that would.
        base = _base(store, piece, needed, batch_rows, None)
        if rule.mode is not MergeMode.CUSTOM:
            batches = overlaid(base, folded(layers, needed), rule)
        elif rule.merger is None:
            raise Unsupported(
                f"{store.uri}/{piece.logs[0].key}: the table merges by a class of its own",
                hint="give the merge as a Merger, or compact the table with the writer that has it",
            )
        else:
            batches = overlaid_by(rule.merger, base, folded_by(rule.merger, layers, needed))
    for batch in batches:
        rows = batch if commit_times is None else _of_commits(batch, commit_times)
        rows = rows if passing is None else rows.filter(passing.expression)
        if rows.num_rows:
            yield _decoded(rows.select(wanted.names))


def _base(
    store: ObjectStore,
    piece: FileSlice,
    schema: pa.Schema,
    batch_rows: int,
    passing: RowFilter | None,
    *,
    encoded: Collection[str] = (),
) -> Iterable[pa.Table]:
    if piece.base is None:
        return ()
    return read_base(
        store, piece.base, schema, batch_rows=batch_rows, passing=passing, encoded=encoded
    )


def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the part of the schema that was asked for."""
    if columns is None:
        return schema
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise InvalidInput(
            f"the table has no column {missing[0]!r}",
            hint=f"the columns are {', '.join(schema.names)}",
        )
    return pa.schema([schema.field(name) for name in columns])


def _needed(schema: pa.Schema, wanted: pa.Schema, extra: Iterable[str]) -> pa.Schema:
    """Return what must be read to give what was asked for."""
    names = dict.fromkeys([*wanted.names, *extra])
    return pa.schema([schema.field(name) for name in names])


def _of_commits(batch: pa.Table, commit_times: Collection[str]) -> pa.Table:
    instants = pa.array(sorted(commit_times), pa.string())
    times = batch.column(COMMIT_TIME)
    if not pt.is_dictionary(times.type):
        return batch.filter(pc.is_in(times, value_set=instants))
    # Few instants wrote a file, so each is compared once.
    chosen = [
        pc.is_in(chunk.dictionary, value_set=instants).take(chunk.indices) for chunk in times.chunks
    ]
    return batch.filter(pa.chunked_array(chosen, pa.bool_()))


def _decoded(rows: pa.Table) -> pa.Table:
    """Return rows whose strings are no dictionaries any more."""
    columns = [
        column.cast(column.type.value_type) if pt.is_dictionary(column.type) else column
        for column in rows.columns
    ]
    fields = [
        field.with_type(column.type) for field, column in zip(rows.schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields)) if columns else rows
