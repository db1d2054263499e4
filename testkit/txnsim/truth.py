"""The expected table after the entries of the ledger: its rows and their files."""

from __future__ import annotations

from dataclasses import dataclass, field

from testkit.txnsim.checked_store import History
from testkit.txnsim.plan import Kind


@dataclass(slots=True)
class Truth:
    """The updates of each key, in order, and the files of each file group."""

    rows: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)


def table_at(history: History, position: int | None = None) -> Truth:
    """Return the table after the entry at `position`, or after all entries."""
    owner = {instant: record for record in history.records for instant in record.instants}
    truth = Truth()
    for entry, commit in history.commits:
        if position is not None and entry.position > position:
            break
        record = owner[commit.instant]
        if record.kind.overwrites:
            truth = Truth()
        for group, path in history.files.get(commit.instant, {}).items():
            before = truth.files.get(group, ()) if record.kind is Kind.APPEND else ()
            truth.files[group] = (*before, path)
        for key in record.keys if record.kind is not Kind.CLEAR else ():
            truth.rows.setdefault(key, []).append(record.write)
    return truth
