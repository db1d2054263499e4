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
from testkit.txnsim.campaign import Campaign, CampaignResult, run_part


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 1 if a guarantee is violated."""
    options = _parser().parse_args(arguments)
    campaign = Campaign(
        options.start, options.schedules, options.services, options.java, options.rows
    )
    if options.seed is not None:
        trace: list[str] = []
        outcome = campaign.run(options.seed, trace)
        return print_replay(trace, outcome.violations)
    parts = campaign.chunks()
    result = run_campaign(CampaignResult(), campaign, parts, run_part, processes=options.processes)
    return print_report(result)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m testkit.txnsim",
        description="Simulate many writers of one table.",
    )
    add_seed_arguments(parser, schedules=1_000)
    parser.add_argument("--services", action="store_true", help="with table services")
    parser.add_argument(
        "--java", action="store_true", help="with --services: also an external writer"
    )
    parser.add_argument(
        "--rows", action="store_true", help="real rows and files, with the production operations"
    )
    return parser
