"""The expected table: plain dictionaries, with operations applied in ledger order.

The oracle knows no files, indexes, instants or conflicts. Rows are dictionaries; a missing column
is null. Each row has the commit that wrote it, for readers of changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

Row = dict[str, Any]
Place = tuple[str, str]
"""Partition and key."""

_WIDTHS: Final = ("int32", "int64")


@dataclass(frozen=True, slots=True)
class TableChange:
    """The meaning of an operation. `columns` are those that it adds or widens, with their types."""

    verb: str
    rows: tuple[Row, ...] = ()
    keys: tuple[str, ...] = ()
    partition: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    number: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """How the table merges rows of one key."""

    by_event_time: bool
    merges_inserts: bool
    merges_bulk: bool


@dataclass(frozen=True, slots=True)
class Done:
    """An acknowledged operation.

    `at` is its position in ledger order, `instant` its request time. A rollback or restore names
    the request times of the rolled back commits in `undoes`.
    """

    change: TableChange
    instant: str
    at: str
    rolls_back: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Held:
    """A row and the request time of the commit that wrote it."""

    row: Row
    by: str


@dataclass(frozen=True, slots=True)
class State:
    """The rows of a table and its columns. A key has several rows only after blind inserts."""

    rows: Mapping[Place, tuple[Held, ...]] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)

    def found(self) -> list[Row]:
        """Return the rows."""
        return [held.row for all_held in self.rows.values() for held in all_held]

    def written_by(self, instants: Iterable[str]) -> list[Row]:
        """Return the rows that some commits wrote."""
        chosen = set(instants)
        return [held.row for some in self.rows.values() for held in some if held.by in chosen]


@dataclass(frozen=True, slots=True)
class Oracle:
    """Replays operations."""

    rules: Rules
    columns: Mapping[str, str]

    def states(self, done: Sequence[Done]) -> list[tuple[Done, State]]:
        """Return the state after each operation, in ledger order."""
        finding: list[tuple[Done, State]] = []
        ordered = sorted(done, key=lambda each: each.at)
        for number, each in enumerate(ordered):
            if each.rolls_back:
                before = [other for other in ordered[:number] if not other.rolls_back]
                remaining = [
                    other for other in before if not _is_rolled_back(other, ordered[: number + 1])
                ]
                finding.append((each, self.replayed(remaining)))
                continue
            state = finding[-1][1] if finding else State(columns=self.columns)
            finding.append((each, self.applied(state, each)))
        return finding

    def last(self, done: Sequence[Done]) -> State:
        """Return the state after all operations."""
        finding = self.states(done)
        return finding[-1][1] if finding else State(columns=self.columns)

    def replayed(self, done: Sequence[Done]) -> State:
        """Return the state after some of the operations only, none of which rolls back others."""
        state = State(columns=self.columns)
        for each in sorted(done, key=lambda one: one.at):
            state = self.applied(state, each)
        return state

    def applied(self, state: State, done: Done) -> State:
        """Return the state after one more operation."""
        change = done.change
        columns = dict(state.columns)
        for name, kind in change.columns.items():
            columns[name] = max(columns.get(name, kind), kind, key=_width)
        state = replace(state, columns=columns)
        rows, by = change.rows, done.instant
        match change.verb:
            case "upsert":
                return self._merged(state, rows, by)
            case "rewrite":
                return self._merged(state, computed(state.found(), change), by)
            case "insert" | "bulk_insert" | "insert_new":
                return self._inserted(state, change, by)
            case "insert_overwrite" | "insert_overwrite_table":
                return _added(_without(state, _covered(state, change)), rows, by)
            case _:
                return _without(state, _covered(state, change))

    def _inserted(self, state: State, change: TableChange, by: str) -> State:
        new = [row for row in change.rows if (row["region"], row["id"]) not in state.rows]
        merges = {"insert": self.rules.merges_inserts, "bulk_insert": self.rules.merges_bulk}
        if merges.get(change.verb, False):
            return self._merged(state, change.rows, by)
        return _added(state, new if change.verb == "insert_new" else change.rows, by)

    def _merged(self, state: State, rows: Iterable[Row], by: str) -> State:
        held = dict(state.rows)
        for row in rows:
            place = (row["region"], row["id"])
            known = held.get(place, ())
            new = Held(row, by)
            held[place] = tuple(self._winner(old, new) for old in known) or (new,)
        return replace(state, rows=held)

    def _winner(self, old: Held, new: Held) -> Held:
        """Return which of two rows remains: the later one, unless event time decides otherwise."""
        if self.rules.by_event_time and old.row["ts"] > new.row["ts"]:
            return old
        return new


def computed(rows: Iterable[Row], change: TableChange) -> list[Row]:
    """Return the rows of a statement that reads the whole table: each depends on all of them."""
    every = list(rows)
    total = sum(row["v"] for row in every) % 1_000_000
    latest = max((row["ts"] for row in every), default=0)
    return [row | {"ts": latest + 1, "v": total + change.number} for row in change.rows]


def _covered(state: State, change: TableChange) -> set[Place]:
    """Return the partitions and keys whose rows an operation removes; none if it keeps them."""
    match change.verb:
        case "delete" | "erase" | "soft":
            return {(change.partition, key) for key in change.keys}
        case "delete_anywhere":
            return {place for place in state.rows if place[1] in change.keys}
        case "insert_overwrite" | "delete_partition":
            return {place for place in state.rows if place[0] == change.partition}
        case "insert_overwrite_table":
            return set(state.rows)
        case _:
            return set()


def _is_rolled_back(one: Done, ordered: Sequence[Done]) -> bool:
    return any(one.instant in other.rolls_back for other in ordered)


def _added(state: State, rows: Iterable[Row], by: str) -> State:
    held = dict(state.rows)
    for row in rows:
        place = (row["region"], row["id"])
        held[place] = (*held.get(place, ()), Held(row, by))
    return replace(state, rows=held)


def _without(state: State, gone: set[Place]) -> State:
    return replace(state, rows={p: some for p, some in state.rows.items() if p not in gone})


def _width(kind: str) -> int:
    return _WIDTHS.index(kind) if kind in _WIDTHS else 0


def plain(rows: Iterable[Row]) -> list[str]:
    """Return rows in a canonical order and format, to compare two readers."""
    present = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return sorted(str(sorted(row.items())) for row in present)
