"""HFiles as Hudi writes them are read, and corrupt ones are rejected."""

from __future__ import annotations

import struct

import pytest

from tests.unit.hudi.metadata_table.metadata_builder import hfile
from tidelock.core.errors import DataCorrupt, Unsupported
from tidelock.hudi.hfile import TRAILER_BYTES, Codec, open_hfile

ENTRIES = {f"p={n:03}": f"value {n}".encode() * n for n in range(40)}
MINIMAL = (
    b"DATABLK*" + bytes.fromhex("0000003800000034ffffffffffffffff000000400000000055")
    # key, family, timestamp, type; value; version
    + bytes.fromhex("0000001e0000000d0012") + b"__all_partitions__"
    + bytes.fromhex("007fffffffffffffff04") + bytes.fromhex("00000000000002020000000000")
    + bytes.fromhex("00" "00000000")
    + b"IDXROOT2" + bytes.fromhex("0000002500000021ffffffffffffffff000000400000000042")
    + bytes.fromhex("000000000000000000000059140012") + b"__all_partitions__" + bytes(4)
    + b"IDXROOT2" + bytes.fromhex("0000000400000000ffffffffffffffff000000400000000021") + bytes(4)
    + b"FILEINF2" + bytes.fromhex("0000001700000013ffffffffffffffff000000400000000034")
    + b"PBUF\x0d\x0a\x0b\x0a\x06schema\x12\x01S" + bytes(5)
)  # fmt: skip


def opened(body: bytes) -> dict[str, bytes]:
    """Return the entries of an HFile."""
    found = open_hfile(body, where="f.hfile").entries()
    return {key.decode(): bytes(value) for key, value in found}


def test_file_is_read_byte_for_byte_as_specified() -> None:
    trailer = b'TRABLK"$' + bytes.fromhex("1508c401105918342801300038014001")
    trailer += bytes.fromhex("480050006002")
    file = open_hfile(MINIMAL + trailer.ljust(4092, b"\0") + b"\0\0\0\3", where="f")
    assert file.info == {"schema": b"S"}
    assert file.codec is Codec.NONE
    ((key, value),) = file.entries()
    assert key == b"__all_partitions__"
    assert bytes(value) == bytes.fromhex("00000000000002020000000000")


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("per_block", [1, 7, 100])
def test_entries_round_trip_with_any_block_size(codec: Codec, per_block: int) -> None:
    assert opened(hfile(ENTRIES, codec=codec, per_block=per_block)) == ENTRIES


@pytest.mark.parametrize("codec", Codec)
def test_file_without_entries_is_empty(codec: Codec) -> None:
    assert opened(hfile({}, codec=codec)) == {}


@pytest.mark.parametrize("size", [125, 126, 127, 300, 32_767])
def test_long_keys_are_read(size: int) -> None:
    assert opened(hfile({"k" * size: b"v"})) == {"k" * size: b"v"}


def test_hudi_1_1_index_with_long_keys_is_reported() -> None:
    body = hfile({"k" * 126: b"v"}, protobuf_lengths=True)
    with pytest.raises(DataCorrupt, match=r"f\.hfile: a key of") as raised:
        opened(body)
    assert "Hudi 1.1" in (raised.value.hint or "")


def test_keys_out_of_order_are_refused() -> None:
    with pytest.raises(DataCorrupt, match="b'a' after b'b'"):
        opened(hfile({"b": b"", "a": b""}))


def test_entry_count_that_differs_from_the_trailer_is_refused() -> None:
    with pytest.raises(DataCorrupt, match="expected 41 entries, found 40"):
        opened(hfile(ENTRIES, trailing={7: 41}))


def test_blocks_missing_from_the_index_are_detected() -> None:
    with pytest.raises(DataCorrupt, match="follow the index of 1 blocks"):
        opened(hfile(ENTRIES, per_block=20, trailing={5: 1}))


def test_index_with_another_key_is_refused() -> None:
    body = hfile({"a": b"", "b": b""}, codec=Codec.NONE)
    at = body.index(b"IDXROOT2")
    wrong = body[:at] + body[at:].replace(b"\x00\x01a", b"\x00\x01b", 1)
    with pytest.raises(DataCorrupt, match="expected the block to begin with b'b'"):
        opened(wrong)


def test_other_versions_codecs_and_deep_indexes_are_refused() -> None:
    body = hfile(ENTRIES)
    with pytest.raises(Unsupported, match="found 2"):
        opened(body[:-1] + b"\2")
    with pytest.raises(Unsupported, match="codec 6"):
        opened(hfile(ENTRIES, trailing={12: 6}))
    with pytest.raises(Unsupported, match="one level, found 2"):
        opened(hfile(ENTRIES, levels=2))


def test_minor_version_in_the_trailer_is_accepted() -> None:
    body = hfile(ENTRIES)
    assert opened(body[:-4] + b"\3\0\0\3") == ENTRIES


@pytest.mark.parametrize("codec", Codec)
def test_file_truncated_anywhere_is_refused(codec: Codec) -> None:
    body = hfile(ENTRIES, codec=codec)
    for size in (0, 7, 100, TRAILER_BYTES - 1, TRAILER_BYTES, len(body) - 1):
        with pytest.raises(DataCorrupt, match=r"f\.hfile"):
            opened(body[:size])


def test_damaged_block_is_reported_with_its_position() -> None:
    body = bytearray(hfile(ENTRIES))
    struct.pack_into(">i", body, 12, 5)
    with pytest.raises(DataCorrupt, match=r"f\.hfile at byte 0: the block does not decompress"):
        opened(bytes(body))
    body[40:60] = bytes(20)
    with pytest.raises(DataCorrupt, match=r"f\.hfile at byte 0"):
        opened(bytes(body))
