"""Metadata tables of Hudi's Java client list the files in the folders, and damage is reported.

The package `hudi` lists files from a metadata table, so what it reads shows whether a finding
affects readers.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.java import JavaTables
from testkit.judges import HudiRs
from tests.interop.stories import KINDS, TYPES, make, row
from tests.interop.test_java_writer import WITH_METADATA_TABLE, Shared
from tidelock.hudi.metadata_table import open_metadata_table
from tidelock.hudi.partitions import list_files
from tidelock.hudi.properties import METADATA_FOLDER
from tidelock.hudi.snapshot import open_table
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_findings import Severity, ValidationFinding
from tidelock.storage.uri import open_store

BY_NAME = {kind.name: kind for kind in KINDS}
EAGER = {
    **WITH_METADATA_TABLE,
    "hoodie.metadata.compact.max.delta.commits": "3",
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}
"""The metadata table is compacted, and both are cleaned and archived, after few writes."""


def listed(uri: str) -> dict[str, int]:
    """Return the sizes of the files listed in the metadata table, by key."""
    store = open_store(uri)
    table = open_table(store)
    listing = open_metadata_table(store, table.timeline, ()).files()
    store.close()
    return {
        f"{partition}/{name}".lstrip("/"): size
        for partition, sizes in listing.sizes.items()
        for name, size in sizes.items()
    }


def in_folders(uri: str) -> dict[str, int]:
    """Return the sizes of the data files in the folders of a table."""
    store = open_store(uri)
    partitioned = open_table(store).properties.is_partitioned
    found = {file.key: file.size_bytes for file in list_files(store, partitioned=partitioned)}
    store.close()
    return found


def metadata_findings(uri: str) -> list[ValidationFinding]:
    """Return the validation findings about the metadata table."""
    store = open_store(uri)
    found = [each for each in validate(store).findings if each.check == "metadata table"]
    store.close()
    return found


@pytest.mark.parametrize(
    ("name", "table_type", "version"),
    [
        ("simple", TYPES[0], 9),
        ("simple", TYPES[1], 9),
        ("flat", TYPES[1], 9),
        ("by-time", TYPES[0], 8),
    ],
)
def test_metadata_table_matches_the_folders_through_compactions_cleans_and_archiving(
    name: str, table_type: str, version: int, tmp_path: Path, hudi_java_tables: JavaTables
) -> None:
    shared = Shared(make(tmp_path, BY_NAME[name], table_type, version), hudi_java_tables)
    with shared.ours() as table:
        table.insert([row(n) for n in range(1, 6)])
    for ts in range(2, 14):
        shared.java_writes("upsert", [row(n, ts) for n in (1, ts, 40 + ts)], EAGER)
        assert listed(shared.made.uri) == in_folders(shared.made.uri)
        assert metadata_findings(shared.made.uri) == []
    shared.java_writes("delete", [row(42)], EAGER)
    assert listed(shared.made.uri) == in_folders(shared.made.uri)
    base = Path(shared.made.uri)
    compacted = list((base / METADATA_FOLDER / "files").glob("files-0000-0_*_2*.hfile"))
    assert compacted, "the metadata table was compacted"
    assert list((base / ".hoodie/timeline/history").glob("*.parquet")), "instants were archived"
    shared.versions()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, hudi_java_tables: JavaTables) -> Shared:
    """Return a table with three Java writes and a metadata table."""
    made = make(tmp_path_factory.mktemp("java"), BY_NAME["simple"], TYPES[1], 9)
    shared = Shared(made, hudi_java_tables)
    for ts in (1, 2):
        shared.java_writes("upsert", [row(n, ts) for n in range(ts, 6)], WITH_METADATA_TABLE)
    # New rows go to a new file group.
    shared.java_writes("bulk_insert", [row(n, 3) for n in (50, 51)], WITH_METADATA_TABLE)
    return shared


@pytest.fixture
def copied(written: Shared, tmp_path: Path) -> Shared:
    """Return a copy of that table, to be damaged."""
    uri = str(tmp_path / "copy")
    shutil.copytree(written.made.uri, uri)
    assert metadata_findings(uri) == []
    return Shared(replace(written.made, uri=uri), written.java)


def last(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern))


def lose_log(base: Path) -> str:
    last(base / METADATA_FOLDER / "files", ".files-0000-0_2*.log.*").unlink()
    return "does not list it"


def lose_instant(base: Path) -> str:
    last(base / METADATA_FOLDER / ".hoodie/timeline", "2*_*.deltacommit").unlink()
    return "does not contain the write"


@pytest.mark.parametrize("lose", [lose_log, lose_instant])
def test_write_lost_from_the_metadata_table_is_hidden_and_reported(
    copied: Shared, lose: Callable[[Path], str]
) -> None:
    says = lose(Path(copied.made.uri))
    assert not {50, 51} & {each["id"] for each in HudiRs().snapshot(copied.made.uri)}
    findings = metadata_findings(copied.made.uri)
    assert findings
    assert all(each.severity is Severity.PROBLEM and says in each.what for each in findings)


def test_write_by_a_client_with_the_metadata_table_disabled_is_hidden_and_reported(
    copied: Shared,
) -> None:
    requested = copied.java_writes("bulk_insert", [row(60, 4)])
    assert 60 not in {each["id"] for each in HudiRs().snapshot(copied.made.uri)}
    (finding,) = metadata_findings(copied.made.uri)
    assert finding.severity is Severity.PROBLEM
    assert f"the write {requested}" in finding.what


def test_listed_file_that_does_not_exist_is_reported(copied: Shared) -> None:
    key = max(in_folders(copied.made.uri))
    (Path(copied.made.uri) / key).unlink()
    (finding,) = metadata_findings(copied.made.uri)
    assert (finding.severity, finding.object) == (Severity.PROBLEM, key)
    assert "it is missing" in finding.what


def test_file_with_another_size_is_reported(copied: Shared) -> None:
    key, size = max(in_folders(copied.made.uri).items())
    path = Path(copied.made.uri) / key
    path.write_bytes(path.read_bytes()[:-1])
    (finding,) = metadata_findings(copied.made.uri)
    assert (finding.severity, finding.object) == (Severity.PROBLEM, key)
    assert f"{size:,} bytes; it has {size - 1:,}" in finding.what
