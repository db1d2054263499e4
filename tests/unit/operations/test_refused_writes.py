"""A refused write leaves another writer's table unchanged: no ledger, no timeline files."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelock as tl
from tests.unit.operations.small_tables import two_writes
from tidelock.core.errors import InvalidInput


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_refused_write_leaves_no_ledger_in_a_foreign_table(tmp_path: Path) -> None:
    folder = two_writes().copy_to(tmp_path / "theirs")
    before = files(folder)
    with tl.Table.open(str(folder)) as table:
        for rows in ([{"nothing": 1}], [{"id": None, "ts": 1, "name": "x"}], [{"id": "a"}]):
            with pytest.raises(InvalidInput):
                table.upsert(rows)
        with pytest.raises(InvalidInput):
            table.delete([None])
        assert files(folder) == before
