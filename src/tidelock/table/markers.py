"""Markers: which data files a running write may have left, for whoever has to clean up after it.

A marker is an empty object created before its data file. Java writers may instead let one server
collect the same lines in a few files (`MARKERS0`, `MARKERS1`, ...); both kinds are read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelock.base.errors import DataCorrupt
from tidelock.store.contract import ObjectStore

TEMP_FOLDER: Final = ".hoodie/.temp"
_TYPE_NAME: Final = "MARKERS.type"
_COLLECTED: Final = re.compile(r"MARKERS\d+")
_MARKER: Final = re.compile(r"(?:(.+)/)?([^/]+)\.marker\.([A-Z]+)")


class IoType(StrEnum):
    """What the write does with the file."""

    CREATE = "CREATE"  # a file of its own: a first base file, or any log file
    MERGE = "MERGE"  # a new version of a file group that has a base file
    APPEND = "APPEND"  # tables of version 6 only


@dataclass(frozen=True, slots=True, order=True)
class Marker:
    """The announcement of one data file."""

    partition: str
    name: str
    io_type: IoType

    @property
    def path(self) -> str:
        """The marker below its write's folder."""
        file = f"{self.name}.marker.{self.io_type}"
        return f"{self.partition}/{file}" if self.partition else file

    @property
    def data_key(self) -> str:
        """The object it announces, relative to the table's base path."""
        return f"{self.partition}/{self.name}" if self.partition else self.name

    def key(self, instant: str) -> str:
        """Return the marker's own object for a write requested at `instant`."""
        return f"{marker_folder(instant)}{self.path}"


def marker_folder(instant: str) -> str:
    """Return the prefix of all markers of a write."""
    return f"{TEMP_FOLDER}/{instant}/"


def parse_marker(path: str) -> Marker | None:
    """Return the marker at `path` below its write's folder; None if it is none."""
    found = _MARKER.fullmatch(path)
    if found is None or found[3] not in IoType.__members__:
        return None
    return Marker(found[1] or "", found[2], IoType(found[3]))


def read_markers(store: ObjectStore, instant: str) -> frozenset[Marker]:
    """Return every marker of a write, of both kinds.

    Raises: `DataCorrupt` for a collected line that is no marker: what it announced would be left.
    """
    folder = marker_folder(instant)
    markers: set[Marker] = set()
    for meta in store.list(folder):
        path = meta.key.removeprefix(folder)
        if _COLLECTED.fullmatch(path):
            markers |= _collected(store, meta.key)
        elif marker := parse_marker(path):
            markers.add(marker)
        elif path != _TYPE_NAME and not path.endswith(".crc"):
            raise DataCorrupt(
                f"{meta.key} is no marker", hint="look what it is before rolling back this write"
            )
    return frozenset(markers)


def _collected(store: ObjectStore, key: str) -> set[Marker]:
    found = store.get(key)
    lines = found.body.decode("utf-8", "replace").splitlines() if found else []
    markers = {line: parse_marker(line) for line in lines if line}
    for line, marker in markers.items():
        if marker is None:
            raise DataCorrupt(f"{key} has the line {line!r}, which is no marker")
    return {marker for marker in markers.values() if marker is not None}
