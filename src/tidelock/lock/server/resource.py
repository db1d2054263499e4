"""Validates resource ids and builds the keys of locks (L13, V8). Pure.

A key is never used as a path: it is only compared, hashed and shown.
"""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass

from tidelock.core.errors import ConfigInvalid, ResourceInvalid
from tidelock.core.limits import RESOURCE_ID_BYTES_MAX

SEPARATOR = "||"
"""Dapr's separator: illegal in ids and prefixes, so different pairs never make the same key."""


def validate_id(text: str, what: str = "resource id") -> str:
    """Return a valid resource id, owner or request id. Raises: `ResourceInvalid` for others."""
    problem = _problem(text)
    if problem:
        shown = ascii(text[:60])
        raise ResourceInvalid(
            f"invalid {what} {shown}: {problem}",
            hint=f"use up to {RESOURCE_ID_BYTES_MAX} bytes of printable text without {SEPARATOR!r}",
        )
    return text


def _problem(text: str) -> str:
    if not text:
        return "it is empty"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if size > RESOURCE_ID_BYTES_MAX:
        return f"it has {size} bytes"
    if SEPARATOR in text:
        return f"it contains {SEPARATOR!r}"
    # Cc, Cf, Cs, Co, Cn: invisible or unassigned. Two ids that look alike would not be equal.
    if any(unicodedata.category(letter).startswith("C") for letter in text):
        return "it contains control or invisible characters"
    if unicodedata.normalize("NFC", text) != text:
        return "it is not in Unicode normal form C"
    return ""


@dataclass(frozen=True, slots=True)
class KeyPrefix:
    """Dapr's `keyPrefix` strategies: which applications share the locks of a store."""

    strategy: str = "appid"

    def __post_init__(self) -> None:
        """Refuse a prefix that contains the separator."""
        if SEPARATOR in self.strategy:
            raise ConfigInvalid(f"keyPrefix {self.strategy!r} contains {SEPARATOR!r}")

    def key(self, resource_id: str, *, namespace: str, app_id: str, store: str) -> str:
        """Return the key of a resource: Dapr's key, prefixed by the principal's namespace."""
        match self.strategy.lower():
            case "appid" | "":
                middle = app_id
            case "name":
                middle = store
            case "none":
                middle = ""
            case _:
                middle = self.strategy
        parts = [*([namespace] if namespace else []), "lock", *([middle] if middle else [])]
        return SEPARATOR.join([*parts, resource_id])


def key_digest(key: str) -> str:
    """Return the name of a key in backends and the audit file: a digest of fixed length."""
    return hashlib.sha256(key.encode()).hexdigest()
