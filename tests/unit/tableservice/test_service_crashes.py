"""An executor may end before any of its requests: rows stay, and others finish or undo its work."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pytest

from tidelock.operation.reads import snapshot_now
from tidelock.ops.validate.ledger import check_ledger
from tidelock.ops.validate.validating import validate
from tidelock.store.contract import PutMode, PutReply, Upload
from tidelock.store.local import LocalStore
from tidelock.table.schema.meta import FILE_NAME
from tidelock.tableservice.table import Table
from tidelock.txn.heartbeat import HEARTBEAT_FOLDER

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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
    """The process is gone: nothing of it runs any more."""


@dataclass
class EndingStore:
    """Lets so many changes through, then nothing at all."""

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
        return EndingUpload(self, self.inner.upload(key))


@dataclass
class EndingUpload:
    """An upload whose end counts as a change."""

    home: EndingStore
    inner: Upload

    @property
    def path(self) -> str | None:
        return self.inner.path

    def write(self, data: ReadableBuffer) -> None:
        self.inner.write(data)

    def finish(self) -> PutReply:
        self.home.change()
        return self.inner.finish()

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.inner.__exit__(kind, error, trace)


def rows(*ids: int, v: str, ts: int) -> pa.Table:
    return pa.table([list(ids), [v] * len(ids), [ts] * len(ids)], schema=SCHEMA)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table that has something to do for every service."""
    place = tmp_path_factory.mktemp("told") / "t"
    with Table.create(
        str(place), SCHEMA, key="id", ordering="ts", type="MERGE_ON_READ", options=OPTIONS
    ) as table:
        for number in range(3):
            table.insert(rows(number, number + 10, v="first", ts=1))
        table.upsert(rows(0, v="second", ts=2))
        table.compact()
        for number in range(2):
            table.upsert(rows(0, 1, v=f"v{number}", ts=3 + number))
    return place


def content(place: Path) -> list[dict[str, Any]]:
    """Return the rows and their meta columns, but for the file."""
    with Table.open(str(place)) as table:
        found = table.read(meta_columns=True).sort_by("id").to_pylist()
    return [{name: row[name] for name in row if name != FILE_NAME} for row in found]


def ends_before(place: Path, service: str, changes: int) -> bool:
    """Run a service until it wants to make one change more than that; tell whether it did."""
    store = EndingStore(LocalStore(place, fsync=False), changes)
    table = Table(snapshot_now(store), options=OPTIONS)
    try:
        SERVICES[service](table)
    except Ended:
        return True
    finally:
        table.writer().transactions.beating.close()
    return False


def copies(told: Path, home: Path, service: str) -> Iterator[Path]:
    """Yield a table for each change that the service makes, its executor gone before that."""
    for changes in range(500):
        place = Path(shutil.copytree(told, home / f"{service}-{changes}"))
        if not ends_before(place, service, changes):
            return
        yield place
    raise AssertionError("the service does not end")


@pytest.mark.parametrize("service", SERVICES)
def test_rows_stay_and_the_work_is_finished_or_undone(
    told: Path, tmp_path: Path, service: str
) -> None:
    before = content(told)
    points = 0
    for place in copies(told, tmp_path, service):
        points += 1
        assert content(place) == before, place
        with Table.open(str(place), options=OPTIONS) as early:
            early.upsert(rows(500, v="early", ts=1))
        for beat in (place / HEARTBEAT_FOLDER).glob("*"):
            os.utime(beat, (1, 1))
        with Table.open(str(place), options=OPTIONS) as other:
            other.clean()
            other.compact()
            assert other.cluster().left == ()
            other.archive()
            assert other.writer().transactions.ledger.refresh().plans == {}
        assert [row for row in content(place) if row["id"] != 500] == before, place
        store = LocalStore(place, fsync=False)
        assert validate(store, more=[check_ledger]).findings == (), place
        assert [m.key for m in store.list(f"{HEARTBEAT_FOLDER}/")] == []
        shutil.rmtree(place)
    assert points > 5
