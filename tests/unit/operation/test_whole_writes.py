"""Reading the table as of an instant shows all of a write, or nothing of it."""

from __future__ import annotations

import pytest

from tests.unit.operation.model import held, made, ordered, row, rows
from tidelock.tableservice.compaction.execute import Compaction
from tidelock.tableservice.compaction.plan import Choice
from tidelock.tableservice.table import Table


@pytest.mark.parametrize("executes", [False, True])
@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "BUCKET"])
def test_a_write_shows_wholly_as_of_itself_though_a_compaction_was_planned_meanwhile(
    index: str, executes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
    table = made("MERGE_ON_READ", "region", index=index, options=options)
    assert isinstance(table, Table)
    table.upsert(rows(range(6)))
    table.upsert([row(0, 2)])  # only this partition has something to compact
    other = Table.open(table.uri, options={"hoodie.index.type": index, **options})
    writer = table.writer()
    commit, planned = writer._commit, list[str]()

    def late(*args: object) -> object:
        instant = Compaction(other.writer()).schedule(Choice())
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
    assert held(table) == ordered(rows(range(6), 9))
