"""The data files of a table, by listing its folders.

A table may have a metadata table of Hudi's, which lists the same files. Listing the folders is
right with and without it: the metadata table only ever knows what the folders have, and what a
writer without it added is in the folders alone. It costs a request per thousand objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tidelock.store.contract import ObjectMeta, ObjectStore
from tidelock.table.filegroup.view import DataFile
from tidelock.table.naming import data_file
from tidelock.table.partition import METADATA_NAME

_OWN: Final = ".hoodie/"
# Above every name in the table's own folder, and below every other key.
_AFTER_OWN: Final = ".hoodie/~"


def list_files(
    store: ObjectStore, *, partitioned: bool, partitions: Iterable[str] | None = None
) -> tuple[DataFile, ...]:
    """Return the data files of a table, or of some of its partitions.

    In a partitioned table files beside the partition folders are not rows; in a flat table those
    in folders are not. Files with other names than Hudi's belong to somebody else.
    """
    found = []
    for partition, name, size_bytes in _entries(
        store, partitioned=partitioned, partitions=partitions
    ):
        file = data_file(partition, name, size_bytes)
        if file is not None:
            found.append(file)
    return tuple(found)


def list_partitions(store: ObjectStore) -> tuple[str, ...]:
    """Return the partitions of a partitioned table: the folders that say that they are one."""
    marked = (
        partition
        for partition, name, _ in _entries(store, partitioned=True, partitions=None)
        if name == METADATA_NAME
    )
    return tuple(sorted(marked))


def _entries(
    store: ObjectStore, *, partitioned: bool, partitions: Iterable[str] | None
) -> Iterator[tuple[str, str, int]]:
    """Yield partition, name and size of what lies where data files may lie."""
    wanted = None if partitions is None else frozenset(partitions)
    if wanted is None or not partitioned:
        metas = _outside_own(store)
    else:
        metas = (meta for each in sorted(wanted) for meta in store.list(f"{each}/"))
    for meta in metas:
        partition, _, name = meta.key.rpartition("/")
        if wanted is not None and partition not in wanted:
            continue
        # A folder with a .hoodie of its own is another table.
        if bool(partition) == partitioned and "/.hoodie/" not in meta.key:
            yield partition, name, meta.size_bytes


def _outside_own(store: ObjectStore) -> Iterator[ObjectMeta]:
    """List everything but the table's own folder, which may have far more objects than rows."""
    for meta in store.list(""):
        if meta.key.startswith(_OWN):
            yield from store.list("", start_after=_AFTER_OWN)
            return
        yield meta
