"""The table as it must be after the entries of the ledger: its rows, and the files they are in."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelock.testing.txnsim.plan import Kind
from tidelock.testing.txnsim.witness import History


@dataclass(slots=True)
class Truth:
    """For each key the writes that updated it, in order; for each file group its files."""

    rows: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)


def table_at(history: History, position: int | None = None) -> Truth:
    """Return the table after the entry at `position`, or after all of them."""
    owner = {instant: told for told in history.told for instant in told.instants}
    truth = Truth()
    for entry, commit in history.commits:
        if position is not None and entry.position > position:
            break
        told = owner[commit.instant]
        if told.kind.overwrites:
            truth = Truth()
        for group, path in history.files.get(commit.instant, {}).items():
            before = truth.files.get(group, ()) if told.kind is Kind.APPEND else ()
            truth.files[group] = (*before, path)
        for key in told.keys if told.kind is not Kind.CLEAR else ():
            truth.rows.setdefault(key, []).append(told.write)
    return truth
