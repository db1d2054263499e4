"""Partition paths, partition metadata files, and the listing of data files.

Java recognizes a partition only by its `.hoodie_partition_metadata`: it silently ignores folders
without one. So the file is written once, before the first data file of a partition.

Files are listed from the folders, not from Hudi's metadata table. That is correct for every table:
the metadata table never has more files than the folders, and lacks those of writers that do not
update it. A listing costs one request per thousand objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelock.core.errors import DataCorrupt, InvalidInput
from tidelock.core.javaproperties import parse_properties, render_properties
from tidelock.hudi.file_groups import DataFile, data_file
from tidelock.storage.contract import ObjectMeta, ObjectStore

DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose partition value is null or empty."""

METADATA_NAME: Final = ".hoodie_partition_metadata"

# The characters that Hive escapes in a path. Everything else is kept, spaces included.
_ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f]")


def escape_value(value: str) -> str:
    """Escape a value for the path of a table with url-encoded partitions."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value)


def unescape_value(value: str) -> str:
    """Reverse `escape_value`."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), value)


def partition_path(
    fields: Sequence[str],
    values: Sequence[str | None],
    *,
    hive_style: bool = False,
    url_encode: bool = False,
    nested: bool = False,
) -> str:
    """Return the folder of rows with these values: "" for a table without partitions.

    A `/` in a value would be ambiguous, so it is rejected unless it is encoded or the key generator
    makes `nested` folders on purpose (yyyy/MM/dd). A `:` is rejected unless it is encoded.
    Raises: `InvalidInput`.
    """
    if len(fields) != len(values):
        raise InvalidInput(
            f"expected {len(fields)} partition values ({', '.join(fields)}), got {len(values)}"
        )
    parts = []
    for field, value in zip(fields, values, strict=True):
        folder = (escape_value(value) if url_encode else value) if value else DEFAULT_PARTITION
        _check_value(field, folder, nested=nested)
        parts.append(f"{field}={folder}" if hive_style else folder)
    return "/".join(parts)


def _check_value(field: str, folder: str, *, nested: bool) -> None:
    problem = ""
    if _FORBIDDEN.search(folder):
        problem = "it has control characters"
    elif "/" in folder and not nested:
        problem = "it has a '/'"
    elif ":" in folder:
        # Hadoop takes the text before it for a URI scheme, so Java cannot read the partition.
        problem = "it has a ':', which is not allowed in Hadoop paths"
    elif any(part in ("", ".", "..") for part in folder.split("/")):
        problem = "it has an empty, '.' or '..' part"
    elif folder.startswith(".hoodie"):
        problem = "the name is reserved"
    if problem:
        raise InvalidInput(
            f"partition field {field}: {folder!r} is not a valid folder name: {problem}",
            hint="use another value, or create the table with"
            " hoodie.datasource.write.partitionpath.urlencode=true, which escapes '/' and ':'",
        )


def partition_values(
    fields: Sequence[str], path: str, *, hive_style: bool = False, url_encode: bool = False
) -> Mapping[str, str | None] | None:
    """Return the value of each field in a path; None if folders and fields do not correspond.

    They do not for a key generator that makes several folders from one field.
    """
    parts = path.split("/") if path else []
    if len(parts) != len(fields):
        return None
    values: dict[str, str | None] = {}
    for field, part in zip(fields, parts, strict=True):
        if hive_style and not part.startswith(f"{field}="):
            return None
        value = part.removeprefix(f"{field}=") if hive_style else part
        decoded = unescape_value(value) if url_encode else value
        values[field] = None if value == DEFAULT_PARTITION else decoded
    return values


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The commit that created a partition, and its depth below the base path."""

    commit_time: str
    depth: int


def metadata_key(partition: str) -> str:
    """Return the key of a partition's metadata file."""
    return f"{partition}/{METADATA_NAME}" if partition else METADATA_NAME


def metadata_for(partition: str, commit_time: str) -> PartitionMetadata:
    """Return the metadata of a partition created by `commit_time`."""
    return PartitionMetadata(commit_time, len(partition.split("/")) if partition else 0)


def encode(metadata: PartitionMetadata) -> bytes:
    """Encode a partition's metadata file."""
    settings = {"commitTime": metadata.commit_time, "partitionDepth": str(metadata.depth)}
    return render_properties(settings, comments=["partition metadata"]).encode("ascii")


def decode(body: bytes, *, where: str) -> PartitionMetadata:
    """Parse a partition's metadata file. Raises: `DataCorrupt` naming `where`."""
    try:
        settings = parse_properties(body.decode("latin-1"))
        return PartitionMetadata(settings["commitTime"], int(settings["partitionDepth"]))
    except (ValueError, KeyError) as error:
        raise DataCorrupt(
            f"{where}: invalid partition metadata: {error}",
            hint="the file must have commitTime and partitionDepth as Java properties",
        ) from error


def list_files(
    store: ObjectStore, *, partitioned: bool, partitions: Iterable[str] | None = None
) -> tuple[DataFile, ...]:
    """Return the data files of a table, or of some of its partitions.

    Files next to partition folders, or in folders of a non-partitioned table, hold no rows. Files
    with other names than Hudi's are ignored.
    """
    entries = _list_entries(store, partitioned=partitioned, partitions=partitions)
    found = (data_file(*entry) for entry in entries)
    return tuple(file for file in found if file is not None)


def list_partitions(store: ObjectStore) -> tuple[str, ...]:
    """Return the partitions of a partitioned table: the folders with a metadata file."""
    marked = (
        partition
        for partition, name, _ in _list_entries(store, partitioned=True, partitions=None)
        if name == METADATA_NAME
    )
    return tuple(sorted(marked))


def _list_entries(
    store: ObjectStore, *, partitioned: bool, partitions: Iterable[str] | None
) -> Iterator[tuple[str, str, int]]:
    """Yield partition, name and size of objects where data files may be."""
    selected = None if partitions is None else frozenset(partitions)
    if selected is None or not partitioned:
        metas = _list_outside_hoodie(store)
    else:
        metas = (meta for each in sorted(selected) for meta in store.list(f"{each}/"))
    for meta in metas:
        partition, _, name = meta.key.rpartition("/")
        if selected is not None and partition not in selected:
            continue
        # A folder with its own .hoodie is another table.
        if bool(partition) == partitioned and "/.hoodie/" not in meta.key:
            yield partition, name, meta.size_bytes


def _list_outside_hoodie(store: ObjectStore) -> Iterator[ObjectMeta]:
    """List all keys except `.hoodie`, which may have far more objects than the table."""
    for meta in store.list(""):
        if meta.key.startswith(".hoodie/"):
            # Sorts after every key in .hoodie, and before all other keys.
            yield from store.list("", start_after=".hoodie/~")
            return
        yield meta
