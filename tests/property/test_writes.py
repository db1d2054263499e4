"""Any sequence of writes has the same result as on a dictionary, on every kind of table."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

import tidelock as tl
from tests.unit.operations.model import (
    INDEXES,
    LAYOUTS,
    TYPES,
    Model,
    Row,
    create_table,
    row,
    stored_rows,
)
from tidelock.core.errors import InvalidInput


@dataclass(frozen=True)
class Kind:
    """One kind of table."""

    type: str
    partition_by: str | None
    index: str
    ordering: str | None
    fills_small: bool

    def made(self) -> tl.Table:
        """Return a new table."""
        options = {} if self.fills_small else {"hoodie.parquet.small.file.limit": 0}
        return create_table(
            self.type,
            self.partition_by,
            index=self.index,
            ordering=self.ordering,
            options=options,
        )


kinds = st.builds(
    Kind,
    type=st.sampled_from(TYPES),
    partition_by=st.sampled_from(LAYOUTS),
    index=st.sampled_from(INDEXES),
    ordering=st.sampled_from(["ts", None]),
    fills_small=st.booleans(),
)
verbs = st.sampled_from(
    ["upsert", "upsert", "delete", "overwrite", "overwrite table", "delete partition"]
)
writes = st.tuples(verbs, st.lists(st.integers(0, 12), min_size=1, max_size=8))


def do(table: tl.Table, model: Model, verb: str, batch: list[Row]) -> None:
    """Apply the same write to both."""
    ids, regions = [item["id"] for item in batch], {item["region"] for item in batch}
    single = list({item["id"]: item for item in batch}.values())
    match verb:
        case "upsert":
            table.upsert(batch)
            model.upsert(batch)
        case "delete":
            table.delete(ids)
            model.delete(ids)
        case "overwrite":
            table.insert_overwrite(single)
            model.empty(regions if model.partition_by else None)
            model.upsert(single)
        case "overwrite table":
            table.insert_overwrite_table(single)
            model.empty()
            model.upsert(single)
        case "delete partition" if model.partition_by:
            known = regions & {piece.partition for piece in table.files()}
            try:
                table.delete_partition(regions)
            except InvalidInput:
                assert known < regions
                if known:
                    table.delete_partition(known)
            model.empty(regions)


@settings(max_examples=40)
@given(kind=kinds, history=st.lists(writes, max_size=6))
def test_table_equals_a_dictionary(kind: Kind, history: list[tuple[str, list[int]]]) -> None:
    table, model = kind.made(), Model(kind.partition_by, kind.ordering)
    for ts, (verb, numbers) in enumerate(history, start=1):
        # Event time decreases within a batch, so arrival order and event-time order differ.
        batch = [row(number, ts * 100 - i) for i, number in enumerate(numbers)]
        do(table, model, verb, batch)
        assert stored_rows(table) == model.rows()
