"""Command line: replay one seed with its trace, or run many and count faults."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from testkit.campaign import (
    add_seed_arguments,
    print_replay,
    print_report,
    run_campaign,
)
from testkit.sim.campaign import Campaign, CampaignResult, run_part
from testkit.sim.plan import Clocks
from testkit.sim.schedule import run_schedule


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 1 if a property is violated."""
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        trace: list[str] = []
        outcome = run_schedule(options.seed, Clocks(options.world or "promised"), trace)
        return print_replay(trace, outcome.violations)
    clocks = Clocks(options.world) if options.world else None
    campaign = Campaign(options.start, options.schedules, clocks)
    parts = campaign.chunks()
    result = run_campaign(CampaignResult(), campaign, parts, run_part, processes=options.processes)
    return print_report(result)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testkit.sim", description="Simulate the lock.")
    add_seed_arguments(parser, schedules=10_000)
    parser.add_argument(
        "--world",
        choices=[clocks.value for clocks in Clocks],
        help="wall clocks: promised differ by at most the drift, wild ones by more"
        " (default: every fifth seed is wild; with --seed: promised)",
    )
    return parser
