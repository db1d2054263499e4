"""Search the lock machine from the command line: `python -m tidelock.testing.explore --help`."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any

from tidelock.testing.explore.bounds import DEEP, SCENES, Bounds
from tidelock.testing.explore.mutants import MUTANTS
from tidelock.testing.explore.search import Found, Violation, replay, search

DEEP_STATES = 5_000_000
COMMAND = "python -m tidelock.testing.explore"
SIZES = tuple(f.name for f in fields(Bounds) if f.name not in ("operations", "starts"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Search what was asked for; 0 if it holds, 1 if a mistake was found (or none in a mutant)."""
    options = _parser().parse_args(arguments)
    if options.mutants:
        return _say(_mutants())
    planted = MUTANTS[options.mutant].plant() if options.mutant else nullcontext()
    with planted:
        if options.replay:
            path = [int(choice) for choice in options.replay.split(",")]
            return _say((line, True) for line in replay(_one(options), path))
        return _say(_searches(options))


def _say(lines: Iterable[tuple[str, bool]]) -> int:
    every_good = True
    for line, good in lines:
        every_good &= good
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    return 0 if every_good else 1


def _searches(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    for name, bounds in _scenes(options).items():
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
        caught = found.violation.says if found.violation else "NOT FOUND"
        yield f"{name:<32} {found.states:>9,} states  {caught}", found.violation is not None


def summary(name: str, found: Found, took_s: float) -> str:
    """Return the outcome of one search in a line."""
    reach = "complete" if found.complete else "not complete"
    outcome = f"VIOLATED {found.violation.says}" if found.violation else f"{reach}, 0 violations"
    sizes = f"{found.states:>10,} states {found.transitions:>12,} transitions"
    return f"{name:<20} {sizes} {took_s:>6.1f} s  {outcome}"


def counterexample(violation: Violation, bounds: Bounds, mutant: str | None = None) -> list[str]:
    """Return the shortest way to a mistake, a line a step, and the command that shows it again."""
    path = ",".join(str(choice) for choice in violation.path)
    planted = f" --mutant {shlex.quote(mutant)}" if mutant else ""
    again = f"{COMMAND} --replay {path}{planted} {_as_options(bounds)}"
    return [*violation.lines, violation.says, f"again: {again}"]


def _as_options(bounds: Bounds) -> str:
    sizes = (f"--{name.replace('_', '-')} {getattr(bounds, name)}" for name in SIZES)
    operations = ",".join(str(count) for count in bounds.operations_of())
    return " ".join((*sizes, f"--operations {operations}", f"--starts {','.join(bounds.starts)}"))


def _scenes(options: argparse.Namespace) -> dict[str, Bounds]:
    changes = _changes(options)
    known = {**SCENES, **DEEP}
    if options.scene:
        return {name: replace(known[name], **changes) for name in options.scene}
    if changes:
        return {"as asked": replace(Bounds(), **changes)}
    return DEEP if options.deep else SCENES


def _one(options: argparse.Namespace) -> Bounds:
    (bounds,) = _scenes(options).values()
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
    parser.add_argument("--scene", action="append", choices=[*SCENES, *DEEP], help="only this one")
    parser.add_argument("--deep", action="store_true", help="three clients, millions of states")
    parser.add_argument("--states", type=int, help="stop a search after this many states")
    parser.add_argument("--mutants", action="store_true", help="search for the planted mistakes")
    parser.add_argument("--mutant", choices=list(MUTANTS), help="plant this mistake")
    parser.add_argument("--replay", metavar="PATH", help="tell the story of one way again")
    parser.add_argument("--operations", metavar="N[,N…]", help="of each client")
    parser.add_argument(
        "--starts", metavar="NAME[,NAME…]", help="absent, free, held, java, spoiled"
    )
    for name in SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
