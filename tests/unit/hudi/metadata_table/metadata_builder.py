"""A metadata table built file by file, as Hudi writes it: HFiles, log files and the timeline."""

from __future__ import annotations

import gzip
import io
import json
import struct
from collections.abc import Mapping, Sequence

import fastavro

from tests.unit.hudi.table_builder import Built, time
from tidelock.core.javaproperties import render_properties
from tidelock.hudi.hfile import Codec
from tidelock.hudi.log_blocks import (
    Block,
    BlockType,
    DeleteRecord,
    Header,
    encode_block,
    encode_deletes,
)
from tidelock.hudi.metadata_table import ALL_PARTITIONS
from tidelock.hudi.properties import KEY, METADATA_FOLDER, METADATA_PARTITIONS
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import (
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    encode,
)

INIT = "00000000000000000"
GROUP = "files-0000-0"

_INFO = {
    "type": "record",
    "name": "HoodieMetadataFileInfo",
    "fields": [{"name": "size", "type": "long"}, {"name": "isDeleted", "type": "boolean"}],
}
_META = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
SCHEMA = {
    "type": "record",
    "name": "HoodieMetadataRecord",
    "fields": [
        *({"name": f"_hoodie_{name}", "type": ["null", "string"]} for name in _META),
        {"name": "key", "type": "string"},
        {"name": "type", "type": "int"},
        {"name": "filesystemMetadata", "type": ["null", {"type": "map", "values": _INFO}]},
    ],
}
SCHEMA_JSON = json.dumps(SCHEMA)

Files = Mapping[str, int | None]
"""Sizes of files by name; None for one that is deleted."""


def value(files: Files, *, kind: int = 2) -> bytes:
    """Return the Avro bytes of a record."""
    infos = {n: {"size": size or 0, "isDeleted": size is None} for n, size in files.items()}
    sink = io.BytesIO()
    meta = dict.fromkeys(f"_hoodie_{name}" for name in _META)
    record = {**meta, "key": "", "type": kind, "filesystemMetadata": infos}
    fastavro.schemaless_writer(sink, fastavro.parse_schema(SCHEMA), record)
    return sink.getvalue()


def hfile(
    entries: Mapping[str, bytes],
    *,
    codec: Codec = Codec.GZIP,
    per_block: int = 100,
    info: Mapping[str, bytes] | None = None,
    levels: int = 1,
    protobuf_lengths: bool = False,
    trailing: Mapping[int, int] | None = None,
) -> bytes:
    """Return an HFile with these entries, in the order given.

    `protobuf_lengths` reproduces the bug of Hudi 1.1 in its index; `trailing` changes the trailer.
    """
    body, index = b"", b""
    pairs = [(key.encode(), each) for key, each in entries.items()]
    blocks = [pairs[at : at + per_block] for at in range(0, len(pairs), per_block)]
    for pieces in blocks:
        block = _block(b"DATABLK*", b"".join(_entry(*pair) for pair in pieces), codec)
        first = pieces[0][0]
        length = (_varint if protobuf_lengths else _hadoop)(len(first) + 2)
        index += struct.pack(">qi", len(body), len(block)) + length
        index += struct.pack(">h", len(first)) + first
        body += block
    index_at = len(body)
    body += _block(b"IDXROOT2", index, codec) + _block(b"IDXROOT2", b"", codec)
    info_at = len(body)
    known = {"schema": SCHEMA_JSON.encode(), **(info or {})}
    pb = b"".join(_raw(1, _raw(1, key.encode()) + _raw(2, each)) for key, each in known.items())
    body += _block(b"FILEINF2", b"PBUF" + _varint(len(pb)) + pb, codec)
    numbers = {1: info_at, 2: index_at, 5: len(blocks), 7: len(pairs), 8: levels, 12: int(codec)}
    numbers |= trailing or {}
    encoded = b"".join(_varint(field << 3) + _varint(number) for field, number in numbers.items())
    trailer = b'TRABLK"$' + _varint(len(encoded)) + encoded
    return body + trailer.ljust(4092, b"\0") + b"\0\0\0\3"


def _entry(key: bytes, body: bytes) -> bytes:
    head = struct.pack(">iih", len(key) + 12, len(body), len(key))
    return head + key + b"\0" + struct.pack(">q", 2**63 - 1) + b"\4" + body + b"\0"


