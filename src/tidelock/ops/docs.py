"""The generated pages of docs/: `python -m tidelock.ops.docs`, with `--check` to compare only.

Each page comes from the one place in the code that knows: the registry of settings, the list of
metrics, the table of the lock machine, the commands themselves.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tidelock.ops.pages.commands import commands_page
from tidelock.ops.pages.events import events_page
from tidelock.ops.pages.machine import machine_page
from tidelock.ops.pages.metrics import metrics_page
from tidelock.ops.pages.settings import settings_page
from tidelock.txn.matrix import matrix_page

PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": settings_page,
    "metrics.md": metrics_page,
    "events.md": events_page,
    "cli.md": commands_page,
    "protocol/lock-machine.md": machine_page,
    "protocol/conflicts.md": matrix_page,
}


def stale(folder: Path) -> list[str]:
    """Return the pages in `folder` that are missing or are not what the code says."""
    return [name for name, page in PAGES.items() if _read(folder / name) != page()]


def write(folder: Path) -> list[str]:
    """Write the pages that are stale; return their names."""
    names = stale(folder)
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGES[name](), encoding="utf-8")
    return names


def main(args: list[str]) -> int:
    """Write or check the pages below a folder; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tidelock.ops.docs")
    parser.add_argument("--check", action="store_true", help="write nothing; fail on stale pages")
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    given = parser.parse_args(args)
    if given.check:
        names = stale(given.folder)
        for name in names:
            print(f"{given.folder / name} is stale: run `make docs`", file=sys.stderr)
        return 1 if names else 0
    if not given.folder.is_dir():
        print(f"there is no folder {given.folder}: run this from the project", file=sys.stderr)
        return 2
    for name in write(given.folder):
        print(f"wrote {given.folder / name}")
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
