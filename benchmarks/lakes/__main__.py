"""Measure beside other lakes: `python -m benchmarks.lakes [--course goals] [--scale S] [--keep]`.

With `--keep` the figures take the place of older ones of the same course, in the newest results and
on the page, and they are kept whenever a system has come to its end. `--systems` chooses some of
them, `--minutes` is how long one of them may take in a round. `--course goals` has only the steps
that goals are judged by, and leaves time for many rows; `--course merges` is about MERGE INTO.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from benchmarks import merging
from benchmarks.kept import joined, keep, save
from benchmarks.lakes.contest import Asked
from benchmarks.lakes.course import COURSES
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.merges import KINDS
from benchmarks.page import tables
from benchmarks.suite import begin, measure_lakes, measure_merging

_MERGES = "merges"


def main() -> None:
    """Measure with the arguments of the command line."""
    usual = Asked()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lakes")
    parser.add_argument("--course", choices=[*COURSES, _MERGES], default=usual.course)
    parser.add_argument("--scale", type=float, default=usual.scale, help="1 is 6 million rows")
    parser.add_argument("--rounds", type=int, default=usual.rounds)
    parser.add_argument("--minutes", type=float, default=usual.system_s_max / 60)
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=usual.systems)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--once", action="store_true", help="only see that everything works")
    given = parser.parse_args()
    # Whoever ends this process ends the one that it waits for, and its JVM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results = begin()

    def after_each() -> None:
        if given.keep:
            save(joined(results), results.taken_at)

    system_s_max = given.minutes * 60
    if given.course == _MERGES:
        systems: Sequence[str] = [each for each in given.systems if each in KINDS]
        rounds = 1 if given.once else given.rounds
        wanted = merging.Asked(given.scale, rounds, systems, system_s_max)
        measure_merging(results, wanted, after_each)
    else:
        asked = Asked(
            scale=given.scale,
            rounds=given.rounds,
            systems=given.systems,
            system_s_max=system_s_max,
            course=given.course,
            once=given.once,
        )
        measure_lakes(results, asked, after_each)
    print(tables(results))
    if given.keep:
        keep(joined(results), results.taken_at)


if __name__ == "__main__":
    main()
