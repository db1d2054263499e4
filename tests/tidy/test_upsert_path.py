"""The path from `Table.upsert` to the put of its ledger entry: few modules, few nested calls."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from functools import cache
from itertools import pairwise
from typing import Any, Final

import pytest

from tests.tidy.project import ROOT

CALLS_TO_LEDGER_MAX: Final = 12

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
MAXIMA: Final = {
    (COW, "", "first"): (46, 24),
    (COW, "", "later"): (45, 21),
    (COW, "v", "first"): (43, 24),
    (COW, "v", "later"): (43, 20),
    (MOR, "", "first"): (46, 24),
    (MOR, "", "later"): (47, 24),
    (MOR, "v", "first"): (43, 24),
    (MOR, "v", "later"): (44, 20),
}
"""The modules and the nested calls of each case: table type, partition column, which upsert.

With several partitions, files are written in other threads, which are not measured.
"""

cases = pytest.mark.parametrize(
    "case", MAXIMA, ids=lambda case: "-".join(filter(None, case)).lower()
)
Case = tuple[str, str, str]


@cache
def _measured(kind: str, partition: str) -> Any:
    command = [sys.executable, "-m", "tests.tidy.upsert_path", kind, partition]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def path_of(case: Case) -> Any:
    """Return the path of a case, as measured in a process of its own."""
    kind, partition, when = case
    return _measured(kind, partition)[when]


@cache
def _layers() -> list[list[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["id"] == "layers")
    return [names.split(" : ") for names in layers]


def _layer_of(module: str) -> int:
    folder = module.split(".")[1]
    return next(i for i, names in enumerate(_layers()) if folder in names)


def hops_upwards(edges: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the calls from a module into one of a higher layer."""
    return [edge for edge in edges if _layer_of(edge[0]) > _layer_of(edge[1])]


@cases
def test_upsert_enters_few_modules(case: Case) -> None:
    found = path_of(case)["modules"]
    assert len(found) <= MAXIMA[case][0], "\n".join(found)


@cases
def test_calls_of_an_upsert_nest_little(case: Case) -> None:
    path = path_of(case)
    assert path["to_ledger"], "no ledger entry was put in the calling thread"
    assert len(path["deepest"]) <= MAXIMA[case][1], "\n".join(path["deepest"])
    assert len(path["to_ledger"]) <= CALLS_TO_LEDGER_MAX, "\n".join(path["to_ledger"])


@cases
def test_no_call_of_an_upsert_goes_up_the_layers(case: Case) -> None:
    path = path_of(case)
    assert len(path["edges"]) > len(path["modules"]), "edges are missing"
    assert not hops_upwards(path["edges"])
    modules = [call.split()[0] for call in path["to_ledger"]]
    assert not hops_upwards(list(pairwise(modules)))


def test_hop_upwards_is_found() -> None:
    up = ("tidelock.storage.local", "tidelock.table")
    assert hops_upwards([up, up[::-1]]) == [up]
