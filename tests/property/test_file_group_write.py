"""Rows and counts of a file group equal those of a plain model, for any sequence of changes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.execution.filegroup.slices import Row
from tests.unit.execution.filegroup.writing import (
    COMMIT_TIME,
    EVENT_TIME,
    GROUP,
    context,
    incoming,
    slice_of,
)
from tests.unit.execution.filegroup.writing import rows_in as rows_of
from tidelock.execution.filegroup.context import LogFormat
from tidelock.execution.filegroup.log_files import append_log
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.filegroup.write import (
    create_base,
    merge_base,
    revives_older_row,
    rewrite_base,
)
from tidelock.storage.memory import MemoryStore

KEYS = st.sampled_from("abcdefgh")


@dataclass(frozen=True)
class Change:
    """A write: rows with unique keys, and other keys to delete."""

    rows: list[Row] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Draw a write."""
    touched = draw(st.lists(KEYS, unique=True))
    rows: list[Row] = []
    deletes: list[str] = []
    for key in touched:
        if draw(st.booleans()) or draw(st.booleans()):
            rows.append((key, draw(st.integers(0, 4)), draw(st.sampled_from(["x", "y", "z"]))))
        else:
            deletes.append(key)
    return Change(rows, deletes)


@dataclass
class Model:
    """The rows of a group, and the counts of the last write."""

    rule: MergeRule
    rows: dict[str, Row] = field(default_factory=dict)
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def apply(self, change: Change) -> None:
        """Apply a write."""
        self.inserted = self.updated = self.deleted = 0
        for row in change.rows:
            stored = self.rows.get(row[0])
            if stored is None:
                self.inserted += 1
            elif self.rule.ordered_by and (stored[1] or 0) > (row[1] or 0):
                continue
            else:
                self.updated += 1
            self.rows[row[0]] = row
        for key in change.deletes:
            self.deleted += self.rows.pop(key, None) is not None


def parts(change: Change) -> tuple[pa.Table, pa.Array]:
    """Return a write in the form in which a file group is written."""
    return incoming(change.rows), pa.array(change.deletes, pa.string())


@settings(deadline=None, max_examples=150)
@given(
    first=changes(),
    logged=st.lists(changes(), max_size=3),
    last=changes(),
    rule=st.sampled_from([EVENT_TIME, COMMIT_TIME]),
    form=st.sampled_from(list(LogFormat)),
)
def test_merging_appending_and_compacting_agree_with_the_model(
    first: Change, logged: list[Change], last: Change, rule: MergeRule, form: LogFormat
) -> None:
    store = MemoryStore("lake")
    model = Model(rule)
    model.apply(Change(first.rows))
    rows = [incoming(first.rows)]
    results = list(
        create_base(
            store, context("10", rule=rule), partition="p", file_id=GROUP, slot=0, rows=rows
        )
    )
    for number, change in enumerate(logged):
        model.apply(change)
        table, deletes = parts(change)
        ctx = context(str(11 + number), rule=rule, log_format=form)
        piece = slice_of(*results)
        if revives_older_row(store, ctx, piece, table):
            # As engines do: in a log file the row would restore the deleted one.
            results = [merge_base(store, ctx, piece, slot=0, rows=table, deletes=deletes)]
        else:
            results.append(append_log(store, ctx, piece, slot=0, rows=table, deletes=deletes))
    assert rows_of(store, slice_of(*results), rule=rule) == sorted(model.rows.values())

    compacted = rewrite_base(store, context("20", rule=rule), slice_of(*results), slot=0)
    assert rows_of(store, slice_of(compacted)) == sorted(model.rows.values())

    model.apply(last)
    table, deletes = parts(last)
    ctx = context("21", rule=rule)
    merged = merge_base(store, ctx, slice_of(*results), slot=0, rows=table, deletes=deletes)
    assert rows_of(store, slice_of(merged)) == sorted(model.rows.values())
    stat = merged.stat
    assert (stat.num_inserts, stat.num_update_writes, stat.num_deletes) == (
        model.inserted,
        model.updated,
        model.deleted,
    )
    assert stat.num_writes == len(model.rows)
    again = merge_base(
        store, context("22", rule=rule), slice_of(compacted), slot=0, rows=table, deletes=deletes
    )
    assert rows_of(store, slice_of(again)) == sorted(model.rows.values())
    if not revives_older_row(store, ctx, slice_of(*results), table):
        log = append_log(store, ctx, slice_of(*results), slot=0, rows=table, deletes=deletes)
        assert rows_of(store, slice_of(*results, log), rule=rule) == sorted(model.rows.values())
