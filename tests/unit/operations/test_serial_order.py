"""Two concurrent writes have the same result as one after the other, in ledger order.

These cases lost acknowledged rows once. The interleaving tests cover the space around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelock as tl
from tidelock.operations.attempt import ReadSnapshot
from tidelock.operations.partitioner import Partitioner
from tidelock.services.compaction import Compaction
from tidelock.services.runner import compaction
from tidelock.storage.contract import PutMode, PutReply
from tidelock.storage.memory import MemoryStore

Row = dict[str, Any]
Act = Callable[[tl.Table], object]

SCHEMA: Final = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.int32())]
)
COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
TYPES: Final = (COW, MOR)
INDEXES: Final = ("SIMPLE", "BLOOM", "BUCKET")
DROPPING: Final = {"hoodie.datasource.write.insert.drop.duplicates": "true"}
NON_BLOCKING: Final = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}


def row(key: str, v: int, *, day: str = "a", ts: int = 1) -> Row:
    """Return one row."""
    return {"id": key, "day": day, "ts": ts, "v": v}


def table_of(
    kind: str,
    index: str = "BUCKET",
    *,
    ordering: str | None = None,
    schema: pa.Schema = SCHEMA,
    options: Mapping[str, str] | None = None,
) -> tl.Table:
    """Return a new table in memory, with one bucket in each partition."""
    buckets = {"hoodie.bucket.index.num.buckets": "1"} if index == "BUCKET" else {}
    return tl.Table.create(
        f"memory://tables/{uuid4()}",
        schema,
        key="id",
        ordering=ordering,
        partition_by="day",
        type=kind,
        name="orders",
        options={
            "hoodie.index.type": index,
            "hoodie.write.set.null.for.missing.columns": "true",
            **buckets,
            **(options or {}),
        },
    )


def between(table: tl.Table, meanwhile: Act) -> tl.Table:
    """Return another handle: after the begin of its next write, `meanwhile` runs."""
    other = tl.Table.open(table.uri, options=table._options)
    slow = tl.Table.open(table.uri, options=table._options)
    transactions = slow.writer().transactions
    begin = transactions.begin

    def begin_then(*args: Any, **more: Any) -> Any:
        begun = begin(*args, **more)
        transactions.begin = begin  # type: ignore[method-assign]
        meanwhile(other)
        return begun

    transactions.begin = begin_then  # type: ignore[method-assign]
    return slow


def ahead(table: tl.Table, meanwhile: Act) -> tl.Table:
    """Return another handle: before its next write begins, after its rows are assigned, `meanwhile`
    runs."""
    other = tl.Table.open(table.uri, options=table._options)
    slow = tl.Table.open(table.uri, options=table._options)
    transactions = slow.writer().transactions
    begin = transactions.begin

    def then_begin(*args: Any, **more: Any) -> Any:
        transactions.begin = begin  # type: ignore[method-assign]
        meanwhile(other)
        return begin(*args, **more)

    transactions.begin = then_begin  # type: ignore[method-assign]
    return slow


def held(table: tl.Table) -> list[tuple[str, str, int]]:
    """Return the rows of a table as a newly opened handle reads them."""
    fresh = tl.Table.open(table.uri, options=table._options)
    found = [(each["id"], each["day"], each["v"]) for each in fresh.read().to_pylist()]
    return sorted(found)


OVERWRITES: Final[dict[str, Act]] = {
    "insert_overwrite": lambda t: t.insert_overwrite([row("n", 9)]),
    "insert_overwrite_table": lambda t: t.insert_overwrite_table([row("n", 9)]),
    "delete_partition": lambda t: t.delete_partition(["a"]),
}
WRITES: Final[dict[str, Act]] = {
    "upsert": lambda t: t.upsert([row("k", 5)]),
    "insert": lambda t: t.insert([row("k", 5)]),
    "bulk_insert": lambda t: t.bulk_insert([row("k", 5)]),
    "insert_overwrite": lambda t: t.insert_overwrite([row("k", 5)]),
}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("name", OVERWRITES)
def test_overwrite_is_not_hidden_by_a_compaction(name: str, index: str) -> None:
    table = table_of(MOR, index)
    table.upsert([row("k", 1), row("l", 1)])
    table.upsert([row("k", 2)])
    slow = between(table, lambda other: other.compact())
    OVERWRITES[name](slow)
    assert held(slow) == ([] if name == "delete_partition" else [("n", "a", 9)])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("name", WRITES)
def test_overwrite_of_a_partition_that_others_create_is_seen(
    name: str, index: str, kind: str
) -> None:
    table = table_of(kind, index)
    table.upsert([row("z", 1, day="z")])
    slow = between(table, WRITES[name])
    slow.insert_overwrite([row("n", 9)])
    assert held(slow) == [("n", "a", 9), ("z", "z", 1)]


@pytest.mark.parametrize("ordering", [None, "ts"])
@pytest.mark.parametrize("begun", ["no bucket", "log files", "a base file"])
def test_nonblocking_bulk_insert_keeps_other_writes(begun: str, ordering: str | None) -> None:
    table = table_of(MOR, ordering=ordering, options=NON_BLOCKING)
    table.upsert([row("z", 1, day="z")])
    if begun != "no bucket":
        table.upsert([row("o", 1)])
    if begun == "a base file":
        table.compact()
    slow = between(table, lambda other: other.upsert([row("k", 5)]))
    slow.bulk_insert([row("b", 7)])
    kept = [] if begun == "no bucket" else [("o", "a", 1)]
    assert held(slow) == sorted([*kept, ("b", "a", 7), ("k", "a", 5), ("z", "z", 1)])


@pytest.mark.parametrize("ordering", [None, "ts"])
@pytest.mark.parametrize("name", ["upsert", "insert", "bulk_insert"])
def test_nonblocking_bulk_insert_by_an_open_handle_keeps_other_writes(
    name: str, ordering: str | None
) -> None:
    table = table_of(MOR, ordering=ordering, options=NON_BLOCKING)
    table.upsert([row("z", 1, day="z")])
    stale = tl.Table.open(table.uri, options=table._options)
    stale.bulk_insert([row("y", 1, day="y")])
    WRITES[name](table)
    stale.bulk_insert([row("b", 7)])
    assert held(stale) == [("b", "a", 7), ("k", "a", 5), ("y", "y", 1), ("z", "z", 1)]


@pytest.mark.parametrize("ordering", [None, "ts"])
def test_two_nonblocking_bulk_inserts_both_stay(ordering: str | None) -> None:
    table = table_of(MOR, ordering=ordering, options=NON_BLOCKING)
    table.upsert([row("z", 1, day="z")])
    slow = between(table, lambda other: other.bulk_insert([row("k", 5)]))
    slow.bulk_insert([row("b", 7)])
    assert held(slow) == [("b", "a", 7), ("k", "a", 5), ("z", "z", 1)]


@pytest.mark.parametrize("ordering", [None, "ts"])
def test_nonblocking_bulk_insert_is_not_hidden_by_a_compaction(
    ordering: str | None,
) -> None:
    table = table_of(MOR, ordering=ordering, options=NON_BLOCKING)
    table.upsert([row("z", 1, day="z")])

    def meanwhile(other: tl.Table) -> None:
        other.upsert([row("k", 5)])
        other.compact()

    slow = between(table, meanwhile)
    slow.bulk_insert([row("b", 7)])
    assert held(slow) == [("b", "a", 7), ("k", "a", 5), ("z", "z", 1)]


def test_nonblocking_upsert_stays_after_a_delete() -> None:
    table = table_of(MOR, ordering="ts", options=NON_BLOCKING)
    table.upsert([row("k", 1)])
    slow = between(table, lambda other: other.delete([{"id": "k", "day": "a"}]))
    slow.upsert([row("k", 2)])
    assert held(slow) == [("k", "a", 2)]


DELETABLE: Final = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("ts", pa.int32()),
        ("v", pa.int32()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)


def deleting(name: str, ts: int | None) -> Act:
    """Return a write of a row with the deleted flag."""
    gone = {**row("k", 0), "ts": ts, "_hoodie_is_deleted": True}
    return lambda table: getattr(table, name)([gone])


UNORDERED_DELETES: Final[dict[str, Act]] = {
    "delete": lambda t: t.delete([{"id": "k", "day": "a"}]),
    "upsert of 0": deleting("upsert", 0),
    "upsert of null": deleting("upsert", None),
    "insert of 0": deleting("insert", 0),
    "insert of null": deleting("insert", None),
}
"""Deletes without an ordering value: absent, or the integer 0."""


@pytest.mark.parametrize("name", ["upsert", "insert"])
@pytest.mark.parametrize("delete", UNORDERED_DELETES)
@pytest.mark.parametrize("when", ["before it begins", "after it began", "stale view"])
def test_nonblocking_row_stays_after_a_delete_without_ordering_value(
    when: str, delete: str, name: str
) -> None:
    table = table_of(MOR, ordering="ts", schema=DELETABLE, options=NON_BLOCKING)
    table.upsert([row("k", 1, ts=10), row("l", 1)])
    table.compact()
    if when == "stale view":
        slow = tl.Table.open(table.uri, options=table._options)
        slow.insert([row("l", 1)])
        UNORDERED_DELETES[delete](table)
    else:
        slow = (ahead if when == "before it begins" else between)(table, UNORDERED_DELETES[delete])
    getattr(slow, name)([row("k", 7, ts=2)])
    assert held(slow) == [("k", "a", 7), ("l", "a", 1)], "not the row that was deleted"


@pytest.mark.parametrize("mine", ["k", "l"])
def test_nonblocking_mode_rewrites_only_deleted_keys(mine: str) -> None:
    table = table_of(MOR, ordering="ts", schema=DELETABLE, options=NON_BLOCKING)
    table.upsert([row("k", 1, ts=10), row("l", 1, ts=10)])
    table.compact()
    slow = ahead(table, UNORDERED_DELETES["upsert of 0"])
    report = slow.upsert([row(mine, 7, ts=11)])
    assert report.rebases == (1 if mine == "k" else 0)
    assert held(slow) == ([("k", "a", 7), ("l", "a", 1)] if mine == "k" else [("l", "a", 7)])


@pytest.mark.parametrize("ts", [1, 2])
def test_later_commit_wins_with_equal_ordering_values_in_nonblocking_mode(ts: int) -> None:
    table = table_of(MOR, ordering="ts", options=NON_BLOCKING)
    table.upsert([row("k", 1)])
    slow = between(table, lambda other: other.upsert([row("k", 5, ts=2)]))
    report = slow.upsert([row("k", 7, ts=ts)])
    assert held(slow) == [("k", "a", 7 if ts == 2 else 5)]
    assert report.rebases == (1 if ts == 2 else 0), "only a tie is written again"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("known", [True, False])
def test_delete_by_key_includes_a_concurrently_created_partition(
    known: bool, index: str, kind: str
) -> None:
    table = table_of(kind, index)
    table.upsert([row("k" if known else "l", 1, day="z")])
    slow = between(table, lambda other: other.upsert([row("k", 5)]))
    slow.delete(["k"])
    assert held(slow) == ([] if known else [("l", "z", 1)])


DELETES: Final[dict[str, Act]] = {
    "delete": lambda t: t.delete([{"id": "k", "day": "a"}]),
    "delete anywhere": lambda t: t.delete(["k"]),
    "_hoodie_is_deleted": lambda t: t.upsert([{**row("k", 0), "_hoodie_is_deleted": True}]),
}


@pytest.mark.parametrize(("kind", "options"), [(COW, {}), (MOR, {}), (MOR, NON_BLOCKING)])
@pytest.mark.parametrize("name", [name for name in WRITES if name != "insert_overwrite"])
@pytest.mark.parametrize("delete", DELETES)
def test_delete_after_the_write_that_created_its_bucket_deletes(
    delete: str, name: str, kind: str, options: dict[str, str]
) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = table_of(kind, schema=schema, options=options)
    table.upsert([row("z", 1, day="z")])
    slow = between(table, WRITES[name])
    DELETES[delete](slow)
    assert held(slow) == [("z", "z", 1)]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM"])
@pytest.mark.parametrize("copy", ["insert", "bulk_insert"])
def test_keyed_write_changes_concurrently_inserted_copies(copy: str, index: str, kind: str) -> None:
    table = table_of(kind, index)
    table.upsert([row("k", 1)])
    slow = between(table, WRITES[copy])
    slow.upsert([row("k", 7)])
    assert held(slow) == [("k", "a", 7), ("k", "a", 7)]
    slow = between(table, WRITES[copy])
    slow.delete(["k"])
    assert held(slow) == []


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("index", INDEXES)
def test_deduplicating_insert_inserts_a_concurrently_deleted_key(index: str, kind: str) -> None:
    table = table_of(
        kind, index, options={"hoodie.datasource.write.insert.drop.duplicates": "true"}
    )
    table.upsert([row("k", 1), row("l", 1)])
    slow = between(table, lambda other: other.delete(["k"]))
    slow.insert([row("k", 7)])
    assert held(slow) == [("k", "a", 7), ("l", "a", 1)]


CONCURRENT_WITH_INSERTS: Final[dict[str, Act]] = {
    "upsert": lambda t: t.upsert([row("k", 5, ts=20)]),
    "delete": UNORDERED_DELETES["delete"],
    "upsert of a delete": UNORDERED_DELETES["upsert of 0"],
    "insert": lambda t: t.insert([row("k", 5, ts=20)]),
    "insert_overwrite": lambda t: t.insert_overwrite([row("n", 5)]),
    "compaction": lambda t: t.compact(),
}


@pytest.mark.parametrize("when", [ahead, between])
@pytest.mark.parametrize("begun", ["no key", "log files", "a base file"])
@pytest.mark.parametrize(
    ("name", "inserts_last"),
    [
        *((name, True) for name in CONCURRENT_WITH_INSERTS),
        # A compaction does not begin a write.
        *((name, False) for name in CONCURRENT_WITH_INSERTS if name != "compaction"),
    ],
)
def test_nonblocking_deduplicating_insert_follows_the_ledger_order(
    inserts_last: bool, name: str, begun: str, when: Callable[[tl.Table, Act], tl.Table]
) -> None:
    def table() -> tl.Table:
        made = table_of(MOR, ordering="ts", schema=DELETABLE, options=NON_BLOCKING)
        made.upsert([row("l", 1)])
        if begun != "no key":
            made.upsert([row("k", 1, ts=10)])
        if begun == "a base file":
            made.compact()
        return made

    def opened(table: tl.Table, *, drops: bool) -> tl.Table:
        more = DROPPING if drops else {}
        return tl.Table.open(table.uri, options={**table._options, **more})

    def insert(table: tl.Table) -> object:
        return table.insert([row("k", 7, ts=2)])

    one_by_one, overlapping, other = table(), table(), CONCURRENT_WITH_INSERTS[name]
    first, last = (other, insert) if inserts_last else (insert, other)
    first(opened(one_by_one, drops=not inserts_last))
    last(opened(one_by_one, drops=inserts_last))
    slow = when(
        opened(overlapping, drops=inserts_last),
        lambda _: first(opened(overlapping, drops=not inserts_last)),
    )
    last(slow)
    assert held(overlapping) == held(one_by_one)


def wide(v: int, key: str = "w", day: str = "w") -> pa.Table:
    """Return a row with a column that the table lacks, and a wider one."""
    names = [*SCHEMA.names, "note"]
    return pa.table(
        [[key], [day], [1], pa.array([v], pa.int64()), ["new"]],
        pa.schema([*SCHEMA.remove(3), ("v", pa.int64()), ("note", pa.string())]),
    ).select(names)


EVOLVING: Final[dict[str, Act]] = {
    "upsert": lambda t: t.upsert(wide(2**40)),
    "insert": lambda t: t.insert(wide(2**40)),
    "bulk_insert": lambda t: t.bulk_insert(wide(2**40)),
    "insert_overwrite": lambda t: t.insert_overwrite(wide(2**40)),
}
PLAIN: Final[dict[str, Act]] = {
    **WRITES,
    "delete": lambda t: t.delete([{"id": "z", "day": "z"}]),
    "delete_partition": lambda t: t.delete_partition(["z"]),
    "compaction": lambda t: t.compact(),
    "log compaction": lambda t: t.log_compact(),
    "clustering": lambda t: t.cluster(),
}


@pytest.mark.parametrize(
    ("name", "index", "kind"),
    [
        (name, index, kind)
        for name in PLAIN
        for index in ("SIMPLE", "BUCKET")
        for kind in TYPES
        # There are no log files to compact, and buckets are not clustered.
        if not (kind == COW and "compaction" in name)
        and not (index == "BUCKET" and name == "clustering")
    ],
)
@pytest.mark.parametrize("evolving", EVOLVING)
def test_added_column_stays(evolving: str, name: str, index: str, kind: str) -> None:
    table = table_of(kind, index)
    table.upsert([row("k", 1), row("z", 1, day="z")])
    for ts in range(2, 4):
        table.upsert([row("z", 1, day="z", ts=ts)])
    slow = between(table, PLAIN[name])
    EVOLVING[evolving](slow)
    fresh = tl.Table.open(table.uri, options=table._options)
    found = {each["id"]: each for each in fresh.read().to_pylist()}
    assert found["w"]["note"] == "new"
    assert found["w"]["v"] == 2**40
    fresh.upsert([row("y", 3, day="y")])
    again = {each["id"]: each for each in fresh.read().to_pylist()}
    assert again["w"]["note"] == "new"


# -- cleaning ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["KEEP_LATEST_FILE_VERSIONS", "KEEP_LATEST_COMMITS"])
@pytest.mark.parametrize("write", ["insert_overwrite", "bulk_insert"])
def test_clean_keeps_a_base_file_written_while_a_compaction_was_scheduled(
    write: str, policy: str
) -> None:
    keep = {"hoodie.clean.fileversions.retained": "1", "hoodie.clean.commits.retained": "1"}
    table = table_of(MOR, options={"hoodie.clean.policy": policy, **keep})
    table.upsert([row("a", 1)])
    table.upsert([row("a", 2)])
    slow = between(table, lambda t: compaction(t.writer(), t._options).schedule())
    slow.write([row("n", 9)], write)
    for number in range(3):
        table.upsert([row("b", number, day="b")])
    before = held(table)
    table.clean()
    assert held(table) == before
    assert ("n", "a", 9) in before


# -- order after the entries are archived -----------------------------------------------------


@pytest.mark.parametrize("later", range(4))
@pytest.mark.parametrize("kind", TYPES)
def test_table_is_complete_after_clean_and_archive_of_an_overwrite_that_began_first(
    kind: str, later: int
) -> None:
    few = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"}
    table = table_of(kind, "SIMPLE", options={"hoodie.clean.commits.retained": "1", **few})
    table.upsert([row("a", 1), row("b", 1, day="b")])
    between(table, lambda t: t.upsert([row("a", 2)])).insert_overwrite([row("n", 9)])
    for number in range(later):
        table.upsert([row("b", number, day="b")])
    table.clean()
    table.archive()
    tl.Table.open(table.uri, options=table._options).upsert([row("b", 7, day="b")])
    assert held(table) == [("b", "b", 7), ("n", "a", 9)]


# -- threads that share a table ---------------------------------------------------------------


def in_thread(act: Callable[[], object]) -> None:
    """Run a function in another thread, and wait for it."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(act).result()


