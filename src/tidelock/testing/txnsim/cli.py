"""The command line: replay one seed with its trace, or run many and count what struck."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tidelock.testing.txnsim.campaign import Campaign, run_campaign


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; return 1 if anything does not hold."""
    options = _parser().parse_args(arguments)
    campaign = Campaign(
        options.start, options.schedules, options.services, options.java, options.rows
    )
    if options.seed is not None:
        return _replay(campaign, options.seed)
    done = run_campaign(campaign, processes=options.processes, say=_say)
    _say(done.table())
    _say(done.summary())
    return 1 if done.failures else 0


def _replay(campaign: Campaign, seed: int) -> int:
    trace: list[str] = []
    outcome = campaign.run(seed, trace)
    for line in trace:
        _say(line)
    for violation in outcome.violations:
        _say(f"DOES NOT HOLD  {violation}")
    return 1 if outcome.violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tidelock.testing.txnsim",
        description="Simulate many writers of one table.",
    )
    parser.add_argument("--seed", type=int, help="replay one schedule and print its trace")
    parser.add_argument("--services", action="store_true", help="with table services")
    parser.add_argument(
        "--java", action="store_true", help="with services, and somebody without a ledger"
    )
    parser.add_argument(
        "--rows", action="store_true", help="real rows and files, by the operations that ship"
    )
    parser.add_argument("--schedules", type=int, default=1_000, help="how many to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed (to go on from)")
    parser.add_argument("--processes", type=int, default=2, help="how many at a time")
    return parser


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the command's output
