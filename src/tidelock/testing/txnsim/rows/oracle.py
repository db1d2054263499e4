"""The table as it must be: plain dictionaries, and one write after the other as the ledger says.

Nothing of the code that is tested is used here. A key that was inserted blindly while it was there
may be there twice or once, which Hudi leaves open; such keys are loose until they are gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelock.testing.txnsim.rows.terms import Given, Job, Op

Place = tuple[str, str]
Row = dict[str, Any]


@dataclass(slots=True)
class Table:
    """The rows by partition and key, who changed each last, and the columns there are."""

    event_time: bool
    rows: dict[Place, Row] = field(default_factory=dict)
    changed: dict[Place, str] = field(default_factory=dict)
    """The instant that wrote each row."""
    loose: set[Place] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)

    def copy(self) -> Table:
        """Return a table that may be changed."""
        return Table(
            self.event_time,
            dict(self.rows),
            dict(self.changed),
            set(self.loose),
            set(self.columns),
        )

    def apply(self, job: Job, instant: str) -> None:
        """Do what a job does to the table."""
        if job.column:
            self.columns.add(job.column)
        places = [(given.partition, given.key) for given in job.rows]
        match job.op:
            case Op.DELETE | Op.TOMBSTONE:
                self._drop(places)
            case Op.DELETE_ANYWHERE:
                keys = {given.key for given in job.rows}
                self._drop([place for place in self.rows if place[1] in keys])
            case Op.OVERWRITE | Op.DELETE_PARTITION:
                gone = {given.partition for given in job.rows}
                self._drop([place for place in self.rows if place[0] in gone])
            case Op.OVERWRITE_TABLE:
                self._drop(list(self.rows))
            case _:
                pass
        if job.op.deletes or job.op is Op.DELETE_PARTITION:
            return
        for given in job.rows:
            self._put(job, given, instant)

    def _put(self, job: Job, given: Given, instant: str) -> None:
        place = (given.partition, given.key)
        before = self.rows.get(place)
        row = row_of(job, given)
        if job.op is Op.REWRITE:
            if before is None:
                return
            row = {**before, "v": given.value, "n": before["n"] + 1}
        elif before is not None:
            if job.op.is_blind:
                self.loose.add(place)
            if self.event_time and given.ts < before["ts"]:
                return
        self.rows[place] = row
        self.changed[place] = instant

    def _drop(self, places: list[Place]) -> None:
        for place in places:
            self.rows.pop(place, None)
            self.changed.pop(place, None)
            self.loose.discard(place)


def row_of(job: Job, given: Given) -> Row:
    """Return the columns of a row that a job gives; those that are null are left out."""
    row: Row = {
        "p": given.partition,
        "k": given.key,
        "ts": given.ts,
        "v": given.value,
        "n": 0,
    }
    return {**row, job.column: f"{job.name} {given.key}"} if job.column else row


def difference(
    found: Sequence[Mapping[str, Any]], truth: Table, places: set[Place] | None = None
) -> str:
    """Say where rows that were read are not those of the oracle, "" if they are.

    With `places` only these rows of the oracle are expected.
    """
    wanted = truth.rows if places is None else {at: truth.rows[at] for at in places}
    seen: dict[Place, list[Row]] = {}
    for each in found:
        row = {name: value for name, value in each.items() if value is not None}
        seen.setdefault((row["p"], row["k"]), []).append(row)
    for place in sorted(seen.keys() | wanted.keys()):
        here, there = seen.get(place, []), wanted.get(place)
        if place in truth.loose:
            continue
        if len(here) > 1:
            return f"{'/'.join(place)} is there {len(here)} times"
        if not here:
            return f"{'/'.join(place)} is missing: {there}"
        if there is None:
            return f"{'/'.join(place)} is there and must not be: {here[0]}"
        if here[0] != there:
            return f"{'/'.join(place)} is {here[0]}, not {there}"
    return ""
