"""What users install: the contents and the size of the wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.project import ROOT

WHEEL_BYTES_MAX = 1 << 20
FOLDERS = {
    "cli",
    "core",
    "dashboard",
    "execution",
    "hudi",
    "inspect",
    "lock",
    "operations",
    "services",
    "spark",
    "storage",
    "streamer",
    "telemetry",
    "txn",
    "workload",
}
FILES = {"__init__.py", "py.typed", "table.py"}
DATA_SUFFIXES = {
    "dashboard": {".css", ".html", ".js", ".svg"},
    "lock": {".binpb", ".proto"},
    "workload": {".html"},
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=300,
    )
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_wheel_contains_only_the_package(wheel: zipfile.ZipFile) -> None:
    names = [Path(name) for name in wheel.namelist()]
    tops = {name.parts[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tidelock"}
    inside = [name for name in names if name.parts[0] == "tidelock"]
    assert {name.parts[1] for name in inside} == FOLDERS | FILES


def test_every_module_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    modules = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    assert {name for name in wheel.namelist() if name.endswith(".py")} == modules


def test_data_files_are_those_of_the_dashboard_the_lock_service_and_the_soak_report(
    wheel: zipfile.ZipFile,
) -> None:
    for name in map(Path, wheel.namelist()):
        if name.parts[0] == "tidelock" and len(name.parts) > 2 and name.suffix != ".py":
            assert name.suffix in DATA_SUFFIXES[name.parts[1]], name


def test_wheel_is_small(wheel: zipfile.ZipFile) -> None:
    assert wheel.filename is not None
    size = Path(wheel.filename).stat().st_size
    assert size <= WHEEL_BYTES_MAX, f"{size:,} bytes"
