"""An executor may crash before any request: rows are unchanged, and others finish or roll back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from testkit.tablecrash.stops import InterceptedUpload
from tidelock.hudi.schema import FILE_NAME
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_ledger import check_ledger
from tidelock.operations.read import snapshot_now
from tidelock.storage.contract import PutMode, PutReply, Upload
from tidelock.storage.local import LocalStore
from tidelock.table import Table
from tidelock.txn.heartbeats import HEARTBEAT_FOLDER

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])
OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}
SERVICES: dict[str, Callable[[Table], object]] = {
    "compact": Table.compact,
    "cluster": Table.cluster,
    "clean": Table.clean,
    "archive": Table.archive,
}


class Ended(BaseException):
    """Raised when the simulated process has ended."""


@dataclass
class EndingStore:
    """Passes a number of changes through, and then refuses everything."""

    inner: LocalStore
    left: int
    ended: bool = field(default=False)

    def __getattr__(self, name: str) -> Any:
        if self.ended:
            raise Ended
        return getattr(self.inner, name)

    def change(self) -> None:
        if self.ended or not self.left:
            self.ended = True
            raise Ended
        self.left -= 1

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        self.change()
        return self.inner.put(key, body, mode)

    def delete(self, key: str) -> None:
        self.change()
        self.inner.delete(key)

    def upload(self, key: str) -> Upload:
        return InterceptedUpload(self.inner.upload(key), self.finish)

    def finish(self, finish: Callable[[], PutReply]) -> PutReply:
        self.change()
        return finish()


def rows(*ids: int, v: str, ts: int) -> pa.Table:
    return pa.table([list(ids), [v] * len(ids), [ts] * len(ids)], schema=SCHEMA)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table with work for every service."""
    folder = tmp_path_factory.mktemp("told") / "t"
    with Table.create(
        str(folder), SCHEMA, key="id", ordering="ts", type="MERGE_ON_READ", options=OPTIONS
    ) as table:
        for number in range(3):
            table.insert(rows(number, number + 10, v="first", ts=1))
        table.upsert(rows(0, v="second", ts=2))
        table.compact()
        for number in range(2):
            table.upsert(rows(0, 1, v=f"v{number}", ts=3 + number))
    return folder


def content(folder: Path) -> list[dict[str, Any]]:
    """Return the rows and their meta columns, except the file name."""
    with Table.open(str(folder)) as table:
        found = table.read(meta_columns=True).sort_by("id").to_pylist()
    return [{name: row[name] for name in row if name != FILE_NAME} for row in found]


def ends_before(folder: Path, service: str, changes: int) -> bool:
    """Run a service until it would make one more change than that; return whether it did."""
    store = EndingStore(LocalStore(folder, fsync=False), changes)
    table = Table(snapshot_now(store), options=OPTIONS)
    try:
        SERVICES[service](table)
    except Ended:
        return True
    finally:
        table.writer().transactions.heartbeat_thread.close()
    return False


def copies(template: Path, home: Path, service: str) -> Iterator[Path]:
    """Yield a table for each change of the service, its executor stopped before that change."""
    for changes in range(500):
        folder = Path(shutil.copytree(template, home / f"{service}-{changes}"))
        if not ends_before(folder, service, changes):
            return
        yield folder
    raise AssertionError("the service does not end")


@pytest.mark.parametrize("service", SERVICES)
def test_rows_stay_and_the_work_is_finished_or_rolled_back(
    template: Path, tmp_path: Path, service: str
) -> None:
    before = content(template)
    points = 0
    for folder in copies(template, tmp_path, service):
        points += 1
        assert content(folder) == before, folder
        with Table.open(str(folder), options=OPTIONS) as early:
            early.upsert(rows(500, v="early", ts=1))
        for beat in (folder / HEARTBEAT_FOLDER).glob("*"):
            os.utime(beat, (1, 1))
        with Table.open(str(folder), options=OPTIONS) as other:
            other.clean()
            other.compact()
            assert other.cluster().skipped == ()
            other.archive()
            assert other.writer().transactions.ledger.refresh().plans == {}
        assert [row for row in content(folder) if row["id"] != 500] == before, folder
        store = LocalStore(folder, fsync=False)
        assert validate(store, more=[check_ledger]).findings == (), folder
        assert [m.key for m in store.list(f"{HEARTBEAT_FOLDER}/")] == []
        shutil.rmtree(folder)
    assert points > 5
