"""Search the lock machine from the command line: `python -m testkit.explore --help`."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any

from testkit.explore.bounds import DEEP, SCENARIOS, Bounds
from testkit.explore.mutants import MUTANTS
from testkit.explore.search import SearchResult, Violation, replay, search

DEEP_STATES = 5_000_000
COMMAND = "python -m testkit.explore"
SIZES = tuple(f.name for f in fields(Bounds) if f.name not in ("operations", "starts"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if no violation was found, 1 otherwise (reversed for mutants)."""
    options = _parser().parse_args(arguments)
    if options.mutants:
        return _print(_mutants())
    planted = MUTANTS[options.mutant].plant() if options.mutant else nullcontext()
    with planted:
        if options.replay:
            path = [int(choice) for choice in options.replay.split(",")]
            return _print((line, True) for line in replay(_one(options), path))
        return _print(_searches(options))


def _print(lines: Iterable[tuple[str, bool]]) -> int:
    every_good = True
    for line, good in lines:
        every_good &= good
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    return 0 if every_good else 1


def _searches(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    for name, bounds in _scenarios(options).items():
        limit = options.states or (DEEP_STATES if options.deep else None)
        began = time.monotonic()
        found = search(bounds, states_max=limit)
        took_s = time.monotonic() - began
        yield summary(name, found, took_s), found.violation is None
        if found.violation:
            yield from (
                (line, True) for line in counterexample(found.violation, bounds, options.mutant)
            )


def _mutants() -> Iterator[tuple[str, bool]]:
    for name, mutant in MUTANTS.items():
        with mutant.plant():
            found = search(mutant.bounds)
        caught = found.violation.description if found.violation else "NOT FOUND"
        yield f"{name:<32} {found.states:>9,} states  {caught}", found.violation is not None


def summary(name: str, found: SearchResult, took_s: float) -> str:
    """Return the outcome of one search as one line."""
    reach = "complete" if found.complete else "not complete"
    outcome = (
        f"VIOLATED {found.violation.description}" if found.violation else f"{reach}, 0 violations"
    )
    sizes = f"{found.states:>10,} states {found.transitions:>12,} transitions"
    return f"{name:<20} {sizes} {took_s:>6.1f} s  {outcome}"


def counterexample(violation: Violation, bounds: Bounds, mutant: str | None = None) -> list[str]:
    """Return the shortest path to a violation, one line per step, and the command to replay it."""
    path = ",".join(str(choice) for choice in violation.path)
    planted = f" --mutant {shlex.quote(mutant)}" if mutant else ""
    again = f"{COMMAND} --replay {path}{planted} {_as_options(bounds)}"
    return [*violation.lines, violation.description, f"replay: {again}"]


def _as_options(bounds: Bounds) -> str:
    sizes = (f"--{name.replace('_', '-')} {getattr(bounds, name)}" for name in SIZES)
    operations = ",".join(str(count) for count in bounds.operations_of())
    return " ".join((*sizes, f"--operations {operations}", f"--starts {','.join(bounds.starts)}"))


def _scenarios(options: argparse.Namespace) -> dict[str, Bounds]:
    changes = _changes(options)
    known = {**SCENARIOS, **DEEP}
    if options.scene:
        return {name: replace(known[name], **changes) for name in options.scene}
    if changes:
        return {"custom": replace(Bounds(), **changes)}
    return DEEP if options.deep else SCENARIOS


def _one(options: argparse.Namespace) -> Bounds:
    (bounds,) = _scenarios(options).values()
    return bounds


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    changes: dict[str, Any] = {
        name: value for name in SIZES if (value := getattr(options, name)) is not None
    }
    if options.operations:
        counts = tuple(int(count) for count in options.operations.split(","))
        changes["operations"] = counts[0] if len(counts) == 1 else counts
    if options.starts:
        changes["starts"] = tuple(options.starts.split(","))
    return changes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Search the lock machine.")
    parser.add_argument(
        "--scene", action="append", choices=[*SCENARIOS, *DEEP], help="run only this scenario"
    )
    parser.add_argument(
        "--deep",
        action="store_true",
        help="run the large searches: three clients, millions of states",
    )
    parser.add_argument("--states", type=int, help="stop a search after this many states")
    parser.add_argument(
        "--mutants", action="store_true", help="check that each planted bug is found"
    )
    parser.add_argument("--mutant", choices=list(MUTANTS), help="plant this bug")
    parser.add_argument("--replay", metavar="PATH", help="replay a path printed for a violation")
    parser.add_argument(
        "--operations", metavar="N[,N…]", help="number of operations of each client"
    )
    parser.add_argument(
        "--starts",
        metavar="NAME[,NAME…]",
        help="initial objects: absent, free, held, java, unreadable",
    )
    for name in SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
