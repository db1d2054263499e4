"""Compare table formats: `python -m benchmarks.lakes [--suite goals] [--scale S] [--keep]`.

With `--keep` the figures replace older ones of the same suite, in the newest results and on the
page; they are saved after each system. `--systems` selects systems, `--minutes` limits the time of
a system in a round. `--suite goals` has only the steps with goals, so that it can be run with many
rows; `--suite merges` measures MERGE INTO.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from benchmarks import merging
from benchmarks.lakes.comparison import ComparisonOptions
from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.merges import KINDS
from benchmarks.lakes.suites import SUITES
from benchmarks.page import tables
from benchmarks.saved_results import keep, merge_with_newest, save
from benchmarks.suite import begin, measure_lakes, measure_merging

_MERGES = "merges"


def main() -> None:
    """Measure with the arguments of the command line."""
    usual = ComparisonOptions()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lakes")
    parser.add_argument("--suite", choices=[*SUITES, _MERGES], default=usual.suite)
    parser.add_argument("--scale", type=float, default=usual.scale, help="1 is 6 million rows")
    parser.add_argument("--rounds", type=int, default=usual.rounds)
    parser.add_argument("--minutes", type=float, default=usual.system_s_max / 60)
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=usual.systems)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--once", action="store_true", help="only check that everything works")
    arguments = parser.parse_args()
    # SIGTERM also ends the child process and its JVM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results = begin()

    def after_each() -> None:
        if arguments.keep:
            save(merge_with_newest(results), results.taken_at)

    system_s_max = arguments.minutes * 60
    if arguments.suite == _MERGES:
        systems: Sequence[str] = [each for each in arguments.systems if each in KINDS]
        rounds = 1 if arguments.once else arguments.rounds
        merge_options = merging.MergeOptions(arguments.scale, rounds, systems, system_s_max)
        measure_merging(results, merge_options, after_each)
    else:
        options = ComparisonOptions(
            scale=arguments.scale,
            rounds=arguments.rounds,
            systems=arguments.systems,
            system_s_max=system_s_max,
            suite=arguments.suite,
            once=arguments.once,
        )
        measure_lakes(results, options, after_each)
    print(tables(results))
    if arguments.keep:
        keep(merge_with_newest(results), results.taken_at)


if __name__ == "__main__":
    main()
