"""What writers and updates left beside the rows: backups, side files, markers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from tidelock.ops.validate.files import Record
from tidelock.ops.validate.findings import Finding, problem, warning
from tidelock.store.contract import ObjectStore
from tidelock.table.markers import TEMP_FOLDER
from tidelock.table.properties_file import BACKUP_KEY, KEY

_SIDE_FILE = ".hoodie/.hoodie.properties.crc"
_HEARTBEATS = ".hoodie/.heartbeat/"


def check_properties_files(store: ObjectStore) -> Iterator[Finding]:
    """Look at what lies beside the properties."""
    if store.head(BACKUP_KEY) is not None:
        yield warning(
            "properties",
            BACKUP_KEY,
            "an update of the properties is under way, or did not finish",
            "if nobody is updating them, the next update by tidelock or Hudi mends it",
        )
    side, body = store.get(_SIDE_FILE), store.get(KEY)
    if side is not None and body is not None and not _fits(side.body, body.body):
        yield problem(
            "properties",
            _SIDE_FILE,
            f"it is not the checksum of {KEY}; Java refuses to open the table",
            "delete it",
        )


def _fits(side: bytes, body: bytes) -> bool:
    """Tell whether the checksums that Hadoop keeps of a local file are those of its bytes."""
    if side[:4] != b"crc\x00" or len(side) < 8:
        return False
    size = int.from_bytes(side[4:8], "big")
    sums = [zlib.crc32(body[at : at + size]) for at in range(0, len(body), size)] if size else []
    return side[8:] == b"".join(each.to_bytes(4, "big") for each in sums)


def check_leftovers(store: ObjectStore, record: Record) -> Iterator[Finding]:
    """Look for what completed writes should have taken away."""
    marked = {
        meta.key.removeprefix(f"{TEMP_FOLDER}/").partition("/")[0]
        for meta in store.list(f"{TEMP_FOLDER}/")
    }
    for instant in sorted(marked & record.completed):
        yield warning(
            "leftovers",
            f"{TEMP_FOLDER}/{instant}",
            "markers of a completed write",
            "its writer died while it was tidying up; they may be deleted",
        )
    beating = {meta.key.removeprefix(_HEARTBEATS) for meta in store.list(_HEARTBEATS)}
    for instant in sorted(beating & record.completed):
        yield warning(
            "leftovers",
            f"{_HEARTBEATS}{instant}",
            "the heartbeat of a completed write",
            "its writer died while it was tidying up; it may be deleted",
        )
