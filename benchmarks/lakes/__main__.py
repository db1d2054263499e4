"""Measure beside other lakes: `python -m benchmarks.lakes [--scale S] [--rounds N] [--keep]`.

With `--keep` the figures take the place of older ones in the newest results and on the page.
`--systems` chooses some of them, `--minutes` is how long one of them may take in a round.
"""

from __future__ import annotations

import argparse

from benchmarks.kept import joined, keep
from benchmarks.lakes.contest import ROUNDS, SCALE, SYSTEM_S_MAX
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.page import tables
from benchmarks.suite import begin, measure_lakes


def main() -> None:
    """Measure with the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lakes")
    parser.add_argument("--scale", type=float, default=SCALE, help="of TPC-H; 1 is 6 million rows")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--minutes", type=float, default=SYSTEM_S_MAX / 60)
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--once", action="store_true", help="only see that everything works")
    asked = parser.parse_args()
    results = begin()
    measure_lakes(
        results,
        scale=asked.scale,
        rounds=asked.rounds,
        systems=asked.systems,
        system_s_max=asked.minutes * 60,
        once=asked.once,
    )
    print(tables(results))
    if asked.keep:
        keep(joined(results), results.taken_at)


if __name__ == "__main__":
    main()
