"""A listing is no snapshot: files appear between its pages. Readers see a prefix all the same.

The store below shows the commits of a finished table one after the other, in the order of the
ledger, each at a given page of whatever is being listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement, islice

import pytest

import tidelock as tl
from tests.unit.doubles import ManualClock
from tests.unit.operation.model import made, ordered, row
from tests.unit.txn.bench import Bench, draft
from tests.unit.txn.test_foreign import java_commit
from tests.unit.txn.test_planning import OCC
from tidelock.operation.following import settled_writes
from tidelock.operation.reads import snapshot_now
from tidelock.ops.ui.watching import TableWatch
from tidelock.store.contract import (
    Create,
    ObjectMeta,
    ObjectStore,
    PutMode,
    PutReply,
    StoredObject,
    Upload,
)
from tidelock.table.timeline import active
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.instant import parse_instant
from tidelock.txn.draft import Committed
from tidelock.txn.entry import Foreign
from tidelock.txn.ledger import Ledger

WRITES = 3
PAGES = 9
"""More than the timeline of so many writes has, at two keys each."""

ORDERS = ("ascending", "descending")
APPEARANCES = tuple(combinations_with_replacement(range(PAGES), WRITES))


class PagedStore:
    """A store that lists two keys at a time, each page as it is then, in one order or the other.

    `appear` are the pages, counted over all listings of the timeline, from which on the commits in
    `commits` are there.
    """

    def __init__(
        self, inner: ObjectStore, commits: list[str], appear: tuple[int, ...], order: str
    ) -> None:
        """Stand before `inner`."""
        self.inner = inner
        self.appears = dict(zip(commits, appear, strict=True))
        self.descending = order == "descending"
        self.pages = 0
        self.uri, self.identity = inner.uri, inner.identity

    def is_there(self, key: str) -> bool:
        """Tell whether an object has appeared."""
        return self.appears.get(key, 0) <= self.pages

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield two keys, then what follows them a moment later, and so on."""
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
        """Return what is known of it if it has appeared."""
        return self.inner.head(key) if self.is_there(key) else None

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Readers do not write."""
        raise AssertionError(f"{key} was written")

    def delete(self, key: str) -> None:
        """Readers do not delete."""
        raise AssertionError(f"{key} was deleted")

    def upload(self, key: str) -> Upload:
        """Readers do not write."""
        raise AssertionError(f"{key} was written")

    def local_path(self, key: str) -> str | None:
        """There are no paths."""
        del key
        return None

    def close(self) -> None:
        """Keep everything."""


class SharedStore(PagedStore):
    """Such a store, for those who write as well."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write it."""
        return self.inner.put(key, body, mode)

    def delete(self, key: str) -> None:
        """Remove it."""
        self.inner.delete(key)


@dataclass(frozen=True)
class Written:
    """A table, the completion times of its commits, and the files of the last ones, in order."""

    store: ObjectStore
    completions: tuple[str, ...]
    commits: tuple[str, ...]


@cache
def rows_written() -> Written:
    """Return a table whose commits were requested in the order of the ledger."""
    table = made()
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
    """Return the completion times that a table shows which is opened then."""
    found = snapshot_now(torn(table, appear, order)).timeline.writes()
    return tuple(sorted(each.completion for each in found))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("make", TABLES)
def test_a_table_that_is_opened_has_every_commit_before_the_last_it_has(
    make: Callable[[], Written], order: str
) -> None:
    table = make()
    for appear in APPEARANCES:
        seen = opened(table, appear, order)
        assert seen == table.completions[: len(seen)], appear


@pytest.mark.parametrize("order", ORDERS)
def test_what_was_complete_before_a_table_is_opened_is_in_it(order: str) -> None:
    table = rows_written()
    for late in range(PAGES):
        assert len(opened(table, (0, 0, late), order)) >= len(table.completions) - 1
    assert opened(table, (0, 0, 0), order) == table.completions


@pytest.mark.parametrize("order", ORDERS)
def test_the_documented_incremental_loop_loses_nothing(order: str) -> None:
    for appear in APPEARANCES:
        table = tl.Table(snapshot_now(torn(rows_written(), appear, order)))
        told, since = [], "00010101000000000"
        for _ in range(PAGES + WRITES):
            told += table.changes(since).to_pylist()
            since = table.latest_completion or since
            table.refresh()
        assert ordered(told) == [row(number) for number in range(WRITES)], appear


@pytest.mark.parametrize("order", ORDERS)
def test_a_stream_of_changes_has_every_commit_in_order(order: str) -> None:
    written = rows_written()
    for appear in APPEARANCES:
        table = tl.Table(snapshot_now(torn(written, appear, order)), clock=ManualClock())
        stream = table.follow(poll_ms=1)
        told = tuple(done for done, _ in islice(stream, WRITES))
        assert told == written.completions[-WRITES:], appear
        stream.close()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("make", TABLES)
def test_the_writes_of_a_streaming_batch_are_without_gaps(
    make: Callable[[], Written], order: str
) -> None:
    table = make()
    for appear in APPEARANCES:
        _, found = settled_writes(torn(table, appear, order), "")
        assert tuple(each.completion for each in found) == table.completions[: len(found)], appear


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("turn", [1, -1])
def test_commits_without_an_entry_get_theirs_by_completion_time(turn: int, order: str) -> None:
    completions = [f"2021010100000000{number}" for number in range(5, 5 + WRITES)]
    first = "20200101000000001"
    for appear in APPEARANCES:
        bench = Bench(OCC)
        java_commit(bench, "20200101000000000", first, "g")
        for number, completion in enumerate(completions[::turn]):
            requested = f"2021010100000000{number}"
            bench.store.put(f"{TIMELINE_FOLDER}/{requested}.inflight", b"", Create())
            java_commit(bench, requested, completion, f"g{number}")
        table = completed_in(bench.store)
        ledger = Ledger(SharedStore(bench.store, list(table.commits), appear, order))
        for _ in range(PAGES + 1):
            ledger.refresh()
        facts = [entry.fact for entry in ledger.view.tail]
        taken = [fact.completion for fact in facts if isinstance(fact, Foreign)]
        assert taken == [first, *completions], appear


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("make", TABLES)
def test_the_dashboard_shows_every_commit_before_the_last_it_shows(
    make: Callable[[], Written], order: str
) -> None:
    table = make()
    for appear in APPEARANCES:
        watch = TableWatch(torn(table, appear, order), ManualClock())
        watch.look()
        page = watch.page(0)
        assert page is not None
        assert page["problem"] == ""
        shown = sorted(row.completion for row in watch.rows.rows.values() if row.completion)
        assert tuple(shown) == table.completions[: len(shown)], appear


@pytest.mark.parametrize(("make", "order"), [(rows_written, "ascending"), (crossed, "descending")])
def test_one_look_is_caught(
    make: Callable[[], Written], order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: what a single listing shows counts as the timeline."""
    monkeypatch.setattr(active, "at_one_moment", lambda first, *_: first)
    table = make()
    shown = [settled_writes(torn(table, appear, order), "")[1] for appear in APPEARANCES]
    seen = [tuple(each.completion for each in found) for found in shown]
    assert any(found != table.completions[: len(found)] for found in seen)
