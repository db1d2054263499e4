"""Lining up before the ledger, for writers on one machine.

Of several that append at once all but one have made their entry in vain, and read, and make it
again. Where the store is a folder they go one by one instead (C97). It is a courtesy: nothing that
must be right rests on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tidelock.base.clock import Clock
from tidelock.store.contract import Create, ObjectStore
from tidelock.store.courtesy import lined_up
from tidelock.table.properties_file import KEY as PROPERTIES

LINE_KEY: Final = ".hoodie/.tidelock/line"
KEEPING_KEY: Final = ".hoodie/.tidelock/keeping"
"""The line of those who clean and archive."""

_WAIT_MS: Final = 2_000
_VAIN_MS: Final = 10_000
"""For so long nobody lines up after a wait in vain, for instance behind a stopped process."""


@dataclass
class Line:
    """The line before a table's ledger, as one process sees it."""

    store: ObjectStore
    clock: Clock
    key: str = LINE_KEY
    _vain_until_ms: int = 0
    _left: bool = False

    @cached_property
    def is_here(self) -> bool:
        """Tell whether those who write this table are on one machine, and can line up there."""
        return self.store.local_path(PROPERTIES) is not None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Go through the block when it is one's turn, or when the others take too long."""
        if not self.is_here or self.clock.now().monotonic_ms < self._vain_until_ms:
            yield
            return
        with lined_up(self._path, wait_ms=_WAIT_MS, clock=self.clock) as mine:
            if not mine:
                self._vain_until_ms = self.clock.now().monotonic_ms + _VAIN_MS
            yield

    @contextmanager
    def unless_taken(self) -> Iterator[bool]:
        """Yield whether to do what the line is for: not if another process is at it.

        Once it is left to the other. Found taken again, the other may be a stopped process.
        """
        if not self.is_here:
            yield True
            return
        with lined_up(self._path, wait_ms=0, clock=self.clock) as mine:
            self._left = not mine and not self._left
            yield not self._left

    @cached_property
    def _path(self) -> str | None:
        self.store.put(self.key, b"", Create(lasting=False))
        return self.store.local_path(self.key)
