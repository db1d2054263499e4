"""Where a store is, as a value that other processes can open it from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelock.store.contract import ObjectStore
from tidelock.store.uri import open_store

_opened: dict[tuple[int, str, tuple[tuple[str, str], ...]], ObjectStore] = {}


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A URI and the settings to open it with; it can be pickled, and shows no setting."""

    uri: str
    settings: Mapping[str, object] = field(default_factory=dict, repr=False)

    def open(self) -> ObjectStore:
        """Return this process's store at the address: opened once, shared by all, never closed.

        Raises: what `open_store` raises.
        """
        named = tuple(sorted((key, repr(value)) for key, value in self.settings.items()))
        # A child of a fork opens its own: connections are not shared between processes.
        place = (os.getpid(), self.uri, named)
        found = _opened.get(place)
        if found is None:
            # Two threads may both open one; `setdefault` lets one of them win.
            found = _opened.setdefault(place, open_store(self.uri, self.settings))
        return found