SHARED: Final[dict[str, Act]] = {
    "cluster": lambda t: t.cluster(),
    "clean": lambda t: t.clean(),
    "find an application transaction and delete": lambda t: (
        t.app_transaction("app"),
        t.writer().columns(),
    ),
}


@pytest.mark.parametrize("act", SHARED)
@pytest.mark.parametrize("kind", TYPES)
def test_write_misses_no_commit_seen_by_another_thread_of_its_table(
    kind: str, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(kind, "SIMPLE")
    table.upsert([row("a", 1)])
    other = tl.Table.open(table.uri, options=table._options)
    assign = Partitioner.assign

    def assign_then(*args: Any, **more: Any) -> Any:
        found = assign(*args, **more)
        monkeypatch.setattr(Partitioner, "assign", assign)
        other.upsert([row("a", 7), row("b", 7)])
        in_thread(lambda: SHARED[act](table))
        return found

    monkeypatch.setattr(Partitioner, "assign", assign_then)
    table.upsert([row("b", 3)])
    assert held(table) == [("a", "a", 7), ("b", "a", 3)]


@pytest.mark.parametrize("index", INDEXES)
def test_plan_includes_writes_of_another_thread_of_its_table(
    index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(MOR, index)
    table.upsert([row("a", 1)])
    table.upsert([row("a", 2)])
    chosen = Compaction.plan

    def choose_then(*args: Any, **more: Any) -> Any:
        found = chosen(*args, **more)
        monkeypatch.setattr(Compaction, "plan", chosen)
        in_thread(lambda: table.upsert([row("a", 7)]))
        in_thread(lambda: table.upsert([row("b", 1, day="b")]))
        return found

    monkeypatch.setattr(Compaction, "plan", choose_then)
    assert table.compact().executed
    assert held(table) == [("a", "a", 7), ("b", "b", 1)]


def test_statement_rereads_cleaned_files_even_if_another_thread_knows_of_the_clean() -> None:
    few = {"hoodie.clean.commits.retained": "1"}
    table = table_of(COW, "SIMPLE", options=few)
    table.upsert([row("a", 1)])
    other = tl.Table.open(table.uri, options=table._options)
    calls: list[int] = []

    def compute(now: ReadSnapshot) -> pa.Table:
        calls.append(1)
        if len(calls) == 1:
            for number in range(3):
                other.upsert([row("a", number)])
            other.clean()
            in_thread(table.cluster)
        return now.read()

    table.rewrite(compute)
    assert len(calls) == 2
    assert held(table) == [("a", "a", 2)]


def test_write_does_not_wait_for_the_publication_of_another_threads_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = table_of(MOR, "SIMPLE")
    table.upsert([row("a", 1)])
    table.upsert([row("a", 2)])
    put = MemoryStore.put
    puts: list[str] = []
    reports: list[object] = []

    def put_later(store: MemoryStore, key: str, body: bytes, mode: PutMode) -> PutReply:
        if key.endswith(".commit") and not puts:
            puts.append(key)
            in_thread(lambda: reports.append(table.upsert([row("a", 7)])))
        return put(store, key, body, mode)

    monkeypatch.setattr(MemoryStore, "put", put_later)
    assert table.compact().executed
    assert len(puts) == len(reports) == 1
    assert held(table) == [("a", "a", 7)]


def test_threads_that_share_a_table_lose_nothing_with_a_concurrent_process() -> None:
    table = table_of(COW, "SIMPLE")
    other = tl.Table.open(table.uri, options=table._options)
    acts: list[Callable[[int], object]] = [
        lambda n: table.upsert([row(f"x{n}", n)]),
        lambda n: table.upsert([row(f"y{n}", n)]),
        lambda n: other.upsert([row(f"z{n}", n)]),
        lambda _: table.cluster(),
    ]

    def repeatedly(act: Callable[[int], object]) -> None:
        for number in range(6):
            act(number)

    with ThreadPoolExecutor(len(acts)) as pool:
        for done in [pool.submit(repeatedly, act) for act in acts]:
            done.result()
    assert held(table) == sorted((f"{who}{n}", "a", n) for who in "xyz" for n in range(6))
