"""The path from `Table.upsert` to the put of its ledger entry: few modules, few nested calls."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

import tidelock as tl

MODULES_MAX = 45
CALLS_MAX = 23
CALLS_TO_LEDGER_MAX = 16

_ROOT = Path(__file__).parents[2]
_SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])


@dataclass
class UpsertPath:
    """Calls of one upsert in the calling thread, until its ledger entry is put."""

    modules: set[str] = field(default_factory=set)
    deepest: list[str] = field(default_factory=list)
    to_ledger: list[str] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or self.to_ledger or not _module(frame).startswith("tidelock."):
            return
        self.modules.add(_module(frame))
        calls = _calls(frame)
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


def _layer_of(call: str, layers: list[str]) -> int:
    room = call.split(maxsplit=1)[0].split(".")[1]
    return next(i for i, names in enumerate(layers) if room in names.split(" : "))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> UpsertPath:
    uri = str(tmp_path_factory.mktemp("upsert") / "t")
    rows = pa.table({"id": ["a", "b"], "ts": [1, 1], "v": ["x", "y"]}, _SCHEMA)
    found, before = UpsertPath(), sys.getprofile()
    with tl.Table.create(uri, _SCHEMA, key=["id"], ordering="ts") as table:
        table.upsert(rows)
        table.upsert(rows)
        sys.setprofile(found)
        try:
            table.upsert(rows)
        finally:
            sys.setprofile(before)
    assert found.to_ledger, "no ledger entry was put in the calling thread"
    return found


def test_upsert_enters_few_modules(path: UpsertPath) -> None:
    assert len(path.modules) <= MODULES_MAX, "\n".join(sorted(path.modules))


def test_calls_of_an_upsert_nest_little(path: UpsertPath) -> None:
    assert len(path.deepest) <= CALLS_MAX, "\n".join(path.deepest)
    assert len(path.to_ledger) <= CALLS_TO_LEDGER_MAX, "\n".join(path.to_ledger)


def test_calls_to_the_ledger_only_go_down_the_layers(path: UpsertPath) -> None:
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["id"] == "layers")
    passed = [_layer_of(call, layers) for call in path.to_ledger]
    assert passed == sorted(passed), "\n".join(path.to_ledger)
