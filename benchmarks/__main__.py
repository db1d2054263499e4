"""Run benchmarks: `python -m benchmarks [--keep | --page] [PART ...]`, parts as in `suite.PARTS`.

Without parts everything is measured, the results are saved in `benchmarks/results/`, and
docs/performance.md is written from them. With parts the tables are only printed; with `--keep` they
also replace the same parts in the newest results, and on the page. With `--page` nothing is
measured: the page is written from the newest results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from benchmarks.page import tables
from benchmarks.saved_results import keep, merge_with_newest, newest, write_page
from benchmarks.suite import PARTS, begin


def main(arguments: Sequence[str]) -> int:
    """Measure the named parts, or all; return the exit code."""
    if "--page" in arguments:
        if (saved := newest()) is not None:
            write_page(saved)
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
        keep(merge_with_newest(results), results.taken_at)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
