"""What a table must hold: plain dictionaries, one operation after the other, in ledger order.

Nothing here knows files, indexes, instants or conflicts. Rows are dictionaries; a missing column is
null. What is beside the rows of a key says which commit wrote the row, for readers of changes.
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
class Deed:
    """What an operation means. `columns` are those that it adds or widens, with their types."""

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
    """An operation that was acknowledged.

    `at` is its place in the order of the ledger, `instant` its request time. One that takes back
    others names their request times in `undoes`.
    """

    deed: Deed
    instant: str
    at: str
    undoes: frozenset[str] = frozenset()


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
        told: list[tuple[Done, State]] = []
        ordered = sorted(done, key=lambda each: each.at)
        for number, each in enumerate(ordered):
            if each.undoes:
                before = [other for other in ordered[:number] if not other.undoes]
                stands = [other for other in before if not _is_undone(other, ordered[: number + 1])]
                told.append((each, self.replayed(stands)))
                continue
            state = told[-1][1] if told else State(columns=self.columns)
            told.append((each, self.applied(state, each)))
        return told

    def last(self, done: Sequence[Done]) -> State:
        """Return the state after all operations."""
        told = self.states(done)
        return told[-1][1] if told else State(columns=self.columns)

    def replayed(self, done: Sequence[Done]) -> State:
        """Return the state after some of the operations alone, none of which takes back others."""
        state = State(columns=self.columns)
        for each in sorted(done, key=lambda one: one.at):
            state = self.applied(state, each)
        return state

    def applied(self, state: State, done: Done) -> State:
        """Return the state after one more operation."""
        deed = done.deed
        columns = dict(state.columns)
        for name, kind in deed.columns.items():
            columns[name] = max(columns.get(name, kind), kind, key=_width)
        state = replace(state, columns=columns)
        rows, by = deed.rows, done.instant
        match deed.verb:
            case "upsert":
                return self._merged(state, rows, by)
            case "rewrite":
                return self._merged(state, computed(state.found(), deed), by)
            case "insert" | "bulk_insert" | "insert_new":
                return self._inserted(state, deed, by)
            case "insert_overwrite" | "insert_overwrite_table":
                return _added(_without(state, _covered(state, deed)), rows, by)
            case _:
                return _without(state, _covered(state, deed))

    def _inserted(self, state: State, deed: Deed, by: str) -> State:
        new = [row for row in deed.rows if (row["region"], row["id"]) not in state.rows]
        merges = {"insert": self.rules.merges_inserts, "bulk_insert": self.rules.merges_bulk}
        if merges.get(deed.verb, False):
            return self._merged(state, deed.rows, by)
        return _added(state, new if deed.verb == "insert_new" else deed.rows, by)

    def _merged(self, state: State, rows: Iterable[Row], by: str) -> State:
        held = dict(state.rows)
        for row in rows:
            place = (row["region"], row["id"])
            known = held.get(place, ())
            new = Held(row, by)
            held[place] = tuple(self._winner(old, new) for old in known) or (new,)
        return replace(state, rows=held)

    def _winner(self, old: Held, new: Held) -> Held:
        """Return which of two rows stays: the later one, unless event time says otherwise."""
        if self.rules.by_event_time and old.row["ts"] > new.row["ts"]:
            return old
        return new


def computed(rows: Iterable[Row], deed: Deed) -> list[Row]:
    """Return the rows of a statement that reads the whole table: each depends on all of them."""
    every = list(rows)
    total = sum(row["v"] for row in every) % 1_000_000
    latest = max((row["ts"] for row in every), default=0)
    return [row | {"ts": latest + 1, "v": total + deed.number} for row in deed.rows]


def _covered(state: State, deed: Deed) -> set[Place]:
    """Return the places that an operation empties; none for one that keeps the rows."""
    match deed.verb:
        case "delete" | "erase" | "soft":
            return {(deed.partition, key) for key in deed.keys}
        case "delete_anywhere":
            return {place for place in state.rows if place[1] in deed.keys}
        case "insert_overwrite" | "delete_partition":
            return {place for place in state.rows if place[0] == deed.partition}
        case "insert_overwrite_table":
            return set(state.rows)
        case _:
            return set()


def _is_undone(one: Done, ordered: Sequence[Done]) -> bool:
    return any(one.instant in other.undoes for other in ordered)


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
    """Return rows in an order and a spelling by which two readers can be compared."""
    kept = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return sorted(str(sorted(row.items())) for row in kept)
