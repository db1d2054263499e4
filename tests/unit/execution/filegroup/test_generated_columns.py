"""Generated columns, and the choice of dictionary-encoded columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelock.execution.filegroup.base_file_writer import (
    constant_column,
    dictionary_columns,
    sequence_numbers,
)


@pytest.mark.parametrize(
    ("start", "size"),
    [
        (0, 0),
        (0, 1),
        (0, 12),
        (5, 1_000),
        (99, 2),
        (999_990, 20),
        (10, 0),
        (997, 5_010),
        (0, 12_345),
    ],
)
def test_sequence_numbers_count_the_rows_of_a_task(start: int, size: int) -> None:
    found = sequence_numbers("20260101000000001", 42, size, start=start)
    found.validate(full=True)
    expected = [f"20260101000000001_42_{row}" for row in range(start, start + size)]
    assert found.to_pylist() == expected


def test_constant_is_the_same_in_every_row() -> None:
    assert constant_column("x", 3).to_pylist() == ["x"] * 3
    assert len(constant_column("x", 0)) == 0


def test_columns_with_repeated_values_get_a_dictionary() -> None:
    size = 1_000
    rows = pa.table(
        {
            "_hoodie_record_key": [str(i) for i in range(size)],
            "city": [f"city {i % 20}" for i in range(size)],
            "id": list(range(size)),
            "flag": [i % 2 == 0 for i in range(size)],
            "empty": pa.nulls(size, pa.string()),
            "tags": [["a"]] * size,
        }
    )
    meta = ["_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_file_name"]
    found = dictionary_columns(rows, rows.schema, None)
    assert found == [*meta, "city", "empty", "tags.list.element"]
    assert dictionary_columns(rows, rows.schema, ("id",)) == [*meta, "id"]


def test_strings_inside_nested_columns_get_a_dictionary() -> None:
    kind = pa.struct(
        [
            ("name", pa.string()),
            ("size", pa.int64()),
            ("tags", pa.list_(pa.string())),
            ("marks", pa.map_(pa.string(), pa.list_(pa.binary()))),
        ]
    )
    value = {"name": "a", "size": 1, "tags": ["x"], "marks": [("k", [b"v"])]}
    rows = pa.table({"nested": pa.array([value] * 200, kind)})
    sink = pa.BufferOutputStream()
    names = dictionary_columns(rows, rows.schema, None)
    pq.write_table(rows, sink, use_dictionary=names)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    encoded = {
        group.column(index).path_in_schema: "RLE_DICTIONARY" in group.column(index).encodings
        for index in range(group.num_columns)
    }
    assert encoded == {
        "nested.name": True,
        "nested.size": False,
        "nested.tags.list.element": True,
        "nested.marks.key_value.key": True,
        "nested.marks.key_value.value.list.element": True,
    }
