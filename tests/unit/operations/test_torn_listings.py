"""A listing is not atomic: files appear between its pages. Readers still see a prefix of the
ledger.

The store below shows the commits of a finished table one after the other, in ledger order, each at
a given page of the current listing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement, islice

import pytest

import tidelock as tl
from tests.unit.doubles import ManualClock
from tests.unit.operations.model import create_table, ordered, row
from tests.unit.txn.bench import Bench, draft
from tests.unit.txn.test_external_commits import java_commit
from tests.unit.txn.test_planning import OCC
from tidelock.dashboard.watch import TableWatch
from tidelock.hudi.timeline import active
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.instant import parse_instant
from tidelock.operations.read import completed_writes, snapshot_now
from tidelock.storage.contract import (
    Create,
    ObjectMeta,
    ObjectStore,
    PutMode,
    PutReply,
    StoredObject,
    Upload,
)
from tidelock.txn.conflicts import Committed
from tidelock.txn.entries import ExternalCommit
from tidelock.txn.ledger import Ledger

WRITES = 3
PAGES = 9
"""More pages than the timeline of these writes has, at two keys per page."""

ORDERS = ("ascending", "descending")
APPEARANCES = tuple(combinations_with_replacement(range(PAGES), WRITES))


class PagedStore:
    """A store that lists two keys per page, each page with its current content, in one of two
    orders.

    `appear` are the pages, counted over all listings of the timeline, from which on the commits in
    `commits` exist.
    """

    def __init__(
        self, inner: ObjectStore, commits: list[str], appear: tuple[int, ...], order: str
    ) -> None:
        """Wrap `inner`."""
        self.inner = inner
        self.appears = dict(zip(commits, appear, strict=True))
        self.descending = order == "descending"
        self.pages = 0
        self.uri, self.identity = inner.uri, inner.identity

    def is_there(self, key: str) -> bool:
        """Return whether an object has appeared."""
        return self.appears.get(key, 0) <= self.pages

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield two keys, then the keys that follow them a moment later, and so on."""
        if not prefix.startswith(TIMELINE_FOLDER):
            yield from self.inner.list(prefix, start_after=start_after)
            return
        last: str | None = None
        while True:
            every = [each for each in self.inner.list(prefix) if self.is_there(each.key)]
            if self.descending:
                page = [each for each in reversed(every) if last is None or each.key < last][:2]
            else:
                page = [each for each in every if last is None or each.key > last][:2]
            yield from page
            if not page:
                return
            last = page[-1].key
            self.pages += 1

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object if it has appeared."""
        return self.inner.get(key, start=start, end=end) if self.is_there(key) else None

    def head(self, key: str) -> ObjectMeta | None:
        """Return the object's metadata if it has appeared."""
        return self.inner.head(key) if self.is_there(key) else None

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Refuse: readers do not write."""
        raise AssertionError(f"{key} was written")

    def delete(self, key: str) -> None:
        """Refuse: readers do not delete."""
        raise AssertionError(f"{key} was deleted")

    def upload(self, key: str) -> Upload:
        """Refuse: readers do not write."""
        raise AssertionError(f"{key} was written")

    def local_path(self, key: str) -> str | None:
        """Return None: there are no local paths."""
        del key
        return None

    def close(self) -> None:
        """Do nothing."""


class SharedStore(PagedStore):
    """The same store for writers."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write the object."""
        return self.inner.put(key, body, mode)

    def delete(self, key: str) -> None:
        """Delete the object."""
        self.inner.delete(key)


@dataclass(frozen=True)
class Written:
    """A table, the completion times of its commits, and the files of the last ones, in order."""

    store: ObjectStore
    completions: tuple[str, ...]
    commits: tuple[str, ...]


@cache
def rows_written() -> Written:
    """Return a table whose commits were requested in ledger order."""
    table = create_table()
    for number in range(WRITES):
        table.upsert([row(number)])
    return completed_in(table._store)


@cache
def crossed() -> Written:
    """Return a table whose commits were requested in the opposite order."""
    bench = Bench(OCC)
    begun = [bench.begin(bench.writer()) for _ in range(WRITES)]
    for number, each in enumerate(reversed(begun)):
        assert isinstance(each.commit(draft(created=(f"g{number}",))), Committed)
    return completed_in(bench.store)


def completed_in(store: ObjectStore) -> Written:
    found = {
        instant.completion: meta.key
        for meta in store.list(f"{TIMELINE_FOLDER}/")
        if (instant := parse_instant(meta.key.rpartition("/")[2])) is not None
        and instant.is_completed
    }
    files = [key for _, key in sorted(found.items())]
    return Written(store, tuple(sorted(found)), tuple(files[-WRITES:]))


