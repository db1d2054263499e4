"""Memory that Arrow's allocator keeps, given back."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

SMALL_BYTES: Final = 64 * 1024 * 1024
"""After more was read the pages are worth keeping: touching them anew would take as long."""


def give_back() -> None:
    """Give back what the allocator keeps for this thread, and for threads that have ended.

    It keeps pages of every size for each thread that has ever used them. In a process that reads
    and compacts little by little for weeks, that is ten times of what is ever needed at once.
    """
    pa.default_memory_pool().release_unused()
