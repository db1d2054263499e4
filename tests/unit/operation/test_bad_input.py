"""What users give by mistake is refused by name: partitions, frames, values, times, columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tests.unit.operation.model import TYPES, held, made, row, rows
from tidelock.base.errors import InvalidInput, TidelockError


def regions(**options: object) -> tl.Table:
    table = made(partition_by="region", options=options)
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
def test_a_partition_that_the_table_does_not_have_is_refused_with_those_it_has(
    read: Callable[[tl.Table, list[str]], object], typo: str
) -> None:
    table = regions()
    with pytest.raises(InvalidInput, match=f"has no partition {typo!r}") as raised:
        read(table, ["b", typo])
    assert "its 3 partitions are: a, b, c" in raised.value.hint
    assert len(held(table)) == 6


def test_the_nearest_partition_is_named() -> None:
    table = regions(**{"hoodie.datasource.write.hive_style_partitioning": True})
    with pytest.raises(InvalidInput, match="did you mean 'region=a'"):
        table.read(partitions=["region=aa"])
    with pytest.raises(InvalidInput, match="did you mean 'region=b'"):
        table.delete_partition(["b"])


def test_a_partition_without_rows_is_no_mistake() -> None:
    table = regions()
    table.delete_partition(["a"])
    assert table.read(partitions=["a"]).num_rows == 0
    assert table.delete_partition(["a"]).rows_deleted == 0
    assert table.read(partitions=["b"]).num_rows == 2


def test_a_repeated_deletion_of_a_partition_is_answered_as_repeated(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string())])
    with tl.Table.create(str(tmp_path / "t"), schema, key="id", partition_by="day") as table:
        table.upsert([{"id": "a", "day": "d1"}, {"id": "b", "day": "d2"}])
        mark = tl.Mark("job", 1)
        assert not table.delete_partition(["d1"], mark=mark).repeated
        for file in (tmp_path / "t" / "d1").iterdir():
            file.unlink()
        assert table.delete_partition(["d1"], mark=mark).repeated


def test_partitions_are_strings() -> None:
    with pytest.raises(InvalidInput, match="partitions has 1, which is no string"):
        regions().read(partitions=[1])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="is a string"):
        regions().delete_partition("a")


@pytest.mark.parametrize("hive_style", [True, False])
def test_a_partition_value_with_a_colon_is_refused_unless_it_is_encoded(hive_style: bool) -> None:
    style = {"hoodie.datasource.write.hive_style_partitioning": hive_style}
    table = made(partition_by="region", options=style)
    with pytest.raises(InvalidInput, match=r"of the partition field region.*it has a ':'"):
        table.upsert([row(1, region="10:30")])
    assert table.read().num_rows == 0
    encoded = {**style, "hoodie.datasource.write.partitionpath.urlencode": True}
    table = made(partition_by="region", options=encoded)
    table.upsert([row(1, region="10:30")])
    assert held(table) == [row(1, region="10:30")]
    assert [piece.partition.rpartition("=")[2] for piece in table.files()] == ["10%3A30"]


def test_the_index_of_a_pandas_frame_is_a_column_only_if_it_has_a_name() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows(range(4)))
    for given in (frame, frame[frame["id"] != "k001"], frame.set_index("id")):
        table = made()
        table.upsert(given)
        assert table.schema.names == ["id", "ts", "region", "v"]
        assert held(table)[0] == row(0)
    with pytest.raises(InvalidInput, match="'id' is a column and the index"):
        made().upsert(frame.set_index("id", drop=False))
    with pytest.raises(InvalidInput, match="whose name is no string"):
        made().upsert(frame.rename(columns={"v": 7}))
    with pytest.raises(InvalidInput, match="pandas Series"):
        made().upsert(frame["id"])


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
def test_strange_rows_are_refused_and_leave_the_table_as_it_was(kind: str, data: object) -> None:
    table = made(kind)
    table.upsert([row(1)])
    last = table.latest_completion
    with pytest.raises(InvalidInput) as raised:
        table.upsert(data)
    assert raised.value.message
    table.refresh()
    assert table.latest_completion == last
    assert held(table) == [row(1)]


def test_empty_batches_are_writes_of_nothing() -> None:
    table = made()
    batches: list[object] = [[], table.schema.empty_table()]
    for nothing in batches:
        assert table.upsert(nothing).rows_inserted == 0
    assert table.delete([]).rows_deleted == 0


def test_meta_columns_of_rows_are_left_out() -> None:
    table = made()
    table.upsert([row(1)])
    table.upsert(table.read(meta_columns=True))
    assert held(table) == [row(1)]


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
def test_arguments_that_cannot_be_are_refused_by_an_error_of_ours(
    ask: Callable[[tl.Table], object],
) -> None:
    table = made()
    table.upsert([row(1)])
    with pytest.raises(TidelockError):
        ask(table)
    table.refresh()
    assert held(table) == [row(1)]


@pytest.mark.parametrize("uri", [LONE, "/tmp/\ud800", "/tmp/a\x00b", "", "s4://x/y", 7, None])
def test_addresses_that_cannot_be_are_refused_by_an_error_of_ours(uri: Any) -> None:
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
def test_tables_that_cannot_be_are_refused_by_an_error_of_ours(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    schema = arguments.pop("schema", [("id", "string"), ("f", "float64")])
    with pytest.raises(TidelockError):
        tl.Table.create(str(tmp_path / "t"), schema, **arguments)
    assert not list(tmp_path.iterdir())
