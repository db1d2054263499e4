"""The footer of a Parquet file, as far as row groups are moved from one file to another. Pure.

Names and numbers are those of parquet.thrift.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelock.base.errors import DataCorrupt
from tidelock.kernel.thriftcompact import Kind, Sequence, Struct, decode, encode

MAGIC: Final = b"PAR1"
TAIL_BYTES: Final = 8
"""The length of the footer, and the magic."""

_VERSION, _SCHEMA, _ROWS, _GROUPS, _PAIRS, _CREATED_BY, _ORDERS = 1, 2, 3, 4, 5, 6, 7
_ENCRYPTION: Final = (8, 9)
_GROUP_CHUNKS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_PACKED, _GROUP_ORDINAL = (
    1, 2, 3, 5, 6, 7,
)  # fmt: skip
_CHUNK_PATH, _CHUNK_OFFSET, _CHUNK_META = 1, 2, 3
_CHUNK_INDEXES: Final = (4, 5, 6, 7)
_CHUNK_CRYPTO: Final = (8, 9)
_META_PATH, _META_UNPACKED, _META_PACKED, _META_DATA, _META_INDEX, _META_DICTIONARY = (
    3, 6, 7, 9, 10, 11,
)  # fmt: skip
_META_BLOOM: Final = (14, 15)
_ELEMENT_REPETITION, _ELEMENT_NAME, _ELEMENT_ID = 3, 4, 9
_ORDINAL_MAX: Final = 32_767

_SOUND: Final = re.compile(
    r"parquet-cpp-arrow version |parquet-rs version |parquet-mr version 1\.[1-9]\d"
)
"""Writers whose pages and statistics mean what the format says; readers mend others by name."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One column of a row group: where its bytes are, and what is said of them."""

    raw: Struct
    name: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows whose columns lie together in the file."""

    raw: Struct
    chunks: tuple[Chunk, ...]
    rows: int

    @property
    def size(self) -> int:
        """The bytes of its columns."""
        return sum(chunk.size for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class Footer:
    """What the end of a file says of it."""

    raw: Struct
    groups: tuple[RowGroup, ...]
    pairs: Mapping[str, str]

    @property
    def layout(self) -> tuple[bytes, ...]:
        """What two files must share for the row groups of one to be read in the other.

        The name of the whole, and numbers that other systems give to columns, make no difference.
        """
        elements = _items(self.raw, _SCHEMA)
        count = elements[0].get(5, (Kind.I32, 0)) if elements else (Kind.I32, 0)
        rest = ({k: v for k, v in each.items() if k != _ELEMENT_ID} for each in elements[1:])
        orders = encode({_ORDERS: self.raw[_ORDERS]}) if _ORDERS in self.raw else b""
        return (encode({5: count}), *(encode(each) for each in rest), orders)

    @property
    def is_plain(self) -> bool:
        """Whether it is all in one file, not encrypted, and by a writer without known flaws."""
        chunks = [chunk.raw for group in self.groups for chunk in group.chunks]
        if any(field in self.raw for field in _ENCRYPTION):
            return False
        if any(field in raw for raw in chunks for field in (_CHUNK_PATH, *_CHUNK_CRYPTO)):
            return False
        created_by = self.raw.get(_CREATED_BY, (Kind.BINARY, b""))[1]
        return _SOUND.match(created_by.decode(errors="replace")) is not None


def parse_footer(body: bytes | memoryview, *, where: str) -> Footer:
    """Return the footer whose struct `body` is. Raises: `DataCorrupt`."""
    raw = decode(body, where=where)
    try:
        groups = tuple(_group(each) for each in _items(raw, _GROUPS))
        pairs = {_text(each, 1): _text(each, 2) for each in _items(raw, _PAIRS)}
    except (AttributeError, IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise DataCorrupt(f"{where}: the footer lacks what it must have: {error!r}") from error
    return Footer(raw, groups, pairs)


def footer_bytes(like: Footer, groups: list[Struct], pairs: Mapping[str, str]) -> bytes:
    """Return the end of a file of these row groups: footer, its length, and the magic.

    Everything else is as `like` has it.
    """
    rows = sum(_int(group, _GROUP_ROWS) for group in groups)
    raw: Struct = {
        **like.raw,
        _ROWS: (Kind.I64, rows),
        _GROUPS: (Kind.LIST, Sequence(Kind.STRUCT, groups)),
    }
    raw.pop(_PAIRS, None)
    if pairs:
        listed: list[Any] = [
            {1: (Kind.BINARY, key.encode()), 2: (Kind.BINARY, value.encode())}
            for key, value in pairs.items()
        ]
        raw[_PAIRS] = (Kind.LIST, Sequence(Kind.STRUCT, listed))
    body = encode(raw)
    return body + len(body).to_bytes(4, "little") + MAGIC


def moved_group(group: RowGroup, chunks: list[Struct], *, ordinal: int) -> Struct:
    """Return a row group of these chunks, which have been moved, as a footer has it."""
    metas = [chunk[_CHUNK_META][1] for chunk in chunks]
    raw = dict(group.raw)
    raw[_GROUP_CHUNKS] = (Kind.LIST, Sequence(Kind.STRUCT, chunks))
    raw[_GROUP_BYTES] = (Kind.I64, sum(_int(meta, _META_UNPACKED) for meta in metas))
    raw[_GROUP_PACKED] = (Kind.I64, sum(_int(meta, _META_PACKED) for meta in metas))
    raw[_GROUP_OFFSET] = (Kind.I64, min(_start(meta) for meta in metas))
    raw.pop(_GROUP_ORDINAL, None)
    if ordinal <= _ORDINAL_MAX:
        raw[_GROUP_ORDINAL] = (Kind.I16, ordinal)
    return raw


def moved_chunk(chunk: Chunk, start: int) -> Struct:
    """Return a chunk that begins at `start` of another file.

    Indexes and filters that lie elsewhere in its file stay behind: no reader needs them.
    """
    shift = start - chunk.start
    meta: Struct = dict(chunk.raw[_CHUNK_META][1])
    for field in (_META_DATA, _META_DICTIONARY, _META_INDEX):
        if _int(meta, field) > 0:
            meta[field] = (Kind.I64, _int(meta, field) + shift)
    for field in _META_BLOOM:
        meta.pop(field, None)
    raw = {k: v for k, v in chunk.raw.items() if k not in _CHUNK_INDEXES}
    raw[_CHUNK_OFFSET] = (Kind.I64, 0)
    raw[_CHUNK_META] = (Kind.STRUCT, meta)
    return raw


def is_required(footer: Footer, name: str) -> bool:
    """Tell whether a column of the first level cannot be null."""
    for element in _items(footer.raw, _SCHEMA)[1:]:
        if _text(element, _ELEMENT_NAME) == name:
            return _int(element, _ELEMENT_REPETITION) == 0
    return False


def _group(raw: Struct) -> RowGroup:
    chunks = tuple(_chunk(each) for each in _items(raw, _GROUP_CHUNKS))
    return RowGroup(raw, chunks, _int(raw, _GROUP_ROWS))


def _chunk(raw: Struct) -> Chunk:
    meta: Struct = raw[_CHUNK_META][1]
    path = b".".join(meta[_META_PATH][1].items).decode()
    return Chunk(raw, path, _start(meta), _int(meta, _META_PACKED))


def _start(meta: Struct) -> int:
    data, dictionary = _int(meta, _META_DATA), _int(meta, _META_DICTIONARY)
    return dictionary if 0 < dictionary < data else data


def _items(raw: Struct, field: int) -> list[Any]:
    found: list[Any] = raw[field][1].items if field in raw else []
    return found


def _int(raw: Struct, field: int) -> int:
    return int(raw[field][1]) if field in raw else 0


def _text(raw: Struct, field: int) -> str:
    found: bytes = raw[field][1] if field in raw else b""
    return found.decode()
