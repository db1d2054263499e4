"""What writers and updates left beside the rows: backups, side files, markers, a stale index."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from tidelock.ops.validate.files import Record
from tidelock.ops.validate.findings import Finding, problem, warning
from tidelock.ops.validate.timeline import timeline_file
from tidelock.store.contract import ObjectStore
from tidelock.table.markers import TEMP_FOLDER
from tidelock.table.properties import TableProperties
from tidelock.table.properties_file import BACKUP_KEY, KEY

_SIDE_FILE = ".hoodie/.hoodie.properties.crc"
_METADATA_TIMELINE = ".hoodie/metadata/.hoodie/timeline/"
_HEARTBEATS = ".hoodie/.heartbeat/"
_WITHOUT = (
    "delete the metadata table: empty hoodie.table.metadata.partitions first, then delete"
    " .hoodie/metadata"
)


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


def check_metadata_table(
    store: ObjectStore, properties: TableProperties, record: Record
) -> Iterator[Finding]:
    """Look whether Hudi's metadata table knows every write: readers list files from it alone."""
    if not properties.has_metadata_table:
        return
    files = [timeline_file(meta) for meta in store.list(_METADATA_TIMELINE)]
    instants = [file.instant for file in files if file.instant is not None]
    done = {instant.requested for instant in instants if instant.is_completed}
    # Building it takes instants of its own, whose times are no dates.
    since = min((time for time in done if not time.startswith("0000")), default=None)
    if not files:
        # Readers fall back to listing folders when it is gone.
        yield warning(
            "metadata table",
            ".hoodie/metadata",
            "the properties say that there is one, but it is missing",
            "the next Java writer builds it again",
        )
    for requested in sorted(record.cleaned):
        if since is not None and requested > since and requested not in done:
            yield problem(
                "metadata table",
                ".hoodie/metadata",
                f"it does not know the clean {requested}; readers that list files from it look for"
                " files that are gone",
                _WITHOUT,
            )
    for requested in sorted(record.completed):
        if since is not None and requested > since and requested not in done:
            yield problem(
                "metadata table",
                ".hoodie/metadata",
                f"it does not know the write {requested}; readers that list files from it do not"
                " see that write",
                _WITHOUT,
            )
