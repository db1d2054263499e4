"""`python -m tidelock.testing.interleaving`."""

from __future__ import annotations

import sys

from tidelock.testing.interleaving.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
