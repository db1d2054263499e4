"""`python -m tidelock.testing.crash`: kill at every point, and print how many there were."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tidelock.store.contract import ObjectStore
from tidelock.store.local import LocalStore
from tidelock.testing.crash.harness import Harness
from tidelock.testing.crash.planted import InPlaceStore
from tidelock.testing.crash.strace import find_strace

_STORES = {"local": LocalStore, "in-place": InPlaceStore}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen kinds of points; return 1 if anything was wrong afterwards."""
    parser = argparse.ArgumentParser(prog="python -m tidelock.testing.crash", description=__doc__)
    parser.add_argument("kind", nargs="*", default=["effects", "calls", "faults"])
    parser.add_argument("--store", choices=sorted(_STORES), default="local")
    parser.add_argument("--every", type=int, default=1, help="only every n-th system call")
    chosen = parser.parse_args(arguments)

    def opened(root: Path) -> ObjectStore:
        return _STORES[chosen.store](root)

    with tempfile.TemporaryDirectory(prefix="tidelock-crash-") as home:
        harness = Harness(opened, Path(home))
        if "effects" in chosen.kind:
            harness.kill_at_effects()
        if "calls" in chosen.kind:
            harness.kill_at_calls(find_strace(), every=chosen.every)
        if "faults" in chosen.kind:
            harness.fail_calls(find_strace())
    for line in harness.report.lines():
        sys.stdout.write(f"{line}\n")
    return 1 if harness.report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