TABLES = (rows_written, crossed)


def torn(table: Written, appear: tuple[int, ...], order: str) -> PagedStore:
    return PagedStore(table.store, list(table.commits), appear, order)


def opened(table: Written, appear: tuple[int, ...], order: str) -> tuple[str, ...]:
    """Return the completion times of a table opened at that point."""
    found = snapshot_now(torn(table, appear, order)).timeline.writes()
    return tuple(sorted(each.completion for each in found))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("make", TABLES)
def test_opened_table_has_every_commit_before_its_last(
    make: Callable[[], Written], order: str
) -> None:
    table = make()
    for appear in APPEARANCES:
        seen = opened(table, appear, order)
        assert seen == table.completions[: len(seen)], appear


@pytest.mark.parametrize("order", ORDERS)
def test_opened_table_has_every_commit_completed_before(order: str) -> None:
    table = rows_written()
    for late in range(PAGES):
        assert len(opened(table, (0, 0, late), order)) >= len(table.completions) - 1
    assert opened(table, (0, 0, 0), order) == table.completions


@pytest.mark.parametrize("order", ORDERS)
def test_documented_incremental_loop_loses_nothing(order: str) -> None:
    for appear in APPEARANCES:
        table = tl.Table(snapshot_now(torn(rows_written(), appear, order)))
        streamed, since = [], "00010101000000000"
        for _ in range(PAGES + WRITES):
            streamed += table.changes(since).to_pylist()
            since = table.latest_completion or since
            table.refresh()
        assert ordered(streamed) == [row(number) for number in range(WRITES)], appear


@pytest.mark.parametrize("order", ORDERS)
def test_stream_of_changes_has_every_commit_in_order(order: str) -> None:
    written = rows_written()
    for appear in APPEARANCES:
        table = tl.Table(snapshot_now(torn(written, appear, order)), clock=ManualClock())
        stream = table.follow(poll_ms=1)
        streamed = tuple(done for done, _ in islice(stream, WRITES))
        assert streamed == written.completions[-WRITES:], appear
        stream.close()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("make", TABLES)
def test_streaming_batch_has_no_gaps(make: Callable[[], Written], order: str) -> None:
    table = make()
    for appear in APPEARANCES:
        _, found = completed_writes(torn(table, appear, order), "")
        assert tuple(each.completion for each in found) == table.completions[: len(found)], appear


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("at_page", [1, -1])
def test_commits_without_an_entry_get_one_in_completion_order(at_page: int, order: str) -> None:
    completions = [f"2021010100000000{number}" for number in range(5, 5 + WRITES)]
    first = "20200101000000001"
    for appear in APPEARANCES:
        bench = Bench(OCC)
        java_commit(bench, "20200101000000000", first, "g")
        for number, completion in enumerate(completions[::at_page]):
            requested = f"2021010100000000{number}"
            bench.store.put(f"{TIMELINE_FOLDER}/{requested}.inflight", b"", Create())
            java_commit(bench, requested, completion, f"g{number}")
        table = completed_in(bench.store)
        ledger = Ledger(SharedStore(bench.store, list(table.commits), appear, order))
        for _ in range(PAGES + 1):
            ledger.refresh()
        facts = [entry.fact for entry in ledger.view.tail]
        taken = [fact.completion for fact in facts if isinstance(fact, ExternalCommit)]
        assert taken == [first, *completions], appear


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("make", TABLES)
def test_dashboard_shows_every_commit_before_its_last(
    make: Callable[[], Written], order: str
) -> None:
    table = make()
    for appear in APPEARANCES:
        watch = TableWatch(torn(table, appear, order), ManualClock())
        watch.refresh()
        page = watch.page(0)
        assert page is not None
        assert page["problem"] == ""
        shown = sorted(row.completion for row in watch.rows.rows.values() if row.completion)
        assert tuple(shown) == table.completions[: len(shown)], appear


@pytest.mark.parametrize(("make", "order"), [(rows_written, "ascending"), (crossed, "descending")])
def test_reader_that_trusts_a_single_listing_is_caught(
    make: Callable[[], Written], order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: a single listing is used as the timeline."""
    monkeypatch.setattr(active, "consistent_listing", lambda first, *_: first)
    table = make()
    shown = [completed_writes(torn(table, appear, order), "")[1] for appear in APPEARANCES]
    seen = [tuple(each.completion for each in found) for found in shown]
    assert any(found != table.completions[: len(found)] for found in seen)
