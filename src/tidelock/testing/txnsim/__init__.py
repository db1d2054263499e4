"""Many writers of one table, simulated: the transactions that ship, over a store that fails.

Start with `schedule.run_schedule`. Needs the package `greenlet`.
"""

from __future__ import annotations
