"""The command line: replay one case, sample some, or run the complete matrix."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

from tidelock.testing.interleaving.campaign import Campaign, judged, run_campaign
from tidelock.testing.interleaving.cases import parsed
from tidelock.testing.interleaving.runner import run_case
from tidelock.testing.interleaving.shrink import shrunk


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; return 1 if a case is wrong."""
    warnings.simplefilter("ignore")
    options = _parser().parse_args(arguments)
    if options.replay is not None:
        return _replay(options.replay, shrinks=options.shrink)
    campaign = Campaign(options.seed, 0 if options.complete else options.cases)
    done = run_campaign(campaign, processes=options.processes, say=_say)
    _say(done.listed())
    _say(done.summary())
    return 1 if done.wrong else 0


def _replay(line: str, *, shrinks: bool) -> int:
    case = parsed(line)
    if shrinks and judged(case):
        case = shrunk(case, judged)
    outcome = run_case(case, trace=_say)
    _say(f"{case}: {outcome.ends}, {outcome.rebases} rebases")
    for each in outcome.wrong:
        _say(f"WRONG  {each}")
    return 1 if outcome.wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tidelock.testing.interleaving",
        description="Place operations inside each other, and compare the table with an oracle.",
    )
    parser.add_argument("--replay", metavar="CASE", help="run one case and tell all about it")
    parser.add_argument("--shrink", action="store_true", help="with --replay: make it small first")
    parser.add_argument("--cases", type=int, default=1_000, help="how many to draw")
    parser.add_argument("--complete", action="store_true", help="run the complete matrix")
    parser.add_argument("--seed", type=int, default=0, help="which ones are drawn")
    parser.add_argument("--processes", type=int, default=2, help="how many at a time")
    return parser


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the command's output
