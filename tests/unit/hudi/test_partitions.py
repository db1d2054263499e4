"""Partition paths and partition metadata files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.core.errors import DataCorrupt, InvalidInput
from tidelock.hudi.partitions import (
    DEFAULT_PARTITION,
    PartitionMetadata,
    decode,
    encode,
    escape_value,
    metadata_for,
    metadata_key,
    partition_path,
    partition_values,
    unescape_value,
)


@pytest.mark.parametrize(
    ("hive_style", "path"), [(True, "byteField=10/shortField=300"), (False, "10/300")]
)
def test_path_has_a_folder_for_each_field(hive_style: bool, path: str) -> None:
    fields = ["byteField", "shortField"]
    assert partition_path(fields, ["10", "300"], hive_style=hive_style) == path
    assert partition_values(fields, path, hive_style=hive_style) == {
        "byteField": "10",
        "shortField": "300",
    }


@pytest.mark.parametrize("value", [None, ""])
def test_null_and_empty_have_the_hive_default_folder(value: str | None) -> None:
    assert partition_path(["p"], [value]) == DEFAULT_PARTITION
    assert partition_path(["p"], [value], hive_style=True) == f"p={DEFAULT_PARTITION}"
    assert partition_values(["p"], DEFAULT_PARTITION) == {"p": None}


def test_flat_table_has_one_partition_with_an_empty_name() -> None:
    assert partition_path([], []) == ""
    assert partition_values([], "") == {}


def test_escaping_matches_hive() -> None:
    assert escape_value("a/b=c:d%e f") == "a%2Fb%3Dc%3Ad%25e f"
    assert escape_value("\n\x7f\"#'*?\\{[]^") == "%0A%7F%22%23%27%2A%3F%5C%7B%5B%5D%5E"
    assert escape_value("ü}-_.~!$&(),;<>@`|+") == "ü}-_.~!$&(),;<>@`|+"


def test_slash_in_a_value_is_refused_unless_encoded() -> None:
    with pytest.raises(InvalidInput, match="partition field p: 'a/b'"):
        partition_path(["p"], ["a/b"])
    assert partition_path(["p"], ["a/b"], url_encode=True) == "a%2Fb"


def test_nested_folders_can_be_enabled() -> None:
    assert partition_path(["ts"], ["2024/01/15/10"], nested=True) == "2024/01/15/10"
    assert partition_values(["ts"], "2024/01/15/10") is None


@pytest.mark.parametrize("value", ["..", ".", "a//b", "/a", "a/", "a\nb", ".hoodie", ".hoodie/x"])
@pytest.mark.parametrize("nested", [True, False])
def test_value_that_cannot_be_a_folder_is_refused(value: str, nested: bool) -> None:
    with pytest.raises(InvalidInput, match="not a valid folder name"):
        partition_path(["p"], [value], nested=nested)


def test_value_for_each_field_is_required() -> None:
    with pytest.raises(InvalidInput, match=r"expected 2 partition values \(a, b\), got 1"):
        partition_path(["a", "b"], ["x"])


def test_folder_of_another_field_has_no_values() -> None:
    assert partition_values(["p"], "q=1", hive_style=True) is None


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_values_round_trip(value: str) -> None:
    assert unescape_value(escape_value(value)) == value


VALUES = st.one_of(
    st.none(),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
        lambda value: (
            value not in (".", "..", DEFAULT_PARTITION) and not value.startswith(".hoodie")
        )
    ),
)


@given(st.lists(VALUES, min_size=1, max_size=3), st.booleans())
def test_encoded_paths_round_trip(values: list[str | None], hive_style: bool) -> None:
    fields = [f"field{number}" for number in range(len(values))]
    path = partition_path(fields, values, hive_style=hive_style, url_encode=True)
    found = partition_values(fields, path, hive_style=hive_style, url_encode=True)
    assert found == dict(zip(fields, values, strict=True))


def test_java_metadata_file_is_read() -> None:
    body = (
        b"#partition metadata\n#Sun Jul 13 01:01:40 UTC 2025\n"
        b"commitTime=20250713010139392\npartitionDepth=2\n"
    )
    assert decode(body, where="p") == PartitionMetadata("20250713010139392", 2)


@pytest.mark.parametrize(("partition", "depth"), [("", 0), ("a", 1), ("2024/01/15/10", 4)])
def test_metadata_round_trips_with_the_depth_of_the_folder(partition: str, depth: int) -> None:
    metadata = metadata_for(partition, "20250713010139392")
    assert metadata.depth == depth
    assert decode(encode(metadata), where="p") == metadata
    assert metadata_key(partition).removesuffix("/.hoodie_partition_metadata") == (
        partition or ".hoodie_partition_metadata"
    )


@pytest.mark.parametrize(
    "body", [b"", b"commitTime=1\n", b"partitionDepth=1\n", b"commitTime=1\npartitionDepth=x\n"]
)
def test_corrupt_metadata_is_refused_by_name(body: bytes) -> None:
    with pytest.raises(DataCorrupt, match=r"a/b/\.hoodie_partition_metadata"):
        decode(body, where="a/b/.hoodie_partition_metadata")
