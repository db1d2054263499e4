"""Direct and timeline-server-based markers: names and reading."""

from __future__ import annotations

import pytest

from tidelock.core.errors import DataCorrupt
from tidelock.hudi.markers import IoType, Marker, parse_marker, read_markers
from tidelock.storage.contract import Create
from tidelock.storage.memory import MemoryStore

INSTANT = "20250713010536861"
BASE = Marker("part=a", f"f-0_0-1-1_{INSTANT}.parquet", IoType.MERGE)
LOG = Marker("", f".f-0_{INSTANT}.log.1_0-1-1", IoType.CREATE)


@pytest.mark.parametrize("marker", [BASE, LOG])
def test_marker_names_its_data_file(marker: Marker) -> None:
    assert parse_marker(marker.path) == marker
    assert (
        marker.key(INSTANT) == f".hoodie/.temp/{INSTANT}/{marker.data_key}.marker.{marker.io_type}"
    )


@pytest.mark.parametrize("path", ["a.parquet", "a.parquet.marker.", "a.parquet.marker.MOVE", ""])
def test_other_names_are_not_markers(path: str) -> None:
    assert parse_marker(path) is None


def test_direct_and_collected_markers_are_read() -> None:
    store = MemoryStore()
    store.put(BASE.key(INSTANT), b"", Create())
    folder = f".hoodie/.temp/{INSTANT}"
    store.put(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED", Create())
    store.put(f"{folder}/MARKERS0", f"{LOG.path}\n".encode(), Create())
    store.put(f"{folder}/MARKERS13", b"", Create())
    store.put(f".hoodie/.temp/{INSTANT}1/x.parquet.marker.CREATE", b"", Create())
    assert read_markers(store, INSTANT) == {BASE, LOG}


def test_write_without_markers_has_none() -> None:
    assert read_markers(MemoryStore(), INSTANT) == frozenset()


@pytest.mark.parametrize(("name", "body"), [("MARKERS0", b"half a li"), ("notes.txt", b"")])
def test_unknown_marker_stops_a_cleanup(name: str, body: bytes) -> None:
    store = MemoryStore()
    store.put(f".hoodie/.temp/{INSTANT}/{name}", body, Create())
    with pytest.raises(DataCorrupt, match=name):
        read_markers(store, INSTANT)
