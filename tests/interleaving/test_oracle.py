"""The oracle alone: the result of operations in sequence."""

from __future__ import annotations

from testkit.interleaving.cases import COLUMNS, row
from testkit.interleaving.oracle import Done, Oracle, Row, Rules, TableChange, plain

EVENT_TIME = Rules(by_event_time=True, merges_inserts=False, merges_bulk=False)
COMMIT_TIME = Rules(by_event_time=False, merges_inserts=True, merges_bulk=True)


def left(*changes: TableChange, rules: Rules = EVENT_TIME) -> list[Row]:
    done = [Done(change, str(at), str(at)) for at, change in enumerate(changes, 1)]
    return Oracle(rules, COLUMNS).last(done).found()


def upsert(*rows: Row) -> TableChange:
    return TableChange("upsert", rows)


def test_the_larger_event_time_wins_and_of_equal_ones_the_later_row() -> None:
    first, older, equal = row("k", "p", 2, 1), row("k", "p", 1, 2), row("k", "p", 2, 3)
    assert left(upsert(first), upsert(older)) == [first]
    assert left(upsert(first), upsert(equal)) == [equal]


def test_by_commit_time_the_later_row_wins() -> None:
    assert left(upsert(row("k", "p", 2, 1)), upsert(row("k", "p", 1, 2)), rules=COMMIT_TIME) == [
        row("k", "p", 1, 2)
    ]


def test_a_blind_insert_repeats_a_key_and_an_upsert_changes_both() -> None:
    again = TableChange("insert", (row("k", "p", 1, 2),))
    assert len(left(upsert(row("k", "p", 1, 1)), again)) == 2
    both = left(upsert(row("k", "p", 1, 1)), again, upsert(row("k", "p", 1, 3)))
    assert both == [row("k", "p", 1, 3)] * 2
    assert len(left(upsert(row("k", "p", 1, 1)), again, rules=COMMIT_TIME)) == 1


def test_an_insert_of_new_keys_skips_existing_ones() -> None:
    kept, new = row("k", "p", 1, 1), row("m", "p", 1, 2)
    change = TableChange("insert_new", (row("k", "p", 9, 9), new))
    assert left(upsert(kept), change) == [kept, new]


def test_deletes_remove_the_key_from_one_partition_or_from_all() -> None:
    both = upsert(row("k", "p", 1, 1), row("k", "q", 1, 2))
    assert left(both, TableChange("delete", keys=("k",), partition="p")) == [row("k", "q", 1, 2)]
    assert left(both, TableChange("delete_anywhere", keys=("k",))) == []


def test_overwrites_replace_their_partition_or_the_table() -> None:
    both = upsert(row("k", "p", 1, 1), row("m", "q", 1, 2))
    new = row("n", "p", 1, 3)
    assert left(both, TableChange("insert_overwrite", (new,), partition="p")) == [
        row("m", "q", 1, 2),
        new,
    ]
    assert left(both, TableChange("insert_overwrite_table", (new,), partition="p")) == [new]
    assert left(both, TableChange("delete_partition", partition="q")) == [row("k", "p", 1, 1)]


def test_a_statement_is_computed_from_the_rows_before_it() -> None:
    change = TableChange("rewrite", (row("k", "p", 0, 0),), number=1_000)
    (found,) = left(upsert(row("k", "p", 5, 7)), change)
    assert (found["ts"], found["v"]) == (6, 1_007)


def test_a_rolled_back_write_has_no_effect() -> None:
    changes = [
        upsert(row("k", "p", 1, 1)),
        upsert(row("k", "p", 2, 2)),
        upsert(row("m", "p", 1, 3)),
    ]
    done = [Done(change, str(at), str(at)) for at, change in enumerate(changes, 1)]
    done.append(Done(TableChange("restore"), "4", "4", frozenset({"2", "3"})))
    done.append(Done(upsert(row("n", "p", 1, 4)), "5", "5"))
    states = Oracle(EVENT_TIME, COLUMNS).states(done)
    assert [len(state.found()) for _, state in states] == [1, 1, 2, 1, 2]
    assert states[3][1].found() == [row("k", "p", 1, 1)]


def test_columns_are_added_and_widened_and_never_lost() -> None:
    done = [
        Done(TableChange("upsert", columns={"n": "int64"}), "1", "1"),
        Done(TableChange("upsert", columns={"w": "string"}), "2", "2"),
        Done(TableChange("upsert", columns={"n": "int32"}), "3", "3"),
    ]
    columns = Oracle(EVENT_TIME, COLUMNS).last(done).columns
    assert columns == {**COLUMNS, "n": "int64", "w": "string"}


def test_readers_of_changes_see_the_last_writer_of_a_row() -> None:
    done = [
        Done(upsert(row("k", "p", 2, 1), row("m", "p", 1, 2)), "1", "1"),
        Done(upsert(row("k", "p", 1, 3), row("m", "p", 1, 4)), "2", "2"),
    ]
    state = Oracle(EVENT_TIME, COLUMNS).last(done)
    assert state.written_by(["2"]) == [row("m", "p", 1, 4)]


def test_a_missing_column_is_null() -> None:
    assert plain([{"id": "k", "w": None}]) == plain([{"id": "k"}])
