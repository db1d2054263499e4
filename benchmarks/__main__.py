"""Measure: `python -m benchmarks [--keep] [PART ...]`, parts as in `benchmarks.suite.PARTS`.

Without parts everything is measured, the results are kept in `benchmarks/results/`, and
docs/performance.md is written from them. With parts the tables are only printed; with `--keep` they
also take the place of the same parts in the newest results, and on the page.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.kept import loaded
from benchmarks.page import page, tables
from benchmarks.suite import PARTS, Results, begin

_RESULTS = Path(__file__).parent / "results"
_PAGE = Path(__file__).parent.parent / "docs" / "performance.md"


def main(arguments: Sequence[str]) -> int:
    """Measure the named parts, or all; return the exit code."""
    keeps = "--keep" in arguments
    names = [each for each in arguments if each != "--keep"]
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    results = begin()
    for name in names or PARTS:
        began = time.monotonic()
        print(f"measuring {name} ...", end=" ", flush=True, file=sys.stderr)
        PARTS[name](results)
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    print(tables(results))
    if not names:
        keep(results, results.taken_at)
    elif keeps:
        keep(_joined(results), results.taken_at)
    return 0


def _joined(fresh: Results) -> Results:
    """Return the newest kept results with what was measured now in its place."""
    newest = max(_RESULTS.glob("*.json"), default=None)
    if newest is None:
        return fresh
    before = loaded(Results, json.loads(newest.read_text()))
    for name in asdict(fresh):
        value = getattr(fresh, name)
        if isinstance(value, list) and value:
            setattr(before, name, value)
            before.taken[name] = fresh.taken_at
    before.missing.update(fresh.missing)
    return before


def keep(results: Results, at: str) -> None:
    """Write results under the time they are kept at, and the page made from them."""
    _RESULTS.mkdir(exist_ok=True)
    file = _RESULTS / f"{at.replace(':', '')}.json"
    file.write_text(json.dumps(asdict(results), indent=1) + "\n")
    _PAGE.write_text(page(results))
    print(f"kept in {file.name}; wrote {_PAGE.name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
