"""The framing of a log block, compared with bytes from Hudi's Java writers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.unit.hudi.table_builder import rollback_block
from tidelock.core.errors import DataCorrupt, InvalidInput, RecordFromFuture
from tidelock.hudi import log_blocks as blocks
from tidelock.hudi.log_blocks import (
    Block,
    BlockType,
    DeleteRecord,
    Header,
    avro_block,
    delete_block,
    encode_block,
    log_bytes,
    parse_log,
)
from tidelock.hudi.schema import avro_schema, render_schema, with_meta

TRANSACTIONS = with_meta(
    pa.schema(
        [
            ("txn_id", pa.string()),
            ("account_id", pa.string()),
            ("txn_ts", pa.int64()),
            ("txn_datetime", pa.timestamp("us", tz="UTC")),
            ("txn_date", pa.date32()),
            ("amount", pa.decimal128(15, 2)),
            ("currency", pa.string()),
            ("txn_type", pa.string()),
            ("merchant_name", pa.string()),
            ("is_international", pa.bool_()),
            ("fee_amount", pa.decimal128(10, 2)),
            ("txn_metadata", pa.string()),
            ("region", pa.string()),
        ]
    )
)
TRIPS = with_meta(
    pa.schema(
        [
            ("ts", pa.int64()),
            ("uuid", pa.string()),
            ("rider", pa.string()),
            ("driver", pa.string()),
            ("fare", pa.float64()),
            ("city", pa.string()),
        ]
    )
)
TRIP_KEY = "c8abbe79-8d89-47ea-b4ce-4d224bae5bfa"
TRIP = {
    "_hoodie_commit_time": "20251220210127080",
    "_hoodie_commit_seqno": "20251220210127080_0_16",
    "_hoodie_record_key": TRIP_KEY,
    "_hoodie_partition_path": "city=chennai",
    "_hoodie_file_name": "6e1d5cc4-c487-487d-abbe-fe9b30b1c0cc-0",
    "ts": 1695115999911,
    "uuid": TRIP_KEY,
    "rider": "rider-J",
    "driver": "driver-T",
    "fare": 0.0,
    "city": "chennai",
}
# The content of the log file that Spark wrote for this trip: version 3, one record, 217 bytes.
TRIP_CONTENT = bytes.fromhex(
    "00000003 00000001 000000d9"
    "0222 3230323531323230323130313237303830"
    "022c 32303235313232303231303132373038305f305f3136"
    "0248 63386162626537392d386438392d343765612d623463652d346432323462616535626661"
    "0218 636974793d6368656e6e6169"
    "024c 36653164356363342d633438372d343837642d616262652d6665396233306231633063632d30"
    "02 ceeacbccd562"
    "0248 63386162626537392d386438392d343765612d623463652d346432323462616535626661"
    "020e 72696465722d4a 0210 6472697665722d54 02 0000000000000000 020e 6368656e6e6169"
)


def test_delete_log_has_the_bytes_that_spark_wrote() -> None:
    schema = avro_schema(TRANSACTIONS, table="v9_txns_mor_simple_nometa")
    block = delete_block(
        [DeleteRecord("TXN-002", "region=us")], instant="20260307135832616", schema=schema
    )
    data = log_bytes([block])
    text = render_schema(schema).encode()
    assert len(text) == 0x6B9
    assert data == (
        bytes.fromhex("234855444923 000000000000071a 00000001 00000001 00000002")
        + bytes.fromhex("00000000 00000011")
        + b"20260307135832616"
        + bytes.fromhex("00000002 000006b9")
        + text
        + bytes.fromhex("0000000000000020 00000003 00000018")
        + bytes.fromhex("02 020e 54584e2d303032 0212 726567696f6e3d7573 0400 00")
        + bytes.fromhex("00000000 0000000000000720")
    )
    assert len(data) == 1832


def test_data_log_has_the_bytes_that_spark_wrote() -> None:
    schema = avro_schema(TRIPS, table="v8_trips_8i3u1d")
    table = pa.Table.from_pylist([TRIP], schema=TRIPS)
    ours = avro_block(table, instant="20251220210127080", schema=schema)
    assert ours.content == TRIP_CONTENT
    # Hudi 1.0 put the schema before the instant; the order of headers is free.
    swapped = Block(ours.type, dict(reversed(list(ours.headers.items()))), ours.content)
    data = encode_block(swapped)
    assert len(data) == 1141
    assert data[:34].hex() == (
        "23485544492300000000000004670000000100000003000000020000000200000341"
    )
    assert data[-249:-241].hex() == "00000000000000e5"
    assert data[-12:].hex() == "00000000000000000000046d"


def test_headers_keep_their_order_so_that_bytes_round_trip() -> None:
    for headers in ({0: "1", 2: "{}"}, {2: "{}", 0: "1"}, {}, {8: "é", 77: ""}):
        data = encode_block(Block(BlockType.PARQUET, headers, b"content", {1: "foot"}))
        (found,) = parse_log(data, where="f")
        assert isinstance(found, Block)
        assert list(found.headers.items()) == list(headers.items())
        assert (found.type, bytes(found.content)) == (BlockType.PARQUET, b"content")
        assert encode_block(found) == data


def test_rollback_command_names_its_target_and_has_no_content() -> None:
    block = rollback_block(instant="5", target="3")
    assert (block.type, block.content, block.instant) == (BlockType.COMMAND, b"", "5")
    assert block.headers[Header.TARGET_INSTANT_TIME] == "3"
    assert block.headers[Header.COMMAND_BLOCK_TYPE] == "0"


def test_block_larger_than_java_reads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", 100)
    encode_block(Block(BlockType.AVRO, {}, bytes(100 - 32)))
    with pytest.raises(InvalidInput, match="several blocks"):
        encode_block(Block(BlockType.AVRO, {}, bytes(100 - 31)))


def frame(*parts: str) -> bytes:
    """Return a block with a valid frame around the given content."""
    inside = bytes.fromhex("".join(parts))
    size = len(inside) + 8
    return b"#HUDI#" + size.to_bytes(8, "big") + inside + (size + 6).to_bytes(8, "big")


def test_block_of_a_newer_log_format_asks_for_a_newer_release() -> None:
    data = frame("00000002", "00000003", "00000000", "0000000000000000", "00000000")
    with pytest.raises(RecordFromFuture, match=r"a\.log at byte 0.*version .*2"):
        list(parse_log(data, where="a.log"))


@pytest.mark.parametrize(
    "inside",
    [
        ("00000001", "00000009", "00000000", "0000000000000000", "00000000"),
        ("00000001", "00000003", "00000001", "00000000", "0000ffff", "00000000"),
        ("00000001", "00000003", "00000000", "00000000000000ff", "00000000"),
        ("00000001", "00000003", "00000000", "ffffffffffffffff", "00000000"),
        ("00000001", "00000003", "00000000", "0000000000000000", "00000000", "ee"),
        ("00000001", "00000003", "7fffffff", "0000000000000000", "00000000"),
        ("00000001", "00000003", "00000001", "00000000", "00000001", "ff", "00" * 12),
    ],
    ids=["type", "header", "content", "negative", "stray", "count", "text"],
)
def test_content_that_contradicts_its_frame_is_corrupt(inside: tuple[str, ...]) -> None:
    with pytest.raises(DataCorrupt, match=r"a\.log at byte 0"):
        list(parse_log(frame(*inside), where="a.log"))
