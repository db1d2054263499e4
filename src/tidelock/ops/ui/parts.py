"""What a page is told of, with the version at which it last changed: whole, or item by item."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[int, str]
"""The position of an entry, and the instant that it is about."""


@dataclass(slots=True)
class Section:
    """A part of the page that is sent whole, and only when it is not what it was."""

    value: object = None
    version: int = 0
    text: str = ""

    def put(self, value: object, version: int) -> None:
        """Take over the value, if it is another one."""
        text = json.dumps(value, sort_keys=True)
        if text != self.text:
            self.value, self.version, self.text = value, version, text


@dataclass(slots=True)
class Feed:
    """A list of which only what changed is sent; pages put it together by the items' keys.

    They keep as many items as they like: what is dropped here is old, and not told.
    """

    items: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    versions: dict[Key, int] = field(default_factory=dict)

    def put(self, key: Key, item: Mapping[str, Any], version: int) -> None:
        """Enter an item, or change it."""
        if self.items.get(key) != item:
            self.items[key] = item
            self.versions[key] = version

    def trim(self, most: int) -> None:
        """Forget all but so many items with the largest keys."""
        for key in sorted(self.items)[:-most]:
            del self.items[key], self.versions[key]

    def after(self, version: int) -> list[Mapping[str, Any]]:
        """Return the items that changed since, the largest keys first."""
        fresh = sorted((k for k, at in self.versions.items() if at > version), reverse=True)
        return [self.items[key] for key in fresh]
