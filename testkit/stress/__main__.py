"""`python -m testkit.stress`: run all operations at once, then replay them serially."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testkit.stress.parameters import KINDS, Kind
from testkit.stress.replay import lines
from testkit.stress.running import Plan, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if no serial order explains what was read."""
    parser = argparse.ArgumentParser(prog="python -m testkit.stress", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="duration for each table")
    parser.add_argument(
        "--kind",
        action="append",
        help=f"kinds of tables (default: all): {', '.join(map(str, KINDS))}",
    )
    parser.add_argument("--store", default="local", help="local, s3 (SeaweedFS), or a URI")
    parser.add_argument("--lock", choices=["none", "storage"], default="none")
    parser.add_argument(
        "--faulty", action="store_true", help="with --store s3: lose and delay requests"
    )
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder in which to keep tables and journals")
    parser.add_argument("--report", type=Path, help="file for the results as JSON")
    chosen = parser.parse_args(arguments)
    plan = Plan(
        chosen.minutes * 60, chosen.writers, chosen.servers, chosen.readers, faulty=chosen.faulty
    )
    results = []
    for kind in map(Kind.parsed, chosen.kind or map(str, KINDS)):
        with tempfile.TemporaryDirectory(prefix="tidelock-stress-") as made:
            folder = chosen.keep / str(kind) if chosen.keep else Path(made)
            folder.mkdir(parents=True, exist_ok=True)
            result = run(folder, kind, plan, store=chosen.store, lock=chosen.lock, seed=chosen.seed)
        results.append(result.facts)
        head = f"{result.kind} on {result.store}, lock {result.lock}: {result.seconds:.0f} s"
        report = [
            head,
            *lines(result.counted),
            *(f"{n} x {s}" for s, n in result.failures.items()),
        ]
        sys.stdout.write("\n".join([*report, *result.wrong, ""]) + "\n")
        if chosen.report is not None:
            chosen.report.write_text(json.dumps(results, indent=2))
    return 0 if all(each["passed"] for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
