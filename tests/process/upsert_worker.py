"""A process that upserts into a table repeatedly, and prints the result of each batch.

Run as `python -m tests.process.upsert_worker URI NUMBER BATCHES OPTIONS`; waits for a signal.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import tidelock as tl

HOT = 6
"""Keys that every writer updates in every batch."""


def batch(writer: int, number: int) -> list[dict[str, Any]]:
    """Return rows with keys shared by all writers, keys inserted by pairs of them, and its own
    keys."""
    who = f"{writer}/{number}"
    shared = [{"id": f"hot-{key}", "ts": number, "who": who} for key in range(HOT)]
    paired = {"id": f"both-{number}-{writer // 2}", "ts": 0, "who": who}
    return [*shared, paired, {"id": f"own-{who}", "ts": 0, "who": who}]


def main() -> None:
    """Write the batches; print the completion time and the rebases of each."""
    uri, writer, batches, options = sys.argv[1:]
    with tl.Table.open(uri, options=json.loads(options)) as table:
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(int(batches)):
            report = table.upsert(batch(int(writer), number))
            result = {"completion": report.completion, "rebases": report.rebases, "number": number}
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
