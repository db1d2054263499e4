"""The archive that Spark executors import contains the product only."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from tidelock.execution.spark.session import package_folder, write_archive


def test_archive_has_all_files_of_the_package_and_no_others(tmp_path: Path) -> None:
    folder = package_folder()
    assert folder is not None
    with zipfile.ZipFile(write_archive(tmp_path / "tidelock.zip")) as archive:
        shipped = set(archive.namelist())
    sources = {f"tidelock/{file.relative_to(folder).as_posix()}" for file in folder.rglob("*.py")}
    assert sources <= shipped
    assert {name.partition("/")[0] for name in shipped} == {"tidelock"}
    folders = {part for name in shipped for part in Path(name).parts}
    assert not folders & {"testkit", "tests", "benchmarks", "scripts", "__pycache__"}


def test_same_package_gives_the_same_archive(tmp_path: Path) -> None:
    first, second = write_archive(tmp_path / "a.zip"), write_archive(tmp_path / "b.zip")
    assert first.read_bytes() == second.read_bytes()