def _block(magic: bytes, payload: bytes, codec: Codec) -> bytes:
    packed = gzip.compress(payload, mtime=0) if codec is Codec.GZIP else payload
    on_disk = 33 + len(packed)
    sums = -(-on_disk // 16384) * 4
    head = struct.pack(">iiqbii", len(packed) + sums, len(payload), -1, 0, 16384, on_disk)
    return magic + head + packed + bytes(sums)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _hadoop(number: int) -> bytes:
    if number <= 127:
        return bytes([number])
    size = (number.bit_length() + 7) // 8
    return bytes([256 - 112 - size]) + number.to_bytes(size, "big")


def _raw(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(body)) + body


def records(changes: Mapping[str, Files], partitions: Files | None = None) -> dict[str, bytes]:
    """Return the entries of a write: a record for each partition, and one for all partitions."""
    named = dict.fromkeys(changes, 0) if partitions is None else partitions
    found = {partition: value(files) for partition, files in changes.items()}
    found[ALL_PARTITIONS] = value({each or ".": size for each, size in named.items()}, kind=1)
    return dict(sorted((key or ".", body) for key, body in found.items()))


class BuiltMetadata:
    """The metadata table of a table under construction."""

    def __init__(self, table: Built, listed: Mapping[str, Files] | None = None) -> None:
        """Build it from the files in the folders, or from `listed`."""
        self.table = table
        values = {**table.properties.values, METADATA_PARTITIONS: "files"}
        table.put(KEY, render_properties(values).encode())
        own = {"hoodie.table.name": "built_metadata", "hoodie.table.version": "9"}
        table.put(f"{METADATA_FOLDER}/.hoodie/hoodie.properties", render_properties(own).encode())
        self.base(INIT, records(self.folders() if listed is None else listed))
        built = max(self.table.open().timeline.latest_completion, time(0))
        self.instant(Instant(INIT, Action.DELTA_COMMIT, InstantState.COMPLETED, built))

    def folders(self) -> dict[str, dict[str, int | None]]:
        """Return the existing data files, by partition."""
        found: dict[str, dict[str, int | None]] = {}
        for meta in self.table.store.list(""):
            partition, _, name = meta.key.rpartition("/")
            if not meta.key.startswith(".hoodie") and not name.startswith(".hoodie"):
                found.setdefault(partition, {})[name] = meta.size_bytes
        return found

    def base(self, requested: str, entries: Mapping[str, bytes]) -> str:
        """Write a base file."""
        return self._put(f"{GROUP}_0-0-0_{requested}.hfile", hfile(entries))

    def log(self, requested: str, blocks: Sequence[Block]) -> str:
        """Write a log file."""
        body = b"".join(map(encode_block, blocks))
        return self._put(f".{GROUP}_{requested}.log.1_0-0-0", body)

    def write(
        self,
        at: int,
        done: int | None,
        changes: Mapping[str, Files],
        *,
        partitions: Files | None = None,
        deleted: Sequence[str] = (),
    ) -> str:
        """Write the deltacommit of an action on the table; without `done` a pending one.

        `deleted` are partitions whose records are deleted. Returns the log file.
        """
        headers = {int(Header.INSTANT_TIME): time(at), int(Header.SCHEMA): SCHEMA_JSON}
        blocks = [Block(BlockType.HFILE, headers, hfile(records(changes, partitions)))]
        if deleted:
            keys = encode_deletes([DeleteRecord(key, "files") for key in deleted])
            blocks.append(Block(BlockType.DELETE, {int(Header.INSTANT_TIME): time(at)}, keys))
        requested = Instant(time(at), Action.DELTA_COMMIT, InstantState.REQUESTED)
        self.instant(requested)
        self.instant(requested.started())
        if done is not None:
            self.instant(requested.done(time(done)))
        return self.log(time(at), blocks)

    def compaction(self, at: int, done: int | None, entries: Mapping[str, bytes]) -> None:
        """Write a compaction; without `done` only its plan."""
        operation = CompactionOperation(None, file_id=GROUP, partition_path="files")
        requested = Instant(time(at), Action.COMPACTION, InstantState.REQUESTED)
        self.instant(requested, encode(CompactionPlan((operation,))))
        if done is not None:
            self.base(time(at), entries)
            self.instant(requested.done(time(done)))

    def instant(self, instant: Instant, body: bytes | None = None) -> None:
        """Write a state file of the metadata table's timeline."""
        encoded = encode(CommitMetadata()) if body is None and instant.is_completed else body or b""
        self.table.put(self.key(instant), encoded)

    def key(self, instant: Instant) -> str:
        """Return the object of an instant on the metadata table's timeline."""
        return f"{METADATA_FOLDER}/.hoodie/timeline/{instant.file_name}"

    def _put(self, name: str, body: bytes) -> str:
        key = f"{METADATA_FOLDER}/files/{name}"
        self.table.put(key, body)
        return key
