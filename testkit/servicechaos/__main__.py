"""`python -m testkit.servicechaos`: kill writers and services of a table, and check it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testkit.servicechaos.fleet import run

_KINDS = ("COPY_ON_WRITE", "MERGE_ON_READ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested tables; return 1 if a guarantee was violated."""
    parser = argparse.ArgumentParser(prog="python -m testkit.servicechaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="duration for each table")
    parser.add_argument("--kind", choices=_KINDS, help="only this type of table")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--services", type=int, default=8)
    parser.add_argument("--keep", type=Path, help="folder in which to keep the tables")
    chosen = parser.parse_args(arguments)
    failed = False
    for kind in [chosen.kind] if chosen.kind else _KINDS:
        with tempfile.TemporaryDirectory(prefix="tidelock-chaos-") as made:
            home = chosen.keep / kind if chosen.keep else Path(made)
            home.mkdir(parents=True, exist_ok=True)
            result = run(
                home,
                kind,
                seconds=chosen.minutes * 60,
                writers=chosen.writers,
                services=chosen.services,
            )
        sys.stdout.write("\n".join([kind, *result.lines()]) + "\n")
        failed = failed or bool(result.problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
