"""`python -m testkit.crash`: kill a victim at every crash point, and print the counts."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testkit.crash.harness import Harness
from testkit.crash.planted import InPlaceStore
from testkit.crash.strace import find_strace
from tidelock.storage.contract import ObjectStore
from tidelock.storage.local import LocalStore

_STORES = {"local": LocalStore, "in-place": InPlaceStore}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected kinds of crash points; return 1 if there were problems."""
    parser = argparse.ArgumentParser(prog="python -m testkit.crash", description=__doc__)
    parser.add_argument(
        "kind",
        nargs="*",
        default=["requests", "calls", "faults"],
        help="requests: kill before and after each store request; calls: kill at each system call"
        " that writes; faults: let each of these calls fail (default: all three)",
    )
    parser.add_argument(
        "--store",
        choices=sorted(_STORES),
        default="local",
        help="in-place is a planted bug that must be found",
    )
    parser.add_argument("--every", type=int, default=1, help="only every n-th system call")
    options = parser.parse_args(arguments)

    def opened(root: Path) -> ObjectStore:
        return _STORES[options.store](root)

    with tempfile.TemporaryDirectory(prefix="tidelock-crash-") as home:
        harness = Harness(opened, Path(home))
        if "requests" in options.kind:
            harness.kill_at_requests()
        if "calls" in options.kind:
            harness.kill_at_calls(find_strace(), every=options.every)
        if "faults" in options.kind:
            harness.fail_calls(find_strace())
    for line in harness.report.lines():
        sys.stdout.write(f"{line}\n")
    return 1 if harness.report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
