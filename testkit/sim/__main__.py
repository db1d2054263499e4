"""`python -m testkit.sim`."""

from __future__ import annotations

import sys

from testkit.sim.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
