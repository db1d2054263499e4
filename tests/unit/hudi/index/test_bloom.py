"""The bloom filter of a footer: its bytes, its rows, and lookups."""

from __future__ import annotations

import base64

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidelock.core.errors import DataCorrupt, Unsupported
from tidelock.hudi.bloom_filter import BloomFilter, BloomShape, decode_filter, encode_filter

SMALL = BloomShape.of(10, 0.01)


def murmur(data: bytes, seed: int) -> int:
    """Return Hadoop's MurmurHash2, one byte at a time, to compare with the columnwise one."""
    m, word = 0x5BD1E995, 0xFFFFFFFF
    value = (seed ^ len(data)) & word
    for at in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & word
        k = (k ^ k >> 24) * m & word
        value = value * m & word ^ k
    left = len(data) % 4
    for back in range(left, 0, -1):
        octet = data[-back] - 256 if data[-back] > 127 else data[-back]
        value ^= octet << 8 * (back - 1) & word
    if left:
        value = value * m & word
    value = (value ^ value >> 13) * m & word
    return value ^ value >> 15


def row_of(keys: list[str], shape: BloomShape) -> bytes:
    """Return the bits of keys in one row, set one by one."""
    row = bytearray((shape.bits + 7) // 8)
    for key in keys:
        value = 0
        for _ in range(shape.hashes):
            value = murmur(key.encode(), value)
            number = value - 2**32 if value >= 2**31 else value
            bit = abs(number) % shape.bits
            row[bit >> 3] |= 1 << (bit & 7)
    return bytes(row)


def filled(keys: list[str], shape: BloomShape = SMALL, entries_max: int = 25) -> BloomFilter:
    """Return a filter with the keys."""
    bloom = BloomFilter(shape, entries_max)
    bloom.add(pa.array(keys, pa.string()))
    return bloom


def test_default_shape_is_hudis() -> None:
    assert BloomShape.of() == BloomShape(bits=2_587_966, hashes=30, entries=60_000)


def test_filter_starts_with_the_bytes_that_spark_writes() -> None:
    bloom = BloomFilter()
    bloom.add(pa.array(["a", "b", "c", "d"]))
    text = encode_filter(bloom)
    assert len(text) == 431_380
    assert text.startswith("/////wAAAB4BACd9PgAA6mAAAAAEAAAAAf////8AAAAeAQAnfT4A")


@pytest.mark.parametrize(
    "keys",
    [
        [""],
        ["a", "ab", "abc", "abcd", "abcde"],
        ["é", "日本", "😀!", "\x7f\x80ÿ"],
        ["c8abbe79-8d89-47ea-b4ce-4d224bae5bfa", "id:1,name:x", "7"],
    ],
)
def test_bits_match_hadoops_murmur_hash(keys: list[str]) -> None:
    assert filled(keys).rows == [row_of(keys, SMALL)]


def test_new_row_starts_when_a_row_is_full() -> None:
    keys = [f"key-{i}" for i in range(15)]
    bloom = filled(keys)
    assert bloom.rows == [row_of(keys[:10], SMALL), row_of(keys[10:], SMALL)]
    assert bloom.in_row == 5


def test_keys_beyond_the_last_row_wrap_around() -> None:
    # Three rows hold 30 of at most 25 keys, so there is no fourth.
    keys = [f"key-{i}" for i in range(35)]
    bloom = filled(keys)
    shares = [keys[:10], keys[10:20], keys[20:30]]
    # As in Java: the first excess key goes to row 0, and then the rotation starts at row 0.
    for key, number in zip(keys[30:], (0, 0, 1, 2, 0), strict=True):
        shares[number].append(key)
    assert bloom.rows == [row_of(share, SMALL) for share in shares]
    assert bloom.in_row == 15


def test_batch_size_of_added_keys_makes_no_difference() -> None:
    keys = [f"key-{i}" for i in range(47)]
    encoded = encode_filter(filled(keys))
    for size in (1, 3, 10, 46):
        bloom = BloomFilter(SMALL, 25)
        for start in range(0, len(keys), size):
            bloom.add(pa.array(keys[start : start + size]))
        assert encode_filter(bloom) == encoded


def test_added_key_is_found_and_most_others_are_not() -> None:
    keys = [f"key-{i}" for i in range(1_000)]
    bloom = BloomFilter()
    bloom.add(pa.array(keys))
    found = decode_filter(encode_filter(bloom), where="f")
    assert pc.all(found.might_contain(pa.array(keys))).as_py()
    strangers = pa.array([f"other-{i}" for i in range(1_000)])
    assert not pc.any(found.might_contain(strangers)).as_py()


def test_empty_filter_contains_nothing() -> None:
    bloom = BloomFilter(SMALL)
    bloom.add(pa.array([], pa.string()))
    assert bloom.might_contain(pa.array(["a", ""])).to_pylist() == [False, False]
    assert len(bloom.might_contain(pa.array([], pa.string()))) == 0


def test_filter_round_trips_through_text() -> None:
    bloom = filled([f"key-{i}" for i in range(15)])
    found = decode_filter(encode_filter(bloom), where="f")
    assert (found.shape, found.rows, found.in_row) == (bloom.shape, bloom.rows, bloom.in_row)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not base64!",
        encode_filter(BloomFilter(SMALL))[:-8],
        encode_filter(BloomFilter(SMALL)) + "AAAA",
        base64.b64encode(bytes(40)).decode(),
    ],
)
def test_invalid_text_is_corrupt(text: str) -> None:
    with pytest.raises(DataCorrupt, match=r"part/f\.parquet"):
        decode_filter(text, where="part/f.parquet")


def test_unsupported_filter_type_is_reported() -> None:
    with pytest.raises(Unsupported, match="SIMPLE"):
        decode_filter("", kind="SIMPLE", where="f")
