"""Keys that exist only in log files, because a compaction dropped them from their base file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.unit.operations.model import Row, create_table, row, rows, stored_rows
from tidelock.inspect.validate import validate
from tidelock.services.compaction import Compaction, CompactionRule
from tidelock.services.log_compaction import LogCompaction
from tidelock.table import Table

KEY = row(1)["id"]
OPTIONS = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
indexes = pytest.mark.parametrize("index", ["SIMPLE", "BLOOM"])
orderings = pytest.mark.parametrize("ordering", [None, "ts"])


def table_of(index: str, ordering: str | None) -> Table:
    table = create_table("MERGE_ON_READ", None, index=index, ordering=ordering, options=OPTIONS)
    table.upsert(rows(range(4)))
    assert isinstance(table, Table)
    return table


def write(table: Table, step: str, ts: int) -> None:
    if step == "upsert":
        table.upsert([row(1, ts)])
    else:
        table.delete([KEY])


def plan(table: Table) -> str | None:
    return Compaction(table.writer()).schedule(CompactionRule())


def execute(table: Table, instant: str | None) -> None:
    if instant is not None:
        Compaction(table.writer()).execute(instant)


def current(table: Table) -> list[Row]:
    table.refresh()
    return stored_rows(table)


def check_once(table: Table, ts: int) -> None:
    """Check that the key is upserted once more, exists once, and is gone after one delete."""
    table.upsert([row(1, ts)])
    assert [item["ts"] for item in current(table) if item["id"] == KEY] == [ts]
    assert validate(table._store).findings == ()
    table.delete([KEY])
    assert KEY not in [item["id"] for item in current(table)]


def histories(writes: int) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Yield upserts and deletes with a plan at each position, executed at each later one."""
    for steps in product(["upsert", "delete"], repeat=writes):
        for planned in range(writes + 1):
            for executed in range(planned, writes + 1):
                yield steps, planned, executed


@indexes
@orderings
def test_key_upserted_while_a_compaction_drops_it_is_found_again(
    index: str, ordering: str | None
) -> None:
    table = table_of(index, ordering)
    table.delete([KEY])
    instant = plan(table)
    table.upsert([row(1, 2)])
    execute(table, instant)
    check_once(table, 3)


@indexes
@orderings
def test_every_order_of_upserts_deletes_plan_and_execution_leaves_one_row(
    index: str, ordering: str | None
) -> None:
    for number, (steps, planned, executed) in enumerate(histories(3)):
        table = table_of(index, ordering)
        instant = None
        for at in range(len(steps) + 1):
            if at == planned:
                instant = plan(table)
            if at == executed:
                execute(table, instant)
            if at < len(steps):
                write(table, steps[at], at + 2)
        if number % 2:
            table = Table.open(table.uri, options={"hoodie.index.type": index, **OPTIONS})
        check_once(table, 9)


@indexes
@orderings
def test_log_compaction_keeps_keys_findable_that_are_only_in_logs(
    index: str, ordering: str | None
) -> None:
    for steps in product(["upsert", "delete"], repeat=2):
        table = table_of(index, ordering)
        table.delete([KEY])
        instant = plan(table)
        table.upsert([row(1, 2)])
        execute(table, instant)
        for number, step in enumerate(steps):
            write(table, step, number + 3)
        merged = LogCompaction(table.writer())
        planned = merged.schedule(2)
        assert planned is not None
        merged.execute(planned)
        check_once(table, 9)


@indexes
def test_key_appended_by_a_stale_view_after_the_compaction_is_found_again(index: str) -> None:
    table = table_of(index, None)
    table.delete([KEY])
    instant = plan(table)
    other = Table.open(table.uri, options={"hoodie.index.type": index, **OPTIONS})
    placed = other.writer()._assign
    ran: list[bool] = []

    def late(*args: object) -> object:
        found = placed(*args)  # type: ignore[arg-type]
        if not ran:
            ran.append(True)
            execute(table, instant)  # commits before the upsert reserves its instant
        return found

    other.writer()._assign = late  # type: ignore[method-assign,assignment]
    other.upsert([row(1, 2)])
    assert ran
    table.refresh()
    check_once(table, 3)


@indexes
def test_keys_are_found_when_the_commits_of_their_logs_are_archived(
    index: str, tmp_path: Path
) -> None:
    few = {
        **OPTIONS,
        "hoodie.index.type": index,
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.clean.commits.retained": "1",
    }
    table = table_of(index, None)
    table.delete([KEY])
    instant = plan(table)
    table.upsert([row(1, 2)])
    execute(table, instant)
    with Table.open(table.uri, options=few) as again:
        for number in range(6):
            again.upsert([row(2, number + 2)])
        again.clean()
        assert again.archive().instants
    with Table.open(table.uri, options=few) as again:
        check_once(again, 9)
