"""Measure: `python -m benchmarks [--keep | --page] [PART ...]`, parts as in `suite.PARTS`.

Without parts everything is measured, the results are kept in `benchmarks/results/`, and
docs/performance.md is written from them. With parts the tables are only printed; with `--keep` they
also take the place of the same parts in the newest results, and on the page. With `--page` nothing
is measured: the page is written from the newest results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from benchmarks.kept import joined, keep, newest, write_page
from benchmarks.page import tables
from benchmarks.suite import PARTS, begin


def main(arguments: Sequence[str]) -> int:
    """Measure the named parts, or all; return the exit code."""
    if "--page" in arguments:
        if (kept := newest()) is not None:
            write_page(kept)
        return 0
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
        keep(joined(results), results.taken_at)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
