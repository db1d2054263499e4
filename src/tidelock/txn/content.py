"""The bytes of an instant's file, as an entry of the ledger has them or names them (C3). Pure."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, assert_never

from tidelock.base.errors import DataCorrupt
from tidelock.txn.fields import Fields

INLINE_BYTES_MAX: Final = 256 * 1024
"""Metadata up to this size lies in the ledger entry, so publishing needs no further read."""


class Inline:
    """The bytes of a completed instant, in the entry itself.

    They are kept as the entry has them, packed, until somebody wants them: every writer reads every
    entry, and few have to publish one.
    """

    __slots__ = ("_data", "_text")
    __match_args__ = ("data",)

    def __init__(self, data: bytes) -> None:
        """Hold these bytes."""
        self._data: bytes | None = data
        self._text = ""

    @classmethod
    def packed(cls, text: str) -> Inline:
        """Hold bytes as an entry has them."""
        held = cls(b"")
        held._data, held._text = None, text
        return held

    @property
    def data(self) -> bytes:
        """The bytes. Raises: `DataCorrupt` if they were not packed by `text`."""
        if self._data is None:
            try:
                packed = b64decode(self._text, validate=True)
                self._data = zlib.decompressobj().decompress(packed, INLINE_BYTES_MAX + 1)
            except (ValueError, zlib.error) as error:
                raise DataCorrupt(f"the content of a ledger entry is broken: {error}") from error
            if len(self._data) > INLINE_BYTES_MAX:
                raise DataCorrupt(
                    f"the content of a ledger entry has over {INLINE_BYTES_MAX} bytes"
                )
        return self._data

    @property
    def text(self) -> str:
        """The bytes as an entry has them."""
        if not self._text:
            # The same few lines of Avro schema are in every instant, so the lightest level does.
            self._text = b64encode(zlib.compress(self.data, 1)).decode("ascii")
        return self._text

    def __eq__(self, other: object) -> bool:
        """Compare the bytes."""
        return isinstance(other, Inline) and self.data == other.data

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash(self.data)

    def __repr__(self) -> str:
        """Say how many they are."""
        return f"Inline({len(self.data)} bytes)"


@dataclass(frozen=True, slots=True)
class Stored:
    """The bytes of a completed instant in an object of their own, and what they must be."""

    key: str
    sha256: str
    size_bytes: int


Content: TypeAlias = Inline | Stored


def content_fields(content: Content) -> dict[str, Any]:
    """Return the fields of an entry that hold or name the bytes."""
    match content:
        case Inline():
            return {"packed": content.text}
        case Stored(key, sha256, size_bytes):
            return {"key": key, "sha256": sha256, "size": size_bytes}
        case _:
            assert_never(content)


def content_of(fields: Fields) -> Content:
    """Return what the fields of an entry hold or name. Raises: `DataCorrupt`."""
    if fields.raw("packed") is not None:
        return Inline.packed(fields.text("packed"))
    return Stored(fields.text("key"), fields.text("sha256"), fields.whole("size"))
