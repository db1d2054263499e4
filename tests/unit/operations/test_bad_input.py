"""Invalid input is refused by name: partitions, frames, values, times, columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tests.unit.operations.model import TYPES, create_table, row, rows, stored_rows
from tidelock.core.errors import InvalidInput, TidelockError


def regions(**options: object) -> tl.Table:
    table = create_table(partition_by="region", options=options)
    table.upsert(rows(range(6)))
    return table


@pytest.mark.parametrize(
    "read",
    [
        lambda table, some: table.read(partitions=some),
        lambda table, some: list(table.batches(partitions=some)),
        lambda table, some: table.files(partitions=some),
        lambda table, some: table.delete_partition(some),
    ],
    ids=["read", "batches", "files", "delete_partition"],
)
@pytest.mark.parametrize("typo", ["aa", "region=a", "A", "", "a/b"])
def test_unknown_partition_is_refused_with_the_existing_ones(
    read: Callable[[tl.Table, list[str]], object], typo: str
) -> None:
    table = regions()
    with pytest.raises(InvalidInput, match=f"has no partition {typo!r}") as raised:
        read(table, ["b", typo])
    assert "its 3 partitions are: a, b, c" in raised.value.hint
    assert len(stored_rows(table)) == 6


def test_nearest_partition_is_suggested() -> None:
    table = regions(**{"hoodie.datasource.write.hive_style_partitioning": True})
    with pytest.raises(InvalidInput, match="did you mean 'region=a'"):
        table.read(partitions=["region=aa"])
    with pytest.raises(InvalidInput, match="did you mean 'region=b'"):
        table.delete_partition(["b"])


def test_partition_without_rows_is_accepted() -> None:
    table = regions()
    table.delete_partition(["a"])
    assert table.read(partitions=["a"]).num_rows == 0
    assert table.delete_partition(["a"]).rows_deleted == 0
    assert table.read(partitions=["b"]).num_rows == 2


def test_repeated_deletion_of_a_partition_is_reported_as_repeated(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string())])
    with tl.Table.create(str(tmp_path / "t"), schema, key="id", partition_by="day") as table:
        table.upsert([{"id": "a", "day": "d1"}, {"id": "b", "day": "d2"}])
        app_transaction = tl.AppTransaction("job", 1)
        assert not table.delete_partition(["d1"], app_transaction=app_transaction).repeated
        for file in (tmp_path / "t" / "d1").iterdir():
            file.unlink()
        assert table.delete_partition(["d1"], app_transaction=app_transaction).repeated


def test_partitions_are_strings() -> None:
    with pytest.raises(InvalidInput, match="partitions: expected strings, got 1"):
        regions().read(partitions=[1])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="expected a list of paths"):
        regions().delete_partition("a")


@pytest.mark.parametrize("hive_style", [True, False])
def test_partition_value_with_a_colon_is_refused_unless_encoded(hive_style: bool) -> None:
    style = {"hoodie.datasource.write.hive_style_partitioning": hive_style}
    table = create_table(partition_by="region", options=style)
    with pytest.raises(InvalidInput, match=r"partition field region: .*it has a ':'"):
        table.upsert([row(1, region="10:30")])
    assert table.read().num_rows == 0
    encoded = {**style, "hoodie.datasource.write.partitionpath.urlencode": True}
    table = create_table(partition_by="region", options=encoded)
    table.upsert([row(1, region="10:30")])
    assert stored_rows(table) == [row(1, region="10:30")]
    assert [piece.partition.rpartition("=")[2] for piece in table.files()] == ["10%3A30"]


def test_pandas_index_is_a_column_only_if_it_has_a_name() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(rows(range(4)))
    for given in (frame, frame[frame["id"] != "k001"], frame.set_index("id")):
        table = create_table()
        table.upsert(given)
        assert table.schema.names == ["id", "ts", "region", "v"]
        assert stored_rows(table)[0] == row(0)
    with pytest.raises(InvalidInput, match="'id' is both a column and an index"):
        create_table().upsert(frame.set_index("id", drop=False))
    with pytest.raises(InvalidInput, match="expected column names to be strings"):
        create_table().upsert(frame.rename(columns={"v": 7}))
    with pytest.raises(InvalidInput, match="got a Series"):
        create_table().upsert(frame["id"])


LONE = "\ud800"

STRANGE: list[Any] = [
    None,
    7,
    "text",
    b"bytes",
    object(),
    [1, 2],
    [{"id": LONE, "ts": 1, "region": "a", "v": 1.0}],
    [{LONE: 1}],
    [{"id": "a", "ts": 2**80, "region": "a", "v": 1.0}],
    [{"id": "a", "ts": "x", "region": "a", "v": 1.0}],
    [{"id": ["a"], "ts": 1, "region": "a", "v": 1.0}],
    {"id": ["a", "b"], "ts": [1]},
    pa.table([["a"], ["b"]], names=["id", "id"]),
    pa.table({"id": ["a"], "ts": [1], "region": ["a"], "v": [1.0], "a b": [1]}),
    pa.table({"id": ["a"], "ts": [1], "region": ["a"], "v": [1.0], "": [1]}),
    pa.table({}),
]


@pytest.mark.parametrize("data", STRANGE, ids=lambda data: type(data).__name__)
@pytest.mark.parametrize("kind", TYPES)
def test_invalid_rows_are_refused_and_leave_the_table_unchanged(kind: str, data: object) -> None:
    table = create_table(kind)
    table.upsert([row(1)])
    last = table.latest_completion
    with pytest.raises(InvalidInput) as raised:
        table.upsert(data)
    assert raised.value.message
    table.refresh()
    assert table.latest_completion == last
    assert stored_rows(table) == [row(1)]


def test_empty_batches_commit_nothing() -> None:
    table = create_table()
    batches: list[object] = [[], table.schema.empty_table()]
    for nothing in batches:
        assert table.upsert(nothing).rows_inserted == 0
    assert table.delete([]).rows_deleted == 0


def test_meta_columns_of_rows_are_dropped() -> None:
    table = create_table()
    table.upsert([row(1)])
    table.upsert(table.read(meta_columns=True))
    assert stored_rows(table) == [row(1)]


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.read(columns=[LONE]),
        lambda table: table.read(columns=[7]),
        lambda table: table.read(columns=7),
        lambda table: table.read(partitions=7),
        lambda table: table.read(as_of=LONE),
        lambda table: table.read(as_of="yesterday"),
        lambda table: table.read(as_of=7),
        lambda table: table.changes(since=None),
        lambda table: table.changes(since="2024-13-01"),
        lambda table: table.read(filter=("nothing", "=", 1)),
        lambda table: table.read(filter=("ts", "~", 1)),
        lambda table: table.read(filter=("ts", "=", "x")),
        lambda table: table.read(filter=7),
        lambda table: table.history(limit=-1),
        lambda table: list(table.batches(batch_rows=0)),
        lambda table: table.delete(None),
        lambda table: table.delete([LONE]),
        lambda table: table.delete([{"id": None}]),
        lambda table: table.delete([{"name": 1}]),
        lambda table: table.upsert([row(2)], metadata={"a": LONE}),
        lambda table: table.upsert([row(2)], metadata={"a": 7}),
        lambda table: table.upsert([row(2)], metadata={"schema": "{}"}),
        lambda table: table.upsert([row(2)], metadata={"latest_schema": "{}"}),
        lambda table: table.write([row(2)], "upset"),
        lambda table: table.insert_overwrite(None),
    ],
)
def test_invalid_arguments_raise_a_tidelock_error(
    ask: Callable[[tl.Table], object],
) -> None:
    table = create_table()
    table.upsert([row(1)])
    with pytest.raises(TidelockError):
        ask(table)
    table.refresh()
    assert stored_rows(table) == [row(1)]


@pytest.mark.parametrize("uri", [LONE, "/tmp/\ud800", "/tmp/a\x00b", "", "s4://x/y", 7, None])
def test_invalid_addresses_raise_a_tidelock_error(uri: Any) -> None:
    with pytest.raises(TidelockError):
        tl.Table.open(uri)
    with pytest.raises(TidelockError):
        tl.Table.create(uri, [("id", "string")], key="id")


@pytest.mark.parametrize(
    "arguments",
    [
        {"key": []},
        {"key": "nothing"},
        {"key": 7},
        {"key": "id", "name": LONE},
        {"key": "id", "name": ""},
        {"key": "id", "version": 7},
        {"key": "id", "type": "SOMETIMES"},
        {"key": "id", "ordering": "nothing"},
        {"key": "id", "partition_by": ["nothing"]},
        {"key": "f"},
        {"key": "id", "options": {"hoodie.database.name": LONE}},
        {"key": "id", "schema": [("id", "text")]},
        {"key": "id", "schema": 7},
        {"key": "id", "schema": [(LONE, "string")]},
    ],
)
def test_invalid_table_definitions_raise_a_tidelock_error(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    schema = arguments.pop("schema", [("id", "string"), ("f", "float64")])
    with pytest.raises(TidelockError):
        tl.Table.create(str(tmp_path / "t"), schema, **arguments)
    assert not list(tmp_path.iterdir())
