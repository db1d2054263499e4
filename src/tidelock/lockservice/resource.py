"""Resource ids: what a client may name, and the key that stands for it (L13, V8). Pure.

A key is never a path: it is compared, hashed and shown, and that is all.
"""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass

from tidelock.base.errors import ConfigInvalid, ResourceInvalid
from tidelock.base.limits import RESOURCE_ID_BYTES_MAX

SEPARATOR = "||"
"""Dapr's: illegal in ids and prefixes, so two of them never run into one key."""


def checked_id(text: str, what: str = "resource id") -> str:
    """Return `text` if it may stand for a resource, an owner or a request.

    Raises: `ResourceInvalid`.
    """
    problem = _problem(text)
    if problem:
        shown = ascii(text[:60])
        raise ResourceInvalid(
            f"the {what} {shown} cannot be used: {problem}",
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
    # Cc, Cf, Cs, Co, Cn: invisible or without meaning. Two ids that look alike would not be equal.
    if any(unicodedata.category(letter).startswith("C") for letter in text):
        return "it has control or invisible characters"
    if unicodedata.normalize("NFC", text) != text:
        return "it is not in Unicode's normal form C"
    return ""


@dataclass(frozen=True, slots=True)
class KeyPrefix:
    """Dapr's `keyPrefix` strategies: which resources of which applications are the same lock."""

    strategy: str = "appid"

    def __post_init__(self) -> None:
        """Refuse a prefix that could run into the id."""
        if SEPARATOR in self.strategy:
            raise ConfigInvalid(f"keyPrefix {self.strategy!r} contains {SEPARATOR!r}")

    def key(self, resource_id: str, *, namespace: str, app_id: str, store: str) -> str:
        """Return the key of a resource: Dapr's, below the namespace of the principal."""
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
    """Return the name of a key in a backend and in the audit: fixed length, no path in it."""
    return hashlib.sha256(key.encode()).hexdigest()
