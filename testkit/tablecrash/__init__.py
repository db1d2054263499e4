"""Kills or stops writers of a real table at every point, in separate processes.

`python -m testkit.tablecrash` runs it; see `harness` and `zombies`.
"""

from __future__ import annotations
