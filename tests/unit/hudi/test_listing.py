"""Listing of data files in partitions, or in the base path of a flat table."""

from __future__ import annotations

import pytest

from tests.unit.doubles import ScriptedStore
from tests.unit.hudi.table_builder import base, log
from tidelock.hudi.partitions import list_files, list_partitions
from tidelock.storage.contract import Create, ObjectMeta
from tidelock.storage.memory import MemoryStore


def store_of(*keys: str) -> MemoryStore:
    store = MemoryStore()
    for key in keys:
        store.put(key, b"12345", Create())
    return store


def keys(found: tuple[object, ...]) -> set[str]:
    return {each.key for each in found}  # type: ignore[attr-defined]


def test_partitioned_table_has_its_files_in_folders() -> None:
    expected = [base("f", 1, "a=1"), log("f", 2, "a=1"), base("g", 1, "2024/01/15/10")]
    store = store_of(*expected, base("stray", 1, ""))
    found = list_files(store, partitioned=True)
    assert keys(found) == set(expected)
    assert {each.size_bytes for each in found} == {5}


def test_flat_table_has_its_files_in_the_base_path() -> None:
    expected = [base("f", 1, ""), log("0f", 2, ""), log("zf", 2, "")]
    store = store_of(*expected, base("stray", 1, "folder"))
    assert keys(list_files(store, partitioned=False)) == set(expected)
    assert keys(list_files(store, partitioned=False, partitions=[""])) == set(expected)


@pytest.mark.parametrize(
    "key",
    [
        ".hoodie/hoodie.properties",
        ".hoodie/metadata/files/files-0000-0_0-1-1_20250101000000001.parquet",
        f".hoodie/.temp/20250101000000001/{base('f', 1)}",
        f"a=1/.hoodie/metadata/{base('f', 1, '')}",
        "a=1/.hoodie_partition_metadata",
        "a=1/_SUCCESS",
        "a=1/.f.parquet.crc",
        "a=1/part-0000.parquet",
    ],
)
def test_other_objects_are_ignored(key: str) -> None:
    store = store_of(key)
    assert list_files(store, partitioned=True) == ()
    assert list_files(store, partitioned=False) == ()


def test_only_requested_partitions_are_listed() -> None:
    store = store_of(base("f", 1, "a"), base("f", 1, "a/b"), base("f", 1, "ab"), base("f", 1, "c"))
    found = list_files(store, partitioned=True, partitions=["a", "c", "none"])
    assert keys(found) == {base("f", 1, "a"), base("f", 1, "c")}


def test_partition_named_like_a_hudi_folder_is_a_partition() -> None:
    expected = {base("f", 1, "metadata"), base("f", 1, ".hidden"), base("f", 1, "zz")}
    assert keys(list_files(store_of(*expected), partitioned=True)) == expected


def test_table_metadata_folder_is_skipped() -> None:
    store = store_of(base("f", 1, "+a"), base("f", 1, "b"), *(f".hoodie/{n}" for n in range(50)))
    listed: list[ObjectMeta] = []

    class Counting(ScriptedStore):
        def list(self, prefix: str, *, start_after: str = ""):  # type: ignore[no-untyped-def]
            for meta in self.inner.list(prefix, start_after=start_after):
                listed.append(meta)
                yield meta

    assert len(list_files(Counting(store), partitioned=True)) == 2
    assert len(listed) == 3


def test_partitions_are_folders_with_a_partition_metadata_file() -> None:
    store = store_of(
        "b/.hoodie_partition_metadata", "a/c/.hoodie_partition_metadata", base("f", 1, "unmarked")
    )
    assert list_partitions(store) == ("a/c", "b")
