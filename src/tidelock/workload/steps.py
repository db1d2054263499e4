"""The steps that the programs of a fleet write, and the rows that result from them. Pure.

A step is determined by the seed, the name of the program and the number of the step. Therefore a
killed program can resume where it was, and the oracle knows every row without reading the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

REGIONS: Final = ("africa", "america", "asia", "europe")


class FleetRow(NamedTuple):
    """A row of the table: `id` is its key, `region` its partition."""

    id: int
    region: str
    amount: int
    writer: str
    step: int


@dataclass(frozen=True, slots=True)
class Upsert:
    """Insert or replace these rows."""

    rows: tuple[FleetRow, ...]


@dataclass(frozen=True, slots=True)
class IncrementAmounts:
    """Add one to the amount of every row with `id % modulus == remainder`."""

    modulus: int
    remainder: int


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Delete the rows with these ids."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """Add the amounts to existing rows, and insert the rows that do not exist."""

    rows: tuple[FleetRow, ...]


Step = Upsert | IncrementAmounts | DeleteRows | Merge
State = dict[int, FleetRow]


@dataclass(frozen=True, slots=True)
class StepGenerator:
    """Generates the steps of all programs of a fleet from one seed."""

    seed: int = 1
    keys: int = 2_000
    rows: int = 40
    modulus: int = 97

    def rows_of(self, writer: str, step: int, *, count: int | None = None) -> tuple[FleetRow, ...]:
        """Return the rows of a step; other programs write most of these keys too."""
        draws = self._draws(writer, step, 2 * (count or self.rows))
        ids = dict.fromkeys(draw % self.keys for draw in draws[::2])
        return tuple(
            FleetRow(key, REGIONS[key % len(REGIONS)], draw % 10_000, writer, step)
            for key, draw in zip(ids, draws[1::2], strict=False)
        )

    def upsert_of(self, writer: str, step: int) -> Step:
        """Return the step of a program that upserts."""
        return Upsert(self.rows_of(writer, step))

    def statement_of(self, writer: str, step: int) -> Step:
        """Return the step of a SQL program: update, merge and delete in turn."""
        first, *_ = draws = self._draws(writer, step, 4)
        match step % 3:
            case 0:
                return DeleteRows(tuple(dict.fromkeys(draw % self.keys for draw in draws[1:])))
            case 1:
                return IncrementAmounts(self.modulus, first % self.modulus)
            case _:
                return Merge(self.rows_of(writer, step, count=8))

    def _draws(self, writer: str, step: int, count: int) -> list[int]:
        digest = hashlib.shake_128(f"{self.seed}/{writer}/{step}".encode()).digest(8 * count)
        return [int.from_bytes(digest[at : at + 8], "big") for at in range(0, len(digest), 8)]


def apply(state: State, step: Step) -> None:
    """Apply the step to the state in place."""
    match step:
        case Upsert(rows):
            state.update((row.id, row) for row in rows)
        case IncrementAmounts(modulus, remainder):
            for key, row in state.items():
                if key % modulus == remainder:
                    state[key] = row._replace(amount=row.amount + 1)
        case DeleteRows(ids):
            for key in ids:
                state.pop(key, None)
        case Merge(rows):
            for row in rows:
                old = state.get(row.id)
                amount = row.amount + (0 if old is None else old.amount)
                state[row.id] = (old or row)._replace(amount=amount)
        case _:
            assert_never(step)


def replay(steps: Iterable[Step]) -> State:
    """Return the rows of a table after these steps in this order."""
    state: State = {}
    for step in steps:
        apply(state, step)
    return state


def differences(expected: Mapping[int, FleetRow], found: Iterable[FleetRow]) -> list[str]:
    """Describe each difference between the rows of a table and the expected rows."""
    seen: dict[int, FleetRow] = {}
    problems = []
    for row in found:
        if row.id in seen:
            problems.append(f"id {row.id} occurs twice: {seen[row.id]} and {row}")
        seen[row.id] = row
        if row.id not in expected:
            problems.append(f"id {row.id} is unexpected: {row}")
        elif row != expected[row.id]:
            problems.append(f"id {row.id}: expected {expected[row.id]}, found {row}")
    problems.extend(f"id {key} is missing: {expected[key]}" for key in expected if key not in seen)
    return problems
