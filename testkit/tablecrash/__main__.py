"""`python -m testkit.tablecrash`: kill writers at every point, stop them and resume them."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testkit.tablecrash.harness import KINDS, Harness
from testkit.tablecrash.zombies import Zombies


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m testkit.tablecrash", description=__doc__)
    parser.add_argument(
        "what",
        nargs="*",
        default=["writers", "rollbacks", "restores", "zombies"],
        help="processes to kill at each request: writers, rollbacks (of incomplete writes), and"
        " restores (and savepoints); zombies: writers to stop and resume (default: all)",
    )
    parser.add_argument("--kind", choices=KINDS, help="one type of table only")
    parser.add_argument("--rounds", type=int, default=100, help="number of resumed writers")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tidelock-tablecrash-") as home:
        harness = Harness(Path(home))
        for kind in [chosen.kind] if chosen.kind else KINDS:
            if "writers" in chosen.what:
                harness.kill_writers(kind)
            if "rollbacks" in chosen.what:
                harness.kill_rollbacks(kind)
            if "restores" in chosen.what:
                harness.kill_restores(kind)
        if "zombies" in chosen.what:
            Zombies(Path(home), harness.report).run(chosen.rounds)
    for line in harness.report.lines():
        sys.stdout.write(f"{line}\n")
    return 1 if harness.report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
