"""`tl.Table` on tiny tables: results of reads, and error messages."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tests.unit.execution.filegroup.slices import SCHEMA
from tests.unit.hudi.table_builder import time
from tests.unit.operations.small_tables import Filled, changed, names, schema_json, two_writes
from tidelock.core.errors import (
    ConfigInvalid,
    DataCorrupt,
    InvalidInput,
    NotFound,
    RecordFromFuture,
    Unsupported,
)
from tidelock.core.javaproperties import render_properties
from tidelock.hudi import properties as keys
from tidelock.hudi.properties import KEY, MERGE_MODE, ORDERING_FIELDS, MergeMode, TableType
from tidelock.hudi.schema import META_COLUMNS
from tidelock.hudi.timeline.history import ArchivedInstant
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import CommitMetadata, WriteStat, encode
from tidelock.operations.query import point_in_time


def with_properties(table: Filled, **changes: str) -> Filled:
    """Change table properties by the names of the constants in the module `properties`."""
    values = dict(table.properties.values)
    values |= {getattr(keys, name): value for name, value in changes.items()}
    table.put(KEY, render_properties(values).encode())
    return table


def test_importing_the_package_does_not_load_arrow() -> None:
    code = (
        "import sys, tidelock, tidelock.cli.main\n"
        "heavy = {'pyarrow', 'polars', 'fastavro', 'tidelock.operations'}\n"
        "print(heavy & sys.modules.keys(), 'Table' in dir(tidelock))\n"
        "print(tidelock.Table.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set() True\nTable\n"
    with pytest.raises(AttributeError, match="has no attribute 'Tabel'"):
        _ = tl.Tabel  # type: ignore[attr-defined]


def test_read_returns_the_latest_rows_without_meta_columns() -> None:
    table = two_writes().table()
    found = table.read()
    assert names(found) == {"a": "Ann", "b": "Ben", "c": "Cid"}
    assert found.schema.equals(table.schema)
    assert found.column_names == ["id", "ts", "name"]
    assert table.read(meta_columns=True).column_names == [*META_COLUMNS, "id", "ts", "name"]


def test_columns_are_returned_in_the_requested_order() -> None:
    table = two_writes().table()
    assert table.read(["name", "id"]).column_names == ["name", "id"]
    assert table.read(["_hoodie_commit_time"]).column_names == ["_hoodie_commit_time"]
    found = table.read(["name"], meta_columns=True)
    assert found.column_names == [*META_COLUMNS, "name"]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (["nmae"], "no column 'nmae' .did you mean 'name'"),
        (["zzz"], "the columns are id, ts, name"),
        (["id", "id"], "'id' occurs twice"),
        ([], "expected at least one name"),
        ("id", r"expected a list of names, got 'id' .use \['id'\]"),
    ],
)
def test_unknown_columns_are_refused(columns: Any, says: str) -> None:
    table = two_writes().table()
    for read in (table.read, table.batches):
        with pytest.raises(InvalidInput, match=says):
            read(columns)


def test_time_travel_read_has_the_rows_and_columns_of_that_time() -> None:
    table = Filled()
    table.insert(1, 2, "g-0", [("a", 1, "Ann")])
    wider = SCHEMA.append(pa.field("note", pa.string()))
    table.insert(3, 4, "g-1", [("b", 1, "Bob")], schema=wider)
    opened = table.table()
    assert opened.schema.names == ["id", "ts", "name", "note"]
    assert names(opened.read(as_of=time(1))) == {"a": "Ann"}
    assert opened.read(as_of=time(1)).column_names == ["id", "ts", "name"]
    assert opened.read(as_of=time(0)).num_rows == 0
    assert names(opened.read()) == {"a": "Ann", "b": "Bob"}


def test_time_travel_read_ignores_later_blocks_of_a_log_file() -> None:
    """Writers before table version 8 appended to log files, and an upgrade keeps those."""
    table = Filled()
    table.insert(1, 2, "g-0", [("a", 1, "Ann")])
    key = table.upsert(3, 4, "g-0", [("a", 2, "Amy")])
    table.commit(5, 6)
    table.put(key, changed(3, [("a", 2, "Amy")]) + changed(5, [("a", 3, "Ada")]))
    opened = table.table()
    assert names(opened.read()) == {"a": "Ada"}
    assert names(opened.read(as_of=time(3))) == {"a": "Amy"}


def test_batches_have_the_rows_of_a_read_with_one_schema() -> None:
    table = Filled()
    required = pa.schema([field.with_nullable(nullable=False) for field in SCHEMA])
    table.insert(1, 2, "g-0", [(str(n), 1, "old") for n in range(5)], schema=required)
    wider = required.append(pa.field("note", pa.string()))
    table.insert(3, 4, "g-1", [("b", 1, "Bob")], schema=required)
    table.commit(5, 6, schema=schema_json(wider))
    opened = table.table()
    parts = list(opened.batches(batch_rows=2))
    assert [part.num_rows for part in parts] == [2, 2, 1, 1]
    assert {part.schema for part in parts} == {opened.schema}
    assert pa.Table.from_batches(parts).equals(opened.read())


def test_read_of_some_partitions_skips_the_others() -> None:
    table = Filled()
    table.insert(1, 2, "g-0", [("a", 1, "Ann")], partition="eu")
    table.insert(3, 4, "g-1", [("b", 1, "Bob")], partition="us")
    opened = table.table()
    assert names(opened.read(partitions=["us"])) == {"b": "Bob"}
    assert [piece.partition for piece in opened.files(["us"])] == ["us"]
    with pytest.raises(InvalidInput, match="has no partition 'asia'"):
        opened.read(partitions=["asia"])
    with pytest.raises(InvalidInput, match=r"expected a list of paths, got 'us' .use \['us'\]"):
        opened.read(partitions="us")
    with pytest.raises(InvalidInput, match="is not partitioned"):
        Filled(partitioned=False).table().read(partitions=["us"])


def test_read_optimized_omits_rows_that_are_only_in_logs() -> None:
    table = two_writes().table()
    assert names(table.read(read_optimized=True)) == {"a": "Ann", "b": "Bob", "c": "Cid"}


def test_changes_are_those_completed_after_one_time_up_to_another() -> None:
    table = two_writes().table()
    assert names(table.changes(time(0))) == {"a": "Ann", "b": "Ben", "c": "Cid"}
    assert names(table.changes(time(0), time(2))) == {"a": "Ann", "b": "Bob", "c": "Cid"}
    assert names(table.changes(time(2))) == {"b": "Ben"}
    assert table.changes(time(2), time(3)).num_rows == 0
    assert table.latest_completion == time(4)
    assert table.changes(time(4)).schema.equals(table.schema)
    assert table.changes(time(2), columns=["name"]).to_pylist() == [{"name": "Ben"}]
    with pytest.raises(InvalidInput, match="is before begin"):
        table.changes(time(4), time(2))


def test_table_shows_the_snapshot_of_its_opening() -> None:
    table = two_writes()
    before = table.table()
    table.insert(5, 6, "g-1", [("d", 1, "Dan")])
    assert before.read().num_rows == 3
    assert table.table().read().num_rows == 4


def test_table_without_writes_has_the_columns_of_its_creation() -> None:
    table = Filled().table()
    assert table.read().num_rows == 0
    assert table.schema.names == []
    assert table.latest_completion is None
    assert table.history() == ()
    created = with_properties(Filled(), CREATE_SCHEMA=schema_json(SCHEMA)).table()
    assert created.read().schema.names == ["id", "ts", "name"]


def test_rows_without_a_recorded_schema_are_refused() -> None:
    table = Filled()
    table.insert(1, 2, "g-0", [("a", 1, "Ann")], recorded=False)
    with pytest.raises(DataCorrupt, match=r"memory://table has rows, but .*create\.schema"):
        table.table().read()


def test_table_without_meta_columns_has_no_changes_and_merges_no_logs() -> None:
    table = with_properties(two_writes(), POPULATE_META_FIELDS="false").table()
    with pytest.raises(Unsupported, match="cannot read changes"):
        table.changes(time(0))
    with pytest.raises(Unsupported, match=r"g-0.*without record keys"):
        table.read()
    assert table.read(read_optimized=True).num_rows == 3


def test_custom_merger_decides() -> None:
    class Joined:
        columns = ("name",)

        def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
            both = [
                f"{old} {new}"
                for old, new in zip(
                    older["name"].to_pylist(), newer["name"].to_pylist(), strict=True
                )
            ]
            at = newer.schema.get_field_index("name")
            return newer.set_column(at, newer.schema.field(at), pa.array(both))

    table = two_writes()
    changed = {MERGE_MODE: MergeMode.CUSTOM.value, ORDERING_FIELDS: ""}
    table.put(KEY, render_properties({**table.properties.values, **changed}).encode())
    with pytest.raises(Unsupported, match="a custom merge class"):
        table.table().read()
    found = tl.Table(table.open(), merger=Joined()).read()
    assert names(found) == {"a": "Ann", "b": "Bob Ben", "c": "Cid"}


def test_history_is_newest_first_and_includes_the_archive() -> None:
    table = two_writes()
    old = CommitMetadata(
        {"p": (WriteStat(file_id="g-0", path="p/x", num_writes=5, num_inserts=3),)},
        operation_type="INSERT",
    )
    snapshot = table.open()
    snapshot.archive.append(
        [
            ArchivedInstant(time(-3), time(-2), Action.COMMIT, encode(old)),
            ArchivedInstant(time(-2), time(-1), Action.CLEAN),
            ArchivedInstant(time(1), time(2), Action.COMMIT, encode(CommitMetadata())),
        ]
    )
    entries = table.table().history()
    assert [entry.requested for entry in entries] == [time(3), time(1), time(-2), time(-3)]
    assert [entry.archived for entry in entries] == [False, False, True, True]
    last = entries[-1]
    assert (last.operation, last.files, last.rows_written, last.rows_inserted) == (
        "INSERT",
        1,
        5,
        3,
    )
    assert entries[2].files is None
    assert [entry.completion for entry in table.table().history(1)] == [time(4)]


def test_files_are_the_slices_that_a_read_merges() -> None:
    (piece,) = two_writes().table().files()
    assert piece.base is not None
    assert (piece.partition, piece.file_id, len(piece.logs)) == ("p", "g-0", 1)
    (before,) = two_writes().table().files(as_of=time(1))
    assert before.logs == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("20250713010536861", "20250713010536861"),
        ("20250713010536", "20250713010536"),
        ("2025-07-13 01:05:36.861", "20250713010536861"),
        ("2025-07-13T01:05:36Z", "20250713010536000"),
        ("2025-07-13T03:05:36.861999+02:00", "20250713010536861"),
        ("2025-07-13", "20250713000000000"),
        (datetime(2025, 7, 13, 1, 5, 36, 861_000, tzinfo=UTC), "20250713010536861"),
        (datetime(2025, 7, 13, 1, 5, tzinfo=timezone(timedelta(hours=1))), "20250713000500000"),
    ],
)
def test_point_in_time_formats_are_accepted(given: str | datetime, expected: str) -> None:
    assert point_in_time(given) == expected


@pytest.mark.parametrize("given", ["yesterday", "", "2025", "2025-13-01", "123456789012345"])
def test_invalid_time_is_refused_with_the_accepted_formats(given: str) -> None:
    with pytest.raises(InvalidInput, match=r"14 or 17 digits|no such date or time"):
        two_writes().table().read(as_of=given)


def test_folder_without_a_table_is_reported_with_the_expected_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=rf"{tmp_path} is not a Hudi table: .*hoodie\.properties"):
        tl.Table.open(str(tmp_path))


@pytest.mark.parametrize(
    ("version", "error", "says"),
    [("6", Unsupported, "found 6 .*upgrade"), ("10", RecordFromFuture, "version 10.*newer")],
)
def test_table_of_another_version_is_refused(
    tmp_path: Path, version: str, error: type[Exception], says: str
) -> None:
    folder = with_properties(Filled(), VERSION=version).copy_to(tmp_path)
    with pytest.raises(error, match=says):
        tl.Table.open(str(folder))


def test_table_with_external_rows_is_refused() -> None:
    table = with_properties(two_writes(), BOOTSTRAP_PATH="s3://lake/plain")
    with pytest.raises(Unsupported, match=r"bootstrapped .*s3://lake/plain"):
        table.table()


def test_misspelt_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="did you mean"):
        tl.Table.open(str(tmp_path), settings={"tidelock.store.request.timeuot.ms": 1})


def test_table_on_disk_opens_by_its_path(tmp_path: Path) -> None:
    filled = Filled(TableType.COPY_ON_WRITE)
    filled.insert(1, 2, "g-0", [("a", 1, "Ann")])
    folder = filled.copy_to(tmp_path)
    with tl.Table.open(str(folder), workers=1) as table:
        assert repr(table) == f"Table('built', 'file://{folder}')"
        assert table.properties.type is TableType.COPY_ON_WRITE
        assert names(table.read()) == {"a": "Ann"}
