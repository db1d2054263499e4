"""`python -m tidelock.testing.txnsim`."""

from __future__ import annotations

import sys

from tidelock.testing.txnsim.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
