"""Simulation of many writers on one table: the production transactions over a faulty store.

Start with `schedule.run_schedule`. Needs the package `greenlet`.
"""

from __future__ import annotations
