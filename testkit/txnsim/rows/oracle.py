"""The expected table: plain dictionaries, with one write applied after the other in ledger order.

The oracle uses no code under test. A key that was inserted blindly while it existed may exist once
or twice, which Hudi leaves open; such keys are loose until they are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testkit.txnsim.rows.parameters import InputRow, Job, Op

Place = tuple[str, str]
Row = dict[str, Any]


@dataclass(slots=True)
class Table:
    """The rows by partition and key, the last writer of each, and the existing columns."""

    event_time: bool
    rows: dict[Place, Row] = field(default_factory=dict)
    changed: dict[Place, str] = field(default_factory=dict)
    """The instant that wrote each row."""
    loose: set[Place] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)

    def copy(self) -> Table:
        """Return a mutable copy."""
        return Table(
            self.event_time,
            dict(self.rows),
            dict(self.changed),
            set(self.loose),
            set(self.columns),
        )

    def apply(self, job: Job, instant: str) -> None:
        """Apply a job to the table."""
        if job.column:
            self.columns.add(job.column)
        places = [(input_rows.partition, input_rows.key) for input_rows in job.rows]
        match job.op:
            case Op.DELETE | Op.TOMBSTONE:
                self._drop(places)
            case Op.DELETE_ANYWHERE:
                keys = {input_rows.key for input_rows in job.rows}
                self._drop([place for place in self.rows if place[1] in keys])
            case Op.OVERWRITE | Op.DELETE_PARTITION:
                gone = {input_rows.partition for input_rows in job.rows}
                self._drop([place for place in self.rows if place[0] in gone])
            case Op.OVERWRITE_TABLE:
                self._drop(list(self.rows))
            case _:
                pass
        if job.op.deletes or job.op is Op.DELETE_PARTITION:
            return
        for input_rows in job.rows:
            self._put(job, input_rows, instant)

    def _put(self, job: Job, input_rows: InputRow, instant: str) -> None:
        place = (input_rows.partition, input_rows.key)
        before = self.rows.get(place)
        row = row_of(job, input_rows)
        if job.op is Op.REWRITE:
            if before is None:
                return
            row = {**before, "v": input_rows.value, "n": before["n"] + 1}
        elif before is not None:
            if job.op.is_blind:
                self.loose.add(place)
            if self.event_time and input_rows.ts < before["ts"]:
                return
        self.rows[place] = row
        self.changed[place] = instant

    def _drop(self, places: list[Place]) -> None:
        for place in places:
            self.rows.pop(place, None)
            self.changed.pop(place, None)
            self.loose.discard(place)


def row_of(job: Job, input_rows: InputRow) -> Row:
    """Return the non-null columns of a job's row."""
    row: Row = {
        "p": input_rows.partition,
        "k": input_rows.key,
        "ts": input_rows.ts,
        "v": input_rows.value,
        "n": 0,
    }
    return {**row, job.column: f"{job.name} {input_rows.key}"} if job.column else row


def difference(
    found: Sequence[Mapping[str, Any]], truth: Table, places: set[Place] | None = None
) -> str:
    """Return how rows that were read differ from the oracle, "" if they do not.

    With `places`, only these rows of the oracle are expected.
    """
    expected = truth.rows if places is None else {at: truth.rows[at] for at in places}
    seen: dict[Place, list[Row]] = {}
    for each in found:
        row = {name: value for name, value in each.items() if value is not None}
        seen.setdefault((row["p"], row["k"]), []).append(row)
    for place in sorted(seen.keys() | expected.keys()):
        here, there = seen.get(place, []), expected.get(place)
        if place in truth.loose:
            continue
        if len(here) > 1:
            return f"{'/'.join(place)} has {len(here)} rows"
        if not here:
            return f"{'/'.join(place)} is missing: {there}"
        if there is None:
            return f"{'/'.join(place)} must not exist: {here[0]}"
        if here[0] != there:
            return f"{'/'.join(place)}: expected {there}, found {here[0]}"
    return ""
