"""A read as of an instant shows all of a write, or nothing of it."""

from __future__ import annotations

import pytest

from tests.unit.operations.model import create_table, ordered, row, rows, stored_rows
from tidelock.services.compaction import Compaction, CompactionRule
from tidelock.table import Table


@pytest.mark.parametrize("executes", [False, True])
@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "BUCKET"])
def test_write_is_complete_as_of_its_instant_with_a_concurrently_scheduled_compaction(
    index: str, executes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
    table = create_table("MERGE_ON_READ", "region", index=index, options=options)
    assert isinstance(table, Table)
    table.upsert(rows(range(6)))
    table.upsert([row(0, 2)])  # only this partition has something to compact
    other = Table.open(table.uri, options={"hoodie.index.type": index, **options})
    writer = table.writer()
    commit, planned = writer._commit, list[str]()

    def late(*args: object) -> object:
        instant = Compaction(other.writer()).schedule(CompactionRule())
        assert instant is not None
        planned.append(instant)
        return commit(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "_commit", late)
    report = table.upsert([row(0, 3), row(1, 3)])
    monkeypatch.undo()
    assert report.instant < planned[0] < report.completion
    if executes:
        Compaction(other.writer()).execute(planned[0])
    table.upsert(rows(range(6), 9))
    table.refresh()
    expected = ordered([row(0, 3), row(1, 3), *rows(range(2, 6))])
    assert ordered(table.read(as_of=report.instant).to_pylist()) == expected
    assert stored_rows(table) == ordered(rows(range(6), 9))
