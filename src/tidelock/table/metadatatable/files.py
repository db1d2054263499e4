"""The records of the partition `files`: which files each partition of the data table has.

The key of a record is a partition, and its value an Avro `HoodieMetadataRecord` with a map from
file names to sizes. One more record, `__all_partitions__`, has the partitions themselves. A write
adds a record of what it changed, and a reader combines the records of a key, oldest first.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import fastavro

from tidelock.base.errors import DataCorrupt

PARTITION: Final = "files"
"""The partition of the metadata table; readers use the whole only if the table lists this one."""

ALL_PARTITIONS: Final = "__all_partitions__"
FLAT_PARTITION: Final = "."
"""What the partition of a table without partitions is called."""

_FIELD: Final = "filesystemMetadata"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What a record says of a file: its size, or that it is gone."""

    size_bytes: int
    is_deleted: bool = False


FilesRecord = Mapping[str, FileInfo]
"""Files by their names, or of `__all_partitions__` the partitions."""


def decode_record(value: bytes | memoryview, *, schema: str, where: str) -> FilesRecord:
    """Return the files in a value that was written with `schema` (Avro JSON).

    Raises: `DataCorrupt`.
    """
    source = io.BytesIO(value)
    try:
        record: Any = fastavro.schemaless_reader(source, _parsed(schema), None)
        found = {
            name: FileInfo(info["size"], is_deleted=info["isDeleted"])
            for name, info in (record[_FIELD] or {}).items()
        }
    # A parser accepts or raises one type; fastavro raises nearly anything on broken bytes.
    except Exception as error:
        raise DataCorrupt(
            f"{where}: the record is no HoodieMetadataRecord with {_FIELD}: {error!r}"
        ) from error
    if source.tell() != len(value):
        raise DataCorrupt(f"{where}: {len(value) - source.tell()} bytes follow the record")
    return found


@lru_cache(maxsize=16)
def _parsed(schema: str) -> Any:
    """Return a schema to read with. Each block has its text, and it is the same in nearly all."""
    return fastavro.parse_schema(json.loads(schema))


def combine(older: FilesRecord, newer: FilesRecord) -> FilesRecord:
    """Return what two records of one key say together, by Hudi's rule.

    A deletion takes the file's entry away, and stays where there is none: the entry may be in a
    record before both. Of two sizes the larger one counts, since files only grow.
    """
    found = dict(older)
    for name, new in newer.items():
        old = older.get(name)
        if old is None or old.is_deleted:
            found[name] = new
        elif new.is_deleted:
            del found[name]
        else:
            found[name] = FileInfo(max(old.size_bytes, new.size_bytes))
    return found


@dataclass(frozen=True, slots=True)
class FilesListing:
    """The files of a data table, as its metadata table has them."""

    partitions: frozenset[str]
    """The partitions that readers list; that of a flat table is ""."""

    sizes: Mapping[str, Mapping[str, int]]
    """The size of each file, by partition and name."""


def listing_of(records: Iterable[tuple[str, FilesRecord]]) -> FilesListing:
    """Return what all records together list, one for each key. Deleted files are left out."""
    partitions: frozenset[str] = frozenset()
    sizes: dict[str, Mapping[str, int]] = {}
    for key, record in records:
        there = {name: info.size_bytes for name, info in record.items() if not info.is_deleted}
        if key == ALL_PARTITIONS:
            partitions = frozenset(map(_partition, there))
        else:
            sizes[_partition(key)] = there
    return FilesListing(partitions, sizes)


def _partition(key: str) -> str:
    return "" if key == FLAT_PARTITION else key
