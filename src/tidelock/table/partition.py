"""Partition paths, and the file that makes a folder a partition.

Java finds a partition only by its `.hoodie_partition_metadata`: a folder without one has no rows,
and no error. So the file is written before the first data file of a partition, and never again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import DataCorrupt, InvalidInput
from tidelock.base.javaproperties import parse_properties, render_properties

DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose partition value is null or empty."""

METADATA_NAME: Final = ".hoodie_partition_metadata"

# The letters Hive cannot have in a path. Everything else stays as it is, spaces included.
_ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f]")


def escape(value: str) -> str:
    """Return `value` as it stands in a path of a table with url-encoded partitions."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value)


def unescape(value: str) -> str:
    """Return what `escape` was given."""
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

    A `/` in a value would make folders that nobody can tell from fields, so it is refused unless
    it is encoded, or the table's key generator makes `nested` folders on purpose (yyyy/MM/dd). A
    `:` is refused unless it is encoded.
    Raises: `InvalidInput`.
    """
    if len(fields) != len(values):
        raise InvalidInput(f"{len(values)} partition values for the fields {', '.join(fields)}")
    parts = []
    for field, value in zip(fields, values, strict=True):
        shown = (escape(value) if url_encode else value) if value else DEFAULT_PARTITION
        _check_value(field, shown, nested=nested)
        parts.append(f"{field}={shown}" if hive_style else shown)
    return "/".join(parts)


def _check_value(field: str, shown: str, *, nested: bool) -> None:
    problem = ""
    if _FORBIDDEN.search(shown):
        problem = "it has control characters"
    elif "/" in shown and not nested:
        problem = "it has a '/'"
    elif ":" in shown:
        # Hadoop takes what is before it for the scheme of a URI, and Java then reads no partition.
        problem = "it has a ':', which readers on Hadoop's file systems cannot have in a path"
    elif any(part in ("", ".", "..") for part in shown.split("/")):
        problem = "it has an empty, '.' or '..' part"
    elif shown.startswith(".hoodie"):
        problem = "that name is the table's own"
    if problem:
        raise InvalidInput(
            f"{shown!r} of the partition field {field} cannot name a folder: {problem}",
            hint="choose another value, or create the table with"
            " hoodie.datasource.write.partitionpath.urlencode=true, which escapes '/' and ':'",
        )


def partition_values(
    fields: Sequence[str], path: str, *, hive_style: bool = False, url_encode: bool = False
) -> Mapping[str, str | None] | None:
    """Return the value of each field in a path; None where folders and fields do not match up.

    They do not match for a key generator that makes several folders of one field.
    """
    parts = path.split("/") if path else []
    if len(parts) != len(fields):
        return None
    values: dict[str, str | None] = {}
    for field, part in zip(fields, parts, strict=True):
        if hive_style and not part.startswith(f"{field}="):
            return None
        value = part.removeprefix(f"{field}=") if hive_style else part
        shown = unescape(value) if url_encode else value
        values[field] = None if value == DEFAULT_PARTITION else shown
    return values


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Which commit made a partition, and how many folders below the table it lies."""

    commit_time: str
    depth: int


def metadata_key(partition: str) -> str:
    """Return where a partition's metadata file is."""
    return f"{partition}/{METADATA_NAME}" if partition else METADATA_NAME


def metadata_for(partition: str, commit_time: str) -> PartitionMetadata:
    """Return the metadata of a partition that `commit_time` creates."""
    return PartitionMetadata(commit_time, len(partition.split("/")) if partition else 0)


def encode(metadata: PartitionMetadata) -> bytes:
    """Return the bytes of a partition's metadata file."""
    settings = {
        "commitTime": metadata.commit_time,
        "partitionDepth": str(metadata.depth),
    }
    return render_properties(settings, comments=["partition metadata"]).encode("ascii")


def decode(body: bytes, *, where: str) -> PartitionMetadata:
    """Return what a partition's metadata file says. Raises: `DataCorrupt` naming `where`."""
    try:
        settings = parse_properties(body.decode("latin-1"))
        return PartitionMetadata(settings["commitTime"], int(settings["partitionDepth"]))
    except (ValueError, KeyError) as error:
        raise DataCorrupt(
            f"{where} is no partition metadata: {error}",
            hint="it holds commitTime and partitionDepth as Java properties",
        ) from error
