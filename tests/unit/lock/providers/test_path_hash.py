"""XXH64 as in Java, and the lock names of Hudi's implicit providers."""

from __future__ import annotations

import pytest

from tidelock.lock.providers.path_hash import hash_of_base_path, xxh64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Published vectors of the algorithm, with a seed of 0.
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"as", 0x1C330FB2D66BE179),
        (b"asdf", 0x415872F599CEA71E),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_hash_is_xxh64(text: bytes, expected: int) -> None:
    assert xxh64(text, seed=0) == expected


@pytest.mark.parametrize(
    ("base_path", "name"),
    [
        # With the seed that Java derives from 0xdabadaba; an unsigned one gives F7727B9A28379071.
        ("Hudi", "B9A47174FD473C0E"),
        ("s3://bucket/table", "4DCF035CB614089C"),
        ("gs://bucket/table", "E7ED6FBF7B41FDA5"),
        ("hdfs://nn:8020/warehouse/t", "507802E6313004ED"),
        ("/tmp/hudi/table", "B4C082A4F9D6182F"),
    ],
)
def test_lock_name_of_a_base_path_matches_hudi(base_path: str, name: str) -> None:
    assert hash_of_base_path(base_path) == name


def test_s3a_and_s3_are_one_table_and_a_trailing_slash_makes_another() -> None:
    plain = hash_of_base_path("s3://bucket/table")
    assert hash_of_base_path("s3a://bucket/table") == plain
    assert hash_of_base_path("S3A://bucket/table") == plain
    assert hash_of_base_path("s3://bucket/table/") == "36A8FBB3C6768429"
