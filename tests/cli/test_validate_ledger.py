"""`validate` checks the ledger; each kind of damage to it is reported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from tests.cli.program import Program
from tidelock.hudi.snapshot import open_table
from tidelock.hudi.timeline.instant import format_time, parse_time
from tidelock.inspect.validate_findings import Severity, ValidationFinding
from tidelock.inspect.validate_ledger import check_ledger
from tidelock.storage.uri import open_store
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.entries import LedgerEntry, Rollback, decode, encode, entry_key

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table with four ledger entries, shared and never modified."""
    folder = tmp_path_factory.mktemp("ledger") / "orders"
    with tl.Table.create(str(folder), SCHEMA, key="id") as table:
        for number in range(3):
            table.upsert([{"id": number, "name": "x"}])
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """Return a copy to damage."""
    return Path(shutil.copytree(written, tmp_path / "orders"))


def findings(folder: Path) -> list[ValidationFinding]:
    """Validate the ledger of a table."""
    store = open_store(str(folder))
    try:
        return list(check_ledger(open_table(store)))
    finally:
        store.close()


def the_entry(folder: Path, position: int) -> LedgerEntry:
    key = entry_key(position)
    return decode((folder / key).read_bytes(), where=key)


def last_position(folder: Path) -> int:
    return max(int(path.stem) for path in (folder / entry_key(1)).parent.glob("*.json"))


def published(folder: Path) -> list[Path]:
    """Return the completed timeline files, in order."""
    return sorted((folder / ".hoodie/timeline").glob("*_*.commit"))


def append(folder: Path, fact: Rollback) -> None:
    """Append an entry to the ledger by hand."""
    last = the_entry(folder, last_position(folder))
    time = format_time(parse_time(last.time) + 1)
    entry = LedgerEntry(last.position + 1, time, "tester", "nonce", last.nonce, 0, fact)
    (folder / entry_key(entry.position)).write_bytes(encode(entry))


def test_valid_ledger_has_no_findings(folder: Path) -> None:
    assert findings(folder) == []
    assert last_position(folder) == 4


def _missing(folder: Path) -> None:
    (folder / entry_key(2)).unlink()


def _garbled(folder: Path) -> None:
    (folder / entry_key(2)).write_bytes(b"{")


def _elsewhere(folder: Path) -> None:
    (folder / entry_key(3)).write_bytes((folder / entry_key(2)).read_bytes())


def _unchained(folder: Path) -> None:
    entry = the_entry(folder, 3)
    (folder / entry_key(3)).write_bytes(encode(replace(entry, before="another")))


def _back_in_time(folder: Path) -> None:
    entry = the_entry(folder, 3)
    earlier = replace(entry, time=the_entry(folder, 2).time)
    (folder / entry_key(3)).write_bytes(encode(earlier))


def _invalid_entry(folder: Path) -> None:
    fact = the_entry(folder, 3).fact
    append(folder, Rollback(fact.instant))  # type: ignore[union-attr]


def _bad_checkpoint(folder: Path) -> None:
    (folder / CHECKPOINT_KEY).write_bytes(b"no JSON")


@pytest.mark.parametrize(
    ("damage", "key", "says"),
    [
        (_missing, entry_key(2), "entry 3 exists"),
        (_garbled, entry_key(2), ""),
        (_elsewhere, entry_key(3), "found entry 2"),
        (_unchained, entry_key(3), "its predecessor"),
        (_back_in_time, entry_key(3), "is not after"),
        (_invalid_entry, entry_key(5), "is complete"),
        (_bad_checkpoint, CHECKPOINT_KEY, ""),
    ],
)
def test_damaged_ledger_is_reported(
    folder: Path, damage: Callable[[Path], None], key: str, says: str
) -> None:
    damage(folder)
    (finding,) = findings(folder)
    assert (finding.severity, finding.object) == (Severity.PROBLEM, key)
    assert says in finding.what


def test_unpublished_commit_is_a_warning(folder: Path) -> None:
    published(folder)[-1].unlink()
    (finding,) = findings(folder)
    assert (finding.severity, finding.object) == (Severity.WARNING, entry_key(4))


def test_commit_missing_below_a_published_one_is_a_problem(folder: Path) -> None:
    published(folder)[1].unlink()
    (finding,) = findings(folder)
    assert (finding.severity, finding.object) == (Severity.PROBLEM, entry_key(2))


def test_published_file_with_other_bytes_is_a_problem(folder: Path) -> None:
    first, second = published(folder)[1:3]
    second.write_bytes(first.read_bytes())
    (finding,) = findings(folder)
    assert finding.severity is Severity.PROBLEM
    assert finding.object.endswith(second.name)
    assert "ledger entry 3" in finding.what


def test_completed_write_that_the_ledger_rolled_back_is_a_problem(
    folder: Path,
) -> None:
    last = the_entry(folder, last_position(folder))
    zombie, done = (format_time(parse_time(last.time) + step) for step in (10, 20))
    append(folder, Rollback(zombie))
    shutil.copy(published(folder)[0], folder / f".hoodie/timeline/{zombie}_{done}.commit")
    (finding,) = findings(folder)
    assert finding.severity is Severity.PROBLEM
    assert "rolled it back" in finding.what


def test_commit_by_a_writer_without_a_ledger_is_a_warning(folder: Path) -> None:
    last = the_entry(folder, last_position(folder))
    other, done = (format_time(parse_time(last.time) + step) for step in (10, 20))
    shutil.copy(published(folder)[0], folder / f".hoodie/timeline/{other}_{done}.commit")
    (finding,) = findings(folder)
    assert finding.severity is Severity.WARNING
    assert "not in the ledger" in finding.what


def test_command_checks_the_ledger(tidelock: Program, folder: Path) -> None:
    assert tidelock("table", "validate", str(folder)).code == 0
    _missing(folder)
    ended = tidelock("table", "validate", str(folder))
    assert ended.code == 1
    assert entry_key(2) in ended.out
