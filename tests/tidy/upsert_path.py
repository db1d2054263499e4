"""Measures the path of upserts: `python -m tests.tidy.upsert_path COPY_ON_WRITE [PARTITION]`.

A process measures its first upsert, which is the first of the table too, and its third, when caches
are filled and files exist. Only calls in the calling thread are seen.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

import pyarrow as pa

import tidelock as tl

_SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
_ROWS = pa.table({"id": ["a", "b"], "ts": [1, 1], "v": ["x", "y"]}, _SCHEMA)


@dataclass
class UpsertPath:
    """Calls of one upsert in the calling thread, until its ledger entry is put.

    `edges` are the pairs of a module and a module that it calls.
    """

    modules: set[str] = field(default_factory=set)
    edges: set[tuple[str, str]] = field(default_factory=set)
    deepest: list[str] = field(default_factory=list)
    to_ledger: list[str] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or self.to_ledger or not _module(frame).startswith("tidelock."):
            return
        self.modules.add(_module(frame))
        calls = _calls(frame)
        if len(calls) > 1:
            self.edges.add((calls[-2].split()[0], calls[-1].split()[0]))
        if len(calls) > len(self.deepest):
            self.deepest = calls
        key = str(frame.f_locals.get("key", ""))
        if frame.f_code.co_name == "put" and "ledger" in key and key.endswith(".json"):
            self.to_ledger = calls


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _calls(frame: FrameType | None) -> list[str]:
    calls = []
    while frame is not None:
        if _module(frame).startswith("tidelock."):
            calls.append(f"{_module(frame)} {frame.f_code.co_qualname}")
        frame = frame.f_back
    return calls[::-1]


def measure(kind: str, partition: str = "") -> dict[str, UpsertPath]:
    """Return the paths of the first and of a later upsert."""
    found = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        tl.Table.create(
            str(Path(folder, "t")),
            _SCHEMA,
            key=["id"],
            ordering="ts",
            type=kind,
            partition_by=partition or None,
        ) as table,
    ):
        for when in ("first", "", "later"):
            path, before = UpsertPath(), sys.getprofile()
            sys.setprofile(path if when else None)
            try:
                table.upsert(_ROWS)
            finally:
                sys.setprofile(before)
            if when:
                found[when] = path
    return found


if __name__ == "__main__":
    print(json.dumps({k: asdict(v) for k, v in measure(*sys.argv[1:]).items()}, default=sorted))
