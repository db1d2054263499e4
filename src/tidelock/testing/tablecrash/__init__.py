"""Writers of a real table that are killed or stopped at every point, in processes of their own.

`python -m tidelock.testing.tablecrash` kills and stops them; see `harness` and `zombies`.
"""

from __future__ import annotations
