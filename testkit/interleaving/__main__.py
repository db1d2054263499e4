"""`python -m testkit.interleaving`."""

from __future__ import annotations

import sys

from testkit.interleaving.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
