"""Whether folders are what readers expect: marked as partitions, and with nothing else in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelock.base.errors import DataCorrupt
from tidelock.ops.validate.findings import Finding, problem, warning
from tidelock.store.contract import ObjectMeta, ObjectStore
from tidelock.table.filegroup.view import DataFile
from tidelock.table.naming import data_file
from tidelock.table.partition import METADATA_NAME, decode, metadata_for, metadata_key

CHECK = "partitions"

_IN_BASE_FORMAT = f"{METADATA_NAME}.parquet"
_SKIPPED_AT_ROOT = ("metadata", "_delta_log")


def check_folders(
    store: ObjectStore, metas: Sequence[ObjectMeta], listed: Sequence[DataFile]
) -> Iterator[Finding]:
    """Yield what is wrong with the folders that hold data files."""
    partitions = sorted({file.partition for file in listed})
    keys = {meta.key for meta in metas}
    for partition in partitions:
        yield from _check_mark(store, partition, keys)
        if partition.partition("/")[0] in _SKIPPED_AT_ROOT:
            yield problem(
                CHECK,
                partition,
                "readers other than Java's take this folder for another format's, and skip it",
                "give the rows another partition value",
            )
    yield from _check_strangers(metas, set(partitions))


def _check_mark(store: ObjectStore, partition: str, keys: set[str]) -> Iterator[Finding]:
    key = metadata_key(partition)
    if key not in keys:
        if key.removesuffix(METADATA_NAME) + _IN_BASE_FORMAT not in keys:
            yield problem(
                CHECK,
                key,
                "it is missing; Java's readers do not see this partition, and do not say so",
                "write commitTime and partitionDepth into it, as in a partition beside it",
            )
        return
    found = store.get(key)
    if found is None:
        return
    try:
        depth = decode(found.body, where=key).depth
    except DataCorrupt as error:
        yield problem(CHECK, key, error.message.removeprefix(f"{key} "), error.hint)
        return
    expected = metadata_for(partition, "").depth
    if depth != expected:
        yield problem(
            CHECK,
            key,
            f"partitionDepth is {depth}, but the folder lies {expected} below the table",
            f"set partitionDepth={expected}",
        )


def _check_strangers(metas: Sequence[ObjectMeta], partitions: set[str]) -> Iterator[Finding]:
    """Find files that no writer of Hudi's made, and partitions that hold other folders."""
    nested: set[str] = set()
    for meta in metas:
        folder, _, name = meta.key.rpartition("/")
        if folder in partitions and data_file(folder, name, meta.size_bytes) is None:
            yield from _stranger(meta.key, name)
        above = folder.rpartition("/")[0]
        while above:
            nested.add(above)
            above = above.rpartition("/")[0]
    for partition in sorted(nested & partitions):
        yield warning(
            CHECK,
            partition,
            "there are folders inside this partition; some readers then see none of its rows",
            "move them out of the partition",
        )


def _stranger(key: str, name: str) -> Iterator[Finding]:
    if name.endswith(".parquet") and name != _IN_BASE_FORMAT:
        yield warning(
            CHECK,
            key,
            "it is no file of Hudi's; some readers refuse the table because of it",
            "move it out of the table",
        )
    elif name.startswith(".") and ".log." in name and not name.endswith(".crc"):
        yield problem(
            CHECK,
            key,
            "it looks like a log file, but readers pass over its name",
            "its write token must be three numbers: find the writer that made it",
        )
