"""Rows computed from the table are recomputed after a concurrent commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelock as tl
from tidelock.core.errors import ConfigInvalid
from tidelock.execution.write_plan import TOMBSTONE
from tidelock.operations.attempt import ReadSnapshot

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("day", pa.string())])
BOTH = pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def create_table(folder: Path, kind: str = "COPY_ON_WRITE") -> tl.Table:
    table = tl.Table.create(str(folder / "t"), SCHEMA, key="id", partition_by="day", type=kind)
    table.upsert([{"id": i, "n": 0, "day": f"d{i % 2}"} for i in range(4)])
    return table


def contents(table: tl.Table) -> dict[int, tuple[int, str]]:
    return {row["id"]: (row["n"], row["day"]) for row in table.read().to_pylist()}


def raised(rows: pa.Table) -> pa.Table:
    return rows.set_column(1, "n", pc.add(rows.column("n"), 1))


@BOTH
def test_conflicted_write_is_recomputed_on_the_latest_snapshot(tmp_path: Path, kind: str) -> None:
    with create_table(tmp_path, kind) as table, tl.Table.open(table.uri) as other:
        calls = 0

        def compute(now: ReadSnapshot) -> pa.Table:
            nonlocal calls
            calls += 1
            rows = now.read()
            if calls == 1:
                other.upsert([{"id": 1, "n": 100, "day": "d1"}])
            return raised(rows)

        report = table.rewrite(compute)
        assert report is not None
        assert (report.rebases, calls) == (1, 2)
        assert contents(table)[1] == (101, "d1")
        assert contents(table)[0] == (1, "d0")


def test_rows_that_do_not_depend_on_the_table_are_computed_once(tmp_path: Path) -> None:
    with create_table(tmp_path) as table, tl.Table.open(table.uri) as other:
        calls = 0

        def compute(_: ReadSnapshot) -> list[dict[str, object]]:
            nonlocal calls
            calls += 1
            other.upsert([{"id": 1, "n": 100, "day": "d1"}])
            return [{"id": 3, "n": 7, "day": "d1"}]

        report = table.rewrite(compute, reads=False)
        assert report is not None
        assert calls == 1
        assert contents(table)[1] == (100, "d1")
        assert contents(table)[3] == (7, "d1")


@BOTH
def test_tombstones_delete_in_the_commit_that_updates(tmp_path: Path, kind: str) -> None:
    with create_table(tmp_path, kind) as table:
        before = len(table.history())

        def compute(now: ReadSnapshot) -> pa.Table:
            rows = raised(now.read())
            return rows.append_column(TOMBSTONE, pc.equal(rows.column("id"), 2))

        report = table.rewrite(compute, tombstones=True)
        assert report is not None
        assert (report.rows_updated, report.rows_deleted) == (3, 1)
        assert sorted(contents(table)) == [0, 1, 3]
        assert table.schema.names == SCHEMA.names
        assert len(table.history()) == before + 1


def test_tombstone_for_an_absent_key_does_nothing(tmp_path: Path) -> None:
    with create_table(tmp_path) as table:
        rows = [{"id": 9, "n": 0, "day": "d1", TOMBSTONE: True}]
        table.rewrite(lambda _: rows, tombstones=True)
        assert sorted(contents(table)) == [0, 1, 2, 3]


def test_empty_result_commits_nothing(tmp_path: Path) -> None:
    with create_table(tmp_path) as table:
        before = table.history()
        assert table.rewrite(lambda _: None) is None
        assert table.history() == before


def test_overwrite_replaces_partitions_without_new_rows(tmp_path: Path) -> None:
    with create_table(tmp_path) as table:
        nothing = SCHEMA.empty_table()
        table.rewrite(lambda _: nothing, "insert_overwrite", partitions=["d1"])
        assert sorted(contents(table)) == [0, 2]


def test_unknown_operation_is_refused(tmp_path: Path) -> None:
    with (
        create_table(tmp_path) as table,
        pytest.raises(ConfigInvalid, match="unknown operation 'updte'"),
    ):
        table.rewrite(lambda _: None, "updte")


@BOTH
def test_rows_are_found_by_their_current_values(tmp_path: Path, kind: str) -> None:
    found: list[pa.Table | None] = []

    def looked(now: ReadSnapshot) -> None:
        for values, bytes_max in (
            ({"id": pa.array([1, 2, 99]), "day": pa.array(["d1"])}, 10_000),
            ({"id": pa.array([], pa.int64())}, 0),
            ({"id": pa.array([1])}, 0),
        ):
            found.append(now.lookup(["n", "id"], values, bytes_max=bytes_max))

    with create_table(tmp_path, kind) as table:
        table.upsert([{"id": 1, "n": 7, "day": "d1"}])
        table.rewrite(looked)
    some, none, too_many = found
    assert some is not None
    assert some.to_pylist() == [{"n": 7, "id": 1}]
    assert none is not None
    assert (none.num_rows, too_many) == (0, None)
