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
from tidelock.store.courtesy import in_line
from tidelock.table.properties_file import KEY as PROPERTIES

LINE_KEY: Final = ".hoodie/.tidelock/line"

_WAIT_MS: Final = 2_000
_VAIN_MS: Final = 10_000
"""For so long nobody lines up after a wait in vain, for instance behind a stopped process."""


@dataclass
class Line:
    """The line before a table's ledger, as one process sees it."""

    store: ObjectStore
    clock: Clock
    _vain_until_ms: int = 0

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
        if self.store.local_path(LINE_KEY) is None:
            self.store.put(LINE_KEY, b"", Create(lasting=False))
        with in_line(self.store, LINE_KEY, wait_ms=_WAIT_MS, clock=self.clock) as mine:
            if not mine:
                self._vain_until_ms = self.clock.now().monotonic_ms + _VAIN_MS
            yield
