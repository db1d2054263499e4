"""`python -m testkit.txnsim`."""

from __future__ import annotations

import sys

from testkit.txnsim.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
