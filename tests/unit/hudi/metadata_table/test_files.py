"""Records of the partition `files`: decoding, merging, and the resulting listing."""

from __future__ import annotations

import pytest

from tests.unit.hudi.metadata_table.metadata_builder import SCHEMA_JSON, Files, value
from tidelock.core.errors import DataCorrupt
from tidelock.hudi.metadata_table import (
    ALL_PARTITIONS,
    FileInfo,
    FilesRecord,
    combine_records,
    decode_record,
    list_files_in,
)


def record(files: Files) -> FilesRecord:
    """Return a decoded record."""
    return decode_record(value(files), schema=SCHEMA_JSON, where="f")


def test_record_is_decoded_with_its_writer_schema() -> None:
    # The bytes that Hudi writes: five meta columns, an empty key, type 2, one file.
    plain = bytes.fromhex("000000000000040202") + b"\x12a.parquet" + bytes.fromhex("d00f0000")
    assert plain == value({"a.parquet": 1000})
    assert record({"a.parquet": 1000}) == {"a.parquet": FileInfo(1000)}
    assert record({"a.parquet": None}) == {"a.parquet": FileInfo(0, is_deleted=True)}
    assert record({}) == {}


@pytest.mark.parametrize(
    ("body", "schema"),
    [
        (b"", SCHEMA_JSON),
        (value({"a": 1})[:-2], SCHEMA_JSON),
        (value({"a": 1}) + b"x", SCHEMA_JSON),
        (value({"a": 1}), "no JSON"),
        (value({"a": 1}), '{"type": "record", "name": "r", "fields": []}'),
    ],
    ids=["empty", "cut", "longer", "no schema", "another schema"],
)
def test_invalid_record_is_refused(body: bytes, schema: str) -> None:
    with pytest.raises(DataCorrupt, match=r"f\.hfile"):
        decode_record(body, schema=schema, where="f.hfile")


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 5}, {"a": 3}, {"a": 5}),
        ({"a": 3}, {"a": 5}, {"a": 5}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"b": 2}, {"a": None}, {"a": None, "b": 2}),
        ({"a": None}, {"a": None}, {"a": None}),
        ({"a": None}, {"a": 4}, {"a": 4}),
    ],
    ids=["both", "smaller", "larger", "deleted", "deletion stays", "twice", "again"],
)
def test_records_are_merged_as_in_hudi(older: Files, newer: Files, expected: Files) -> None:
    assert combine_records(record(older), record(newer)) == record(expected)


def test_listing_has_partitions_and_files_without_deleted_ones() -> None:
    listing = list_files_in(
        [
            (ALL_PARTITIONS, record({"p": 0, "q": 0, "gone": None})),
            ("p", record({"a": 1, "b": None})),
            ("q", record({})),
        ]
    )
    assert listing.partitions == {"p", "q"}
    assert listing.sizes == {"p": {"a": 1}, "q": {}}


def test_partition_of_a_flat_table_has_an_empty_name() -> None:
    listing = list_files_in([(ALL_PARTITIONS, record({".": 0})), (".", record({"a": 1}))])
    assert listing.partitions == {""}
    assert listing.sizes == {"": {"a": 1}}
