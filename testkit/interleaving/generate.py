"""Generates cases: every pair of operations, and triples around a table service."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Final

from testkit.interleaving.cases import (
    CHANGES,
    COMPUTED,
    DELETES,
    ENDS,
    HISTORIES,
    INDEXES,
    KEYED,
    KINDS,
    MERGES,
    MODES,
    ORDERINGS,
    SERVICES,
    SPOTS,
    UNDOING,
    VIEWS,
    WRITES,
    Act,
    Case,
    Step,
)

_EVOLVING: Final = tuple(f"{verb}+{change}" for verb in WRITES[:4] for change in CHANGES)

VERBS: Final = (
    *WRITES,
    *DELETES,
    *COMPUTED,
    *KEYED,
    *_EVOLVING,
    *SERVICES,
    *UNDOING,
)
"""All operations, with and without a change of the schema."""

TABLES: Final = tuple(
    (kind, index, mode)
    for kind, index, mode in itertools.product(KINDS, INDEXES, MODES)
    if mode != "nbcc" or (kind, index) == ("mor", "bucket")
)
PLACES: Final = tuple(itertools.product(SPOTS, (False, True)))
A, B, C = Step("a"), Step("b"), Step("c")


def sampled(seed: int, number: int) -> Iterator[Case]:
    """Yield cases drawn by a seed, every pair of operations about equally often."""
    rng = random.Random(seed)
    pairs = list(itertools.product(VERBS, VERBS))
    rng.shuffle(pairs)
    made = 0
    for first, second in itertools.cycle(pairs):
        for _ in range(50):
            case = _draw_case(rng, first, second)
            if case is not None:
                yield case
                made += 1
                break
        if made == number:
            return


def _draw_case(rng: random.Random, first: str, second: str) -> Case | None:
    kind, index, mode = rng.choice(TABLES)
    acts = [_act(rng, first), _act(rng, second)]
    third = rng.random() < 0.25
    if third:
        # The service is in the middle: between two writers, or with them between its plan and its
        # end.
        acts.insert(1, Act(rng.choice(SERVICES)))
    spot = rng.choice(PLACES)
    if rng.random() < 0.6:
        acts = [_moved(act, *spot) for act in acts]
    steps = rng.choice(tuple(_step_orders(tuple(acts))))
    # A service without work tests nothing, so most tables have work for it.
    histories = ("logs", "plan", *HISTORIES) if any(a.verb in MERGES for a in acts) else HISTORIES
    case = Case(
        kind,
        index,
        rng.choice(ORDERINGS),
        mode,
        rng.choice(histories),
        rng.choice(VIEWS),
        tuple(acts),
        steps,
        rng.choice(("", "", "", *ENDS)),  # the other checks take longer than the case itself
    )
    return case if case.is_possible else None


def _act(rng: random.Random, verb: str) -> Act:
    return _moved(Act(verb), *rng.choice(PLACES))


def _moved(act: Act, spot: str, apart: bool) -> Act:  # noqa: FBT001 - a pair of PLACES
    verb, _, change = act.verb.partition("+")
    change = change or act.change
    named = Act(verb, change=change)
    return Act(verb, spot, apart, change) if named.writes else named


def _step_orders(acts: tuple[Act, ...]) -> Iterator[tuple[Step, ...]]:
    """Yield the orders of steps: one actor wholly or partly inside the other."""
    if len(acts) == 2:
        yield B, A
        for p in acts[0].points:
            yield Step("a", p), B, A
            for q in acts[1].points:
                yield Step("b", q), Step("a", p), B, A
        return
    yield B, C, A
    for q in acts[1].points:
        yield A, Step("b", q), C, B
        yield Step("b", q), C, B, A
        for p in acts[0].points:
            yield Step("a", p), Step("b", q), C, B, A
            yield Step("b", q), Step("a", p), C, B, A
            yield Step("b", q), Step("a", p), B, C, A
    for p in acts[0].points:
        yield Step("a", p), B, C, A
        yield Step("a", p), C, B, A


def complete(seed: int = 0) -> Iterator[Case]:
    """Yield the complete matrix.

    Every table with every pair of operations, with every combination of key locations that matters,
    and one of the pair wholly inside the other at each of its points, before it, and overlapping
    it; every table service between two plain writers; a write that is rolled back while a table
    service that saw it continues; and a write with another service inside a service. Ordering,
    history, view and end cycle from case to case; another seed starts the cycle elsewhere.
    """
    around = _VariantCycle(seed)
    for table, first, second in itertools.product(TABLES, VERBS, VERBS):
        for places in _shared(first, second):
            acts = tuple(map(_placed, (first, second), places))
            yield from around.cases(table, acts, tuple(_pair_orders(acts)))
    plain = (*WRITES, *DELETES, *COMPUTED)
    for table, first, service, last in itertools.product(TABLES, plain, SERVICES, plain):
        for spot in ("old", "new"):
            acts = _placed(first, (spot, False)), Act(service), _placed(last, (spot, False))
            yield from around.cases(table, acts, tuple(_triple_orders(acts)))
    for table, first, service, undo in itertools.product(
        TABLES, (*plain, *_EVOLVING), SERVICES, UNDOING
    ):
        for spot in ("old", "prt"):
            acts = _placed(first, (spot, False)), Act(service), Act(undo)
            seen = tuple((A, Step("b", q), C, B) for q in acts[1].points)
            yield from around.cases(table, acts, seen)
    for table, outer, inner, last in itertools.product(TABLES, SERVICES, SERVICES, plain):
        acts = Act(outer), Act(inner), _placed(last, ("old", False))
        inside = tuple((Step("a", p), C, B, A) for p in acts[0].points)
        yield from around.cases(table, acts, inside)


class _VariantCycle:
    """Cycles through the combinations of ordering, history, view and end."""

    def __init__(self, seed: int) -> None:
        self._rest = list(itertools.product(ORDERINGS, HISTORIES, VIEWS, ENDS))
        random.Random(seed).shuffle(self._rest)
        self._takes: dict[tuple[tuple[str, str, str], Act], frozenset[int]] = {}
        self._turn = 0

    def cases(
        self,
        table: tuple[str, str, str],
        acts: tuple[Act, ...],
        orders: tuple[tuple[Step, ...], ...],
    ) -> Iterator[Case]:
        """Yield a case for each order of steps, if the table supports the operations."""
        possible = frozenset.intersection(*(self._possible(table, act) for act in acts))
        if not possible:
            return
        for steps in orders:
            while True:
                self._turn = (self._turn + 1) % len(self._rest)
                if self._turn in possible:
                    break
            yield self._case(table, acts, self._turn, steps)

    def _possible(self, table: tuple[str, str, str], act: Act) -> frozenset[int]:
        known = self._takes.get((table, act))
        if known is None:
            every = range(len(self._rest))
            known = frozenset(n for n in every if self._case(table, (act,), n, (A,)).is_possible)
            self._takes[table, act] = known
        return known

    def _case(
        self,
        table: tuple[str, str, str],
        acts: tuple[Act, ...],
        number: int,
        steps: tuple[Step, ...],
    ) -> Case:
        kind, index, mode = table
        ordering, history, view, end = self._rest[number]
        return Case(kind, index, ordering, mode, history, view, acts, steps, end)


def _placed(verb: str, place: tuple[str, bool]) -> Act:
    return _moved(Act(verb), *place)


def _pair_orders(acts: tuple[Act, ...]) -> Iterator[tuple[Step, ...]]:
    """Yield B before A on an older view, inside it, and overlapping it."""
    yield B, A
    for p in acts[0].points:
        yield Step("a", p), B, A
    for q in acts[1].points[:2]:
        yield Step("b", q), Step("a", acts[0].points[-2:][0]), B, A


def _triple_orders(acts: tuple[Act, ...]) -> Iterator[tuple[Step, ...]]:
    """Yield a service inside a writer, and around one."""
    yield Step("a", "begun"), B, C, A
    yield Step("b", acts[1].points[0]), C, B, A
    if len(acts[1].points) > 1:
        yield Step("b", acts[1].points[1]), Step("a", "commit"), C, B, A


def _shared(first: str, second: str) -> Iterator[tuple[tuple[str, bool], tuple[str, bool]]]:
    """Yield the key locations of two operations: shared, separate in one place, and in two."""
    alone = Act(first.partition("+")[0]), Act(second.partition("+")[0])
    if not (alone[0].writes and alone[1].writes):
        for spot in SPOTS if alone[0].writes or alone[1].writes else SPOTS[:1]:
            yield (spot, False), (spot, False)
        return
    for spot in SPOTS:
        yield (spot, False), (spot, False)
        yield (spot, True), (spot, True)
    yield ("old", False), ("new", False)
    yield ("old", False), ("prt", False)
    yield ("bkt", False), ("old", False)
