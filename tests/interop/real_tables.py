"""Tables written by Apache Hudi's Java writers, unpacked for one test."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.tidy.project import ROOT

ARCHIVES = ROOT.parent / "shared" / "data" / "hudi-tables"
NAMES = (
    "cow-v8_complexkeygen_hivestyle",
    "cow-v8_nonpartitioned",
    "cow-v8_simplekeygen_nonhivestyle",
    "cow-v9_timebasedkeygen_nonhivestyle",
    "cow-v9_txns_nonpart_nometa",
    "cow-v9_txns_simple_meta",
    "mor-v8_trips_8i3u1d",
    "mor-v9_nonpartitioned_rollback",
    "mor-v9_txns_complex_meta",
    "mor-v9_txns_simple_nometa",
)


def unpacked(name: str, folder: Path) -> Path:
    """Unpack a table into `folder` and return its base path; skip where there is none."""
    archive = ARCHIVES / f"{name}.zip"
    if not archive.exists():
        pytest.skip(f"the real tables are not next to the project: no {archive.name}")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    (base,) = (place.parent for place in folder.glob("*/.hoodie"))
    return base
