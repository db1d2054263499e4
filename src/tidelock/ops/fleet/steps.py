"""What each program of a fleet writes, step by step, and what the table must hold after it. Pure.

A step follows from the seed, the program's name and the step's number alone. So a program that was
killed goes on where it was, and an oracle that has seen no file of the table knows every row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

REGIONS: Final = ("africa", "america", "asia", "europe")


class Row(NamedTuple):
    """A row of the table: `id` is its key, `region` its partition."""

    id: int
    region: str
    amount: int
    writer: str
    step: int


@dataclass(frozen=True, slots=True)
class Upsert:
    """Rows that are there afterwards as they are here."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Raise:
    """One more for the amount of every row whose id leaves `remainder`."""

    modulus: int
    remainder: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Rows that are gone afterwards."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """Amounts to be added where there is a row, and rows to be inserted where there is none."""

    rows: tuple[Row, ...]


Step = Upsert | Raise | Delete | Merge
State = dict[int, Row]


@dataclass(frozen=True, slots=True)
class Terms:
    """What the programs of a fleet have in common."""

    seed: int = 1
    keys: int = 2_000
    rows: int = 40
    modulus: int = 97

    def rows_of(self, writer: str, step: int, *, count: int | None = None) -> tuple[Row, ...]:
        """Return the rows of a step; most keys are other programs' as well."""
        draws = self._draws(writer, step, 2 * (count or self.rows))
        ids = dict.fromkeys(draw % self.keys for draw in draws[::2])
        return tuple(
            Row(key, REGIONS[key % len(REGIONS)], draw % 10_000, writer, step)
            for key, draw in zip(ids, draws[1::2], strict=False)
        )

    def upsert_of(self, writer: str, step: int) -> Step:
        """Return the step of a program that upserts."""
        return Upsert(self.rows_of(writer, step))

    def statement_of(self, writer: str, step: int) -> Step:
        """Return the step of a program that speaks SQL: one kind after the other."""
        first, *_ = draws = self._draws(writer, step, 4)
        match step % 3:
            case 0:
                return Delete(tuple(dict.fromkeys(draw % self.keys for draw in draws[1:])))
            case 1:
                return Raise(self.modulus, first % self.modulus)
            case _:
                return Merge(self.rows_of(writer, step, count=8))

    def _draws(self, writer: str, step: int, count: int) -> list[int]:
        drawn = hashlib.shake_128(f"{self.seed}/{writer}/{step}".encode()).digest(8 * count)
        return [int.from_bytes(drawn[at : at + 8], "big") for at in range(0, len(drawn), 8)]


def apply(state: State, step: Step) -> None:
    """Do to the state what the step does to the table."""
    match step:
        case Upsert(rows):
            state.update((row.id, row) for row in rows)
        case Raise(modulus, remainder):
            for key, row in state.items():
                if key % modulus == remainder:
                    state[key] = row._replace(amount=row.amount + 1)
        case Delete(ids):
            for key in ids:
                state.pop(key, None)
        case Merge(rows):
            for row in rows:
                held = state.get(row.id)
                state[row.id] = (
                    row if held is None else held._replace(amount=held.amount + row.amount)
                )
        case _:
            assert_never(step)


def replayed(steps: Iterable[Step]) -> State:
    """Return what a table holds after these steps, one after the other."""
    state: State = {}
    for step in steps:
        apply(state, step)
    return state


def differences(expected: Mapping[int, Row], found: Iterable[Row]) -> list[str]:
    """Return how the rows of a table differ from what they must be, a line each."""
    seen: dict[int, Row] = {}
    told = []
    for row in found:
        if row.id in seen:
            told.append(f"id {row.id} is there twice: {seen[row.id]} and {row}")
        seen[row.id] = row
        if row.id not in expected:
            told.append(f"id {row.id} should not be there: {row}")
        elif row != expected[row.id]:
            told.append(f"id {row.id} is {row}, and should be {expected[row.id]}")
    told.extend(f"id {key} is missing: {expected[key]}" for key in expected if key not in seen)
    return told
