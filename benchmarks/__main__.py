"""Measure: `python -m benchmarks [PART ...]`, parts as in `benchmarks.suite.PARTS`.

Without names everything is measured, the results are kept in `benchmarks/results/`, and
docs/performance.md is written from them. With names the tables are only printed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.page import page, tables
from benchmarks.suite import PARTS, Results, begin

_RESULTS = Path(__file__).parent / "results"
_PAGE = Path(__file__).parent.parent / "docs" / "performance.md"


def main(names: Sequence[str]) -> int:
    """Measure the named parts, or all; return the exit code."""
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
        keep(results)
    return 0


def keep(results: Results) -> None:
    """Write the results of a complete run, and the page made from them."""
    _RESULTS.mkdir(exist_ok=True)
    file = _RESULTS / f"{results.taken_at.replace(':', '')}.json"
    file.write_text(json.dumps(asdict(results), indent=1) + "\n")
    _PAGE.write_text(page(results))
    print(f"kept in {file.name}; wrote {_PAGE.name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
