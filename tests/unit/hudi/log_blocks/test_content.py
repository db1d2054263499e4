"""The content of blocks: records, Parquet files, and deletes with every kind of ordering value."""

from __future__ import annotations

import struct
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.unit.hudi.table_builder import encode_records
from tidelock.core.errors import DataCorrupt, InvalidInput, RecordFromFuture
from tidelock.hudi.log_blocks import (
    NATURAL,
    DeleteRecord,
    Ordering,
    decode_deletes,
    decode_parquet,
    decode_records,
    encode_deletes,
    encode_parquet,
)


def test_records_round_trip() -> None:
    records = [b"one", b"", b"three"]
    assert [bytes(r) for r in decode_records(encode_records(records), where="f")] == records


@pytest.mark.parametrize("cut", range(1, 20))
def test_truncated_records_are_corrupt(cut: int) -> None:
    content = encode_records([b"one", b"two"])
    with pytest.raises(DataCorrupt, match=r"a\.log"):
        decode_records(content[:-cut], where="a.log")


def test_bytes_after_the_last_record_are_corrupt() -> None:
    with pytest.raises(DataCorrupt, match="the lengths of 1 records do not match"):
        decode_records(encode_records([b"one"]) + b"!", where="a.log")


def test_count_that_cannot_fit_is_corrupt_before_any_record_is_read() -> None:
    content = struct.pack(">iii", 3, 2**31 - 1, -4)
    with pytest.raises(DataCorrupt, match="lengths of 2147483647 records do not match"):
        decode_records(content, where="a.log")


@pytest.mark.parametrize(("version", "error"), [(4, RecordFromFuture), (2, DataCorrupt)])
def test_content_of_another_version_is_refused(version: int, error: type[Exception]) -> None:
    content = struct.pack(">ii", version, 0)
    with pytest.raises(error, match=f"version.* {version}"):
        decode_records(content, where="a.log")
    with pytest.raises(error, match=f"version.* {version}"):
        decode_deletes(content, where="a.log")


def test_parquet_block_returns_the_requested_columns_that_it_has() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None], "c": [0.5, 1.5]})
    content = encode_parquet(table)
    assert decode_parquet(content, where="f").equals(table)
    some = decode_parquet(content, columns=["c", "absent", "a"], where="f")
    assert some.column_names == ["c", "a"]


def test_truncated_parquet_block_is_corrupt() -> None:
    content = encode_parquet(pa.table({"a": [1]}))
    with pytest.raises(DataCorrupt, match=r"a\.log"):
        decode_parquet(content[:-3], where="a.log")


# The branch of the wrapper in the union, and the value, as Avro writes them.
WRAPPED = [
    (None, "00"),
    (NATURAL, "04 00"),
    (Ordering("Boolean", True), "02 01"),
    (Ordering("Int", -1), "04 01"),
    (Ordering("Long", 10), "06 14"),
    (Ordering("Float", 1.5), "08 0000c03f"),
    (Ordering("Double", 1.5), "0a 000000000000f83f"),
    (Ordering("Bytes", b"\xff"), "0c 02ff"),
    (Ordering("String", "ab"), "0e 046162"),
    (Ordering("Date", 1), "10 02"),
    (Ordering("Decimal", Decimal("0.000000000000001")), "12 0201"),
    (Ordering("TimeMicros", 2), "14 04"),
    (Ordering("TimestampMicros", 3), "16 06"),
    (Ordering("Array", (Ordering("Long", 1), None)), "18 04 0602 00 00"),
]


@pytest.mark.parametrize(("ordering", "bytes_"), WRAPPED)
def test_each_ordering_value_has_its_branch_in_the_union(
    ordering: Ordering | None, bytes_: str
) -> None:
    delete = DeleteRecord("k", None, ordering)
    content = encode_deletes([delete])
    body = bytes.fromhex("02 02 02 6b 00" + bytes_ + "00")
    assert content == struct.pack(">ii", 3, len(body)) + body
    assert decode_deletes(content, where="f") == [delete]


def test_delete_is_in_natural_order_by_default() -> None:
    assert DeleteRecord("k", "p").ordering == Ordering("Int", 0)


def test_ordering_value_out_of_range_for_its_wrapper_is_refused() -> None:
    with pytest.raises(InvalidInput, match="invalid ordering value"):
        encode_deletes([DeleteRecord("k", "p", Ordering("Long", "ten"))])


@pytest.mark.parametrize("cut", range(1, 12))
def test_truncated_deletes_are_corrupt(cut: int) -> None:
    content = encode_deletes([DeleteRecord("key", "part")])
    with pytest.raises(DataCorrupt, match=r"a\.log"):
        decode_deletes(content[:-cut], where="a.log")


def test_unknown_union_branch_is_corrupt() -> None:
    body = bytes.fromhex("02 02 02 6b 00 40 00 00")
    with pytest.raises(DataCorrupt, match="cannot be parsed"):
        decode_deletes(struct.pack(">ii", 3, len(body)) + body, where="a.log")
