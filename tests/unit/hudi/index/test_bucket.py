"""Java's hashes, and the buckets and file groups derived from them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelock.core.errors import DataCorrupt, InvalidInput
from tidelock.hudi.bucket_index import (
    bucket_file_id,
    bucket_ids,
    bucket_of,
    fixed_file_id,
    key_parts,
    list_hashes,
    string_hashes,
)

UUID = "c8abbe79-8d89-47ea-b4ce-4d224bae5bfa"


def signed(hashes: pa.Array) -> list[int]:
    """Return hashes as Java's signed integers."""
    return [value - 2**32 if value >= 2**31 else value for value in hashes.to_pylist()]


@pytest.mark.parametrize(
    ("key", "list_hash", "of_8"), [("1", 80, 0), ("TXN-001", -166313907, 5), (UUID, -117635262, 2)]
)
def test_bucket_of_a_key_matches_java(key: str, list_hash: int, of_8: int) -> None:
    keys = pa.array([key])
    assert signed(list_hashes([keys])) == [list_hash]
    assert bucket_ids([keys], 8).to_pylist() == [of_8]


def test_larger_bucket_counts_and_several_fields_match_java() -> None:
    keys, accounts = pa.array(["TXN-001"]), pa.array(["ACC-A"])
    assert bucket_ids([keys], 256).to_pylist() == [77]
    assert signed(list_hashes([keys, accounts])) == [-798673112]
    assert bucket_ids([keys, accounts], 8).to_pylist() == [0]


def test_characters_count_as_utf_16_code_units() -> None:
    # "é" is one unit (0xe9); "😀" is two (0xd83d, 0xde00).
    texts = pa.array(["é", "😀", "a😀", ""])
    grin = 31 * 0xD83D + 0xDE00
    assert string_hashes(texts).to_pylist() == [0xE9, grin, ord("a") * 31**2 + grin, 0]


def test_null_hashes_to_zero_unlike_the_empty_list() -> None:
    assert signed(list_hashes([pa.array([None, ""], pa.string())])) == [31, 31]


def test_slice_hashes_as_its_own_strings() -> None:
    texts = pa.array(["x", "TXN-001", "y", "é"])
    assert string_hashes(texts.slice(1, 2)).equals(string_hashes(pa.array(["TXN-001", "y"])))
    assert len(string_hashes(texts.slice(0, 0))) == 0


def test_batch_size_does_not_change_the_hashes() -> None:
    texts = [f"key-{i}" for i in range(70_000)]
    found = string_hashes(pa.array(texts))
    for at in (0, 32_767, 32_768, 69_999):
        assert found[at].as_py() == string_hashes(pa.array([texts[at]]))[0].as_py()


def test_short_and_long_strings_hash_alike() -> None:
    texts = ["", "a", "k" * 47, "k" * 48, "k" * 49, "x" * 200, "ä" * 5, "ä" * 60]

    def java(text: str) -> int:
        found = 0
        for letter in text:
            found = (31 * found + ord(letter)) % 2**32
        return found

    expected = [java(text) for text in texts]
    assert string_hashes(pa.array(texts)).to_pylist() == expected
    assert [string_hashes(pa.array([text]))[0].as_py() for text in texts] == expected


def test_zero_buckets_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one bucket, got 0"):
        bucket_ids([pa.array(["a"])], 0)


@pytest.mark.parametrize(
    ("key", "fields", "parts"),
    [
        ("plain", ["id"], ["plain"]),
        ("a:1", ["a"], ["a:1"]),
        ("a,b", ["a"], ["a,b"]),
        ("a:1,b:2", ["a", "b"], ["1", "2"]),
        ("a:1,b:2", ["b"], ["2"]),
        ("a:1,b:2", ["c"], ["a:1,b:2"]),
        ("a:__null__,b:__empty__", ["a", "b"], [None, ""]),
        ("a:x,y,b:2", ["a", "b"], ["x,y", "2"]),
        ("a:2014-10-22 13:50:42,b:2", ["a", "b"], ["2014-10-22 13:50:42", "2"]),
        ("b:2,a:13:50:42", ["a", "b"], ["2", "13:50:42"]),
    ],
)
def test_record_key_is_split_as_in_java(
    key: str, fields: list[str], parts: list[str | None]
) -> None:
    assert key_parts(key, fields) == parts


def test_file_ids_contain_their_bucket() -> None:
    assert bucket_file_id(5, UUID) == "00000005-8d89-47ea-b4ce-4d224bae5bfa-0"
    assert fixed_file_id(5) == "00000005-0000-0000-0000-000000000000-0"
    assert bucket_of(bucket_file_id(255, UUID)) == 255
    assert bucket_of(fixed_file_id(0)) == 0


@pytest.mark.parametrize("file_id", [f"{UUID}-0", "", "1234", "00000٣٣٣-x"])
def test_file_group_of_another_index_has_no_bucket(file_id: str) -> None:
    with pytest.raises(DataCorrupt, match="does not belong to a bucket index"):
        bucket_of(file_id)
