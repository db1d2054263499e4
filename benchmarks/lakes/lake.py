"""What every system is asked to do, and how it is counted. Needs nothing of this project."""

from __future__ import annotations

import os
from pathlib import Path

KEY = "id"


def cpu_s() -> float:
    """Return the CPU seconds of this process and all below it, ended ones included."""
    below: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        below.setdefault(int(fields[1]), []).append(int(entry.name))
        ticks[int(entry.name)] = sum(int(field) for field in fields[11:15])
    total, todo = 0, [os.getpid()]
    while todo:
        one = todo.pop()
        total += ticks.get(one, 0)
        todo += below.get(one, [])
    return total / os.sysconf("SC_CLK_TCK")


class Lake:
    """What every system is asked to do."""

    def __init__(self, inputs: Path, work: Path) -> None:
        self.inputs, self.work = inputs, work

    def load(self) -> None:
        """Write all rows to a new table."""
        raise NotImplementedError

    def upsert(self, batch: str) -> None:
        """Change and add rows by their key."""
        raise NotImplementedError

    def delete(self) -> None:
        """Delete rows by their key."""
        raise NotImplementedError

    def read_all(self) -> None:
        """Read every column of every row, and throw it away."""
        raise NotImplementedError

    def read_column(self) -> float:
        """Return the sum of one column."""
        raise NotImplementedError

    def point(self, key: int) -> int:
        """Return how many rows have a key."""
        raise NotImplementedError

    def path(self, name: str) -> str:
        return str(self.inputs / f"{name}.parquet")
