"""The command line: replay one case, sample some, or run the complete matrix."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

from testkit.campaign import print_line
from testkit.interleaving.campaign import Campaign, check_case, run_campaign
from testkit.interleaving.cases import parsed
from testkit.interleaving.runner import run_case
from testkit.interleaving.shrink import shrunk


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 1 if a case fails."""
    warnings.simplefilter("ignore")
    options = _parser().parse_args(arguments)
    if options.replay is not None:
        return _replay(options.replay, shrinks=options.shrink)
    campaign = Campaign(options.seed, 0 if options.complete else options.cases)
    done = run_campaign(campaign, processes=options.processes, report=print_line)
    print_line(done.failure_list())
    print_line(done.summary())
    return 1 if done.wrong else 0


def _replay(line: str, *, shrinks: bool) -> int:
    case = parsed(line)
    if shrinks and check_case(case):
        case = shrunk(case, check_case)
    outcome = run_case(case, trace=print_line)
    print_line(f"{case}: {outcome.ends}, {outcome.rebases} rebases")
    for each in outcome.wrong:
        print_line(f"WRONG  {each}")
    return 1 if outcome.wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m testkit.interleaving",
        description="Interleave operations on a table, and compare the result with an oracle.",
    )
    parser.add_argument("--replay", metavar="CASE", help="run one case and print its steps")
    parser.add_argument("--shrink", action="store_true", help="with --replay: shrink it first")
    parser.add_argument("--cases", type=int, default=1_000, help="number of cases to draw")
    parser.add_argument("--complete", action="store_true", help="run the complete matrix")
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawn cases")
    parser.add_argument("--processes", type=int, default=2, help="number of processes")
    return parser
