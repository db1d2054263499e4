"""Markers: record which data files a running write may create, so that a rollback finds them.

A marker is an empty object created before its data file. Java writers may instead use a server that
collects the same lines in a few files (`MARKERS0`, `MARKERS1`, ...). Both kinds are read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelock.core.errors import DataCorrupt
from tidelock.storage.contract import ObjectStore

TEMP_FOLDER: Final = ".hoodie/.temp"
_TYPE_NAME: Final = "MARKERS.type"
_SERVER_FILE: Final = re.compile(r"MARKERS\d+")
_MARKER: Final = re.compile(r"(?:(.+)/)?([^/]+)\.marker\.([A-Z]+)")


class IoType(StrEnum):
    """How the write uses the file."""

    CREATE = "CREATE"  # a new file: the first base file of a group, or a log file
    MERGE = "MERGE"  # a new base file of an existing group
    APPEND = "APPEND"  # tables of version 6 only


@dataclass(frozen=True, slots=True, order=True)
class Marker:
    """The marker of one data file."""

    partition: str
    name: str
    io_type: IoType

    @property
    def path(self) -> str:
        """The path of the marker, relative to the write's marker folder."""
        file = f"{self.name}.marker.{self.io_type}"
        return f"{self.partition}/{file}" if self.partition else file

    @property
    def data_key(self) -> str:
        """The key of the data file, relative to the table's base path."""
        return f"{self.partition}/{self.name}" if self.partition else self.name

    def key(self, instant: str) -> str:
        """Return the key of the marker for a write requested at `instant`."""
        return f"{marker_folder(instant)}{self.path}"


def marker_folder(instant: str) -> str:
    """Return the prefix of all markers of a write."""
    return f"{TEMP_FOLDER}/{instant}/"


def parse_marker(path: str) -> Marker | None:
    """Parse the path of a marker below the write's folder; None if it is not a marker."""
    found = _MARKER.fullmatch(path)
    if found is None or found[3] not in IoType.__members__:
        return None
    return Marker(found[1] or "", found[2], IoType(found[3]))


def read_markers(store: ObjectStore, instant: str) -> frozenset[Marker]:
    """Return all markers of a write, of both kinds.

    Raises: `DataCorrupt` for an unknown entry: the data file it stands for would be missed.
    """
    folder = marker_folder(instant)
    markers: set[Marker] = set()
    for meta in store.list(folder):
        path = meta.key.removeprefix(folder)
        if _SERVER_FILE.fullmatch(path):
            markers |= _read_collected(store, meta.key)
        elif marker := parse_marker(path):
            markers.add(marker)
        elif path != _TYPE_NAME and not path.endswith(".crc"):
            raise DataCorrupt(
                f"{meta.key} is not a marker", hint="inspect it before rolling back this write"
            )
    return frozenset(markers)


def _read_collected(store: ObjectStore, key: str) -> set[Marker]:
    found = store.get(key)
    markers: set[Marker] = set()
    for line in found.body.decode("utf-8", "replace").splitlines() if found else ():
        marker = parse_marker(line)
        if marker is not None:
            markers.add(marker)
        elif line:
            raise DataCorrupt(f"{key}: {line!r} is not a marker")
    return markers
