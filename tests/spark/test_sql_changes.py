"""UPDATE, DELETE and MERGE INTO, compared with plain Spark queries on copies of the rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.sqlkit import Sql, sql_in
from tidelock.core.errors import InvalidInput
from tidelock.execution.spark.write import SparkWriter
from tidelock.operations.attempt import ReadSnapshot
from tidelock.spark.sql import merge
from tidelock.spark.sql.merge import CandidateSource, MergeCandidates, MergeExecution
from tidelock.storage.uri import StoreAddress

COLUMNS = "id BIGINT, day STRING, n INT, name STRING"
NAMES = "id, day, n, name"
BOTH = pytest.mark.parametrize("kind", ["cow", "mor"])


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[Sql]:
    with sql_in(spark, tmp_path) as found:
        yield found


def table_with_rows(sql: Sql, kind: str, rows: list[tuple[object, ...]]) -> str:
    """Return a table with rows; the view `<name>_was` is a plain copy."""
    name = sql.table(COLUMNS, partitioned="day", type=kind)
    ordered = COLUMNS.replace("day STRING, ", "") + ", day STRING"
    plain = sql.spark.createDataFrame([(i, n, name, day) for i, day, n, name in rows], ordered)
    plain.createOrReplaceTempView(f"{name}_was")
    sql(f"INSERT INTO {name} SELECT * FROM {name}_was")
    return name


def expected(sql: Sql, query: str) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in sql.spark.sql(query).collect()), key=repr)


def drawn(seed: int, rows: int, keys: int) -> list[tuple[object, ...]]:
    """Return rows with unique keys and some null values."""
    dice = random.Random(seed)
    return [
        (
            key,
            f"d{key % 3}",
            dice.choice([None, *range(10)]),
            dice.choice([None, "a", "b", "c"]),
        )
        for key in dice.sample(range(keys), rows)
    ]


@BOTH
def test_update_changes_the_same_rows_as_plain_spark(sql: Sql, kind: str) -> None:
    name = table_with_rows(sql, kind, drawn(1, 40, 60))
    condition = f"n > 3 OR name IN (SELECT name FROM {name}_was WHERE id < 5)"
    value = f"coalesce(n, 0) * 2 + (SELECT max(n) FROM {name}_was)"
    rows_expected = expected(
        sql,
        f"SELECT id, day, CASE WHEN {condition} THEN {value} ELSE n END,"
        f" CASE WHEN {condition} THEN upper(name) ELSE name END FROM {name}_was",
    )
    own = {"condition": condition, "value": value}
    own = {key: text.replace(f"{name}_was", name) for key, text in own.items()}
    done = sql.done(
        f"UPDATE {name} x SET x.n = {own['value']}, name = upper(x.name) WHERE {own['condition']}"
    )
    assert sql.rows(name, NAMES) == rows_expected
    assert done["rows_updated"] > 0


def test_update_of_the_partition_moves_rows(sql: Sql) -> None:
    name = table_with_rows(sql, "mor", drawn(2, 12, 20))
    rows_expected = expected(
        sql,
        f"SELECT id, CASE WHEN id % 2 = 0 THEN 'd1' ELSE day END, n, name FROM {name}_was",
    )
    sql(f"UPDATE {name} SET day = 'd1' WHERE id % 2 = 0")
    assert sql.rows(name, NAMES) == rows_expected


def test_delete_removes_the_same_rows_as_plain_spark(sql: Sql) -> None:
    name = table_with_rows(sql, "mor", drawn(3, 40, 60))
    condition = "EXISTS (SELECT 1 FROM {0} o WHERE o.id = x.id + 1) OR x.n IS NULL"
    rows_expected = expected(
        sql, f"SELECT {NAMES} FROM {name}_was x WHERE NOT ({condition.format(f'{name}_was')})"
    )
    sql(f"DELETE FROM {name} x WHERE {condition.format(name)}")
    assert sql.rows(name, NAMES) == rows_expected
    assert sql.done(f"DELETE FROM {name} WHERE id = -1")["instant"] is None
    sql(f"DELETE FROM {name}")
    assert sql.rows(name) == []


MERGES = [
    # Clauses and expected columns; in a full join, `sid` or `id` is null for a row of one side.
    (
        (
            "WHEN MATCHED AND s.n IS NULL THEN DELETE"
            " WHEN MATCHED AND s.n > t.n THEN UPDATE SET n = s.n, name = concat(t.name, s.name)"
            " WHEN NOT MATCHED AND s.n > 2 THEN INSERT *"
        ),
        "CASE WHEN id IS NULL THEN sn > 2 WHEN sid IS NULL THEN true ELSE sn IS NOT NULL END",
        "CASE WHEN id IS NULL THEN sn WHEN sn > n THEN sn ELSE n END",
        "CASE WHEN id IS NULL THEN sname WHEN sn > n THEN concat(name, sname) ELSE name END",
    ),
    (
        (
            "WHEN MATCHED THEN UPDATE SET *"
            " WHEN NOT MATCHED THEN INSERT (id, day, n) VALUES (id, s.day, n + 100)"
            " WHEN NOT MATCHED BY SOURCE AND t.n < 5 THEN UPDATE SET name = 'old'"
            " WHEN NOT MATCHED BY SOURCE AND t.n > 7 THEN DELETE"
        ),
        "sid IS NOT NULL OR coalesce(n, 0) <= 7",
        "CASE WHEN id IS NULL THEN sn + 100 WHEN sid IS NULL THEN n ELSE sn END",
        (
            "CASE WHEN id IS NULL THEN NULL WHEN sid IS NOT NULL THEN sname"
            " WHEN n < 5 THEN 'old' ELSE name END"
        ),
    ),
    (
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "true",
        "CASE WHEN sid IS NULL THEN n ELSE sn END",
        "CASE WHEN sid IS NULL THEN name ELSE sname END",
    ),
    (
        (
            "WHEN MATCHED AND s.name = 'a' THEN DELETE WHEN MATCHED THEN UPDATE SET *"
            " WHEN NOT MATCHED AND s.name <> 'a' THEN INSERT *"
        ),
        (
            "CASE WHEN sid IS NULL THEN true WHEN id IS NULL THEN sname <> 'a'"
            " ELSE NOT coalesce(sname = 'a', false) END"
        ),
        "CASE WHEN sid IS NULL THEN n ELSE sn END",
        "CASE WHEN sid IS NULL THEN name ELSE sname END",
    ),
    (
        "WHEN NOT MATCHED THEN INSERT (name, id, day) VALUES (DEFAULT, s.id, s.day)",
        "true",
        "n",
        "name",
    ),
    ("WHEN MATCHED THEN DELETE", "sid IS NULL", "n", "name"),
]

WITHOUT_JOIN = (2, 5)
"""Merges that need no join: the table's index finds the rows matched by the source."""


@pytest.mark.parametrize("number", range(len(MERGES)))
def test_merge_applies_the_first_matching_clause(
    sql: Sql, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if number in WITHOUT_JOIN:
        monkeypatch.delattr(MergeExecution, "compute")
    assert_merge_equals_plain_spark(sql, number)


def assert_merge_equals_plain_spark(sql: Sql, number: int) -> None:
    """Merge into a table, and compare it with a full join of the copies."""
    clauses, condition, n, label = MERGES[number]
    name = table_with_rows(sql, "cow" if number % 2 else "mor", drawn(10 + number, 30, 50))
    kinds = (pa.int64(), pa.string(), pa.int32(), pa.string())
    columns = zip(*drawn(20 + number, 25, 50), strict=True)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    source = pa.table(arrays, names=NAMES.split(", "))
    sql.spark.createDataFrame(source).createOrReplaceTempView("merge_source")
    rows_expected = expected(
        sql,
        "SELECT coalesce(id, sid), coalesce(day, sday), n2, name2 FROM (SELECT *,"
        f" {n} AS n2, {label} AS name2 FROM {name}_was FULL JOIN (SELECT id AS sid, day AS sday,"
        f" n AS sn, name AS sname FROM merge_source) ON id = sid) WHERE {condition}",
    )
    sql(f"MERGE INTO {name} t USING merge_source s ON t.id = s.id AND t.day = s.day {clauses}")
    assert sql.rows(name, NAMES) == rows_expected


@pytest.mark.parametrize("where", ["in the driver", "by Spark", "by Spark, too many", "by a join"])
def test_merge_has_the_same_result_with_every_candidate_lookup(
    sql: Sql, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[MergeCandidates | None] = []
    original = CandidateSource.rows

    def watched(
        self: CandidateSource, now: ReadSnapshot, names: list[str]
    ) -> MergeCandidates | None:
        found.append(None if where == "by a join" else original(self, now, names))
        return found[-1]

    monkeypatch.setattr(CandidateSource, "rows", watched)
    if where == "by Spark":
        monkeypatch.setattr(merge, "is_local_master", lambda _: False)
    if where == "by Spark, too many":
        monkeypatch.setattr(merge, "CANDIDATE_BYTES_MAX", 0)
    assert_merge_equals_plain_spark(sql, 0)
    (conflict,) = found
    assert (conflict is not None and conflict.in_driver) == (where == "in the driver")


def test_nondeterministic_source_is_evaluated_once(sql: Sql) -> None:
    name = table_with_rows(sql, "cow", [(i, "d1", 0, "a") for i in range(8)])
    drawn_ids = "(SELECT id, rand() AS x FROM range(100) WHERE rand() < 0.2)"
    sql(
        f"MERGE INTO {name} t USING {drawn_ids} s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET n = t.n + 1"
        " WHEN NOT MATCHED THEN INSERT (id, day, n) VALUES (s.id, 'd1', 1)"
    )
    found = sql.rows(name, "id, n")
    assert len({row[0] for row in found}) == len(found)
    assert {row[0] for row in found} >= set(range(8))


def test_merge_of_two_source_rows_into_one_is_rejected(sql: Sql) -> None:
    name = table_with_rows(sql, "cow", [(1, "d1", 1, "a"), (2, "d1", 2, "b")])
    twice = "(SELECT 1 AS id, 5 AS n UNION ALL SELECT 1, 6)"
    with pytest.raises(InvalidInput, match=r'several rows of s match one row .*"id":1'):
        sql(
            f"MERGE INTO {name} USING {twice} s ON {name}.id = s.id"
            " WHEN MATCHED THEN UPDATE SET n = s.n"
        )
    assert sql.rows(name, NAMES) == [(1, "d1", 1, "a"), (2, "d1", 2, "b")]
    sql(f"MERGE INTO {name} USING {twice} s ON {name}.id = s.id WHEN MATCHED THEN DELETE")
    assert sql.rows(name, "id") == [(2,)]


def test_merge_can_move_a_row_to_another_partition_but_not_to_another_key(sql: Sql) -> None:
    name = table_with_rows(sql, "cow", [(1, "d1", 1, "a"), (2, "d2", 2, "b")])
    source = "WITH s AS (SELECT 1 AS id, 'd2' AS d)"
    sql(
        f"{source} MERGE INTO {name} t USING s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET day = s.d"
    )
    assert sql.rows(name, "id, day") == [(1, "d2"), (2, "d2")]
    with pytest.raises(
        InvalidInput, match=r"id is part of the record key of .* and cannot be updated"
    ):
        sql(
            f"{source} MERGE INTO {name} t USING s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET id = 7"
        )


@BOTH
def test_update_that_decreases_the_ordering_value_is_rejected(sql: Sql, kind: str) -> None:
    name = sql.table("id BIGINT, ts BIGINT, n INT", orderingFields="ts", type=kind)
    sql(f"INSERT INTO {name} VALUES (1, 10, 1), (2, 10, 2)")
    sql(
        f"MERGE INTO {name} t USING (VALUES (1, 5, 100), (2, 15, 200)) s(id, ts, n) ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET *"
    )
    sql(f"UPDATE {name} SET n = n + 1")
    assert sql.rows(name, "id, ts, n") == [(1, 10, 2), (2, 15, 201)]
    with pytest.raises(InvalidInput, match="would decrease the ordering field ts"):
        sql(f"UPDATE {name} SET ts = ts - 1 WHERE id = 1")


WRONG = [
    ("UPDATE {0} SET id = 3", r"line 1:\d+: id is part of the record key"),
    ("UPDATE {0} SET nme = 1", r"line 1:\d+: .* has no column nme"),
    ("UPDATE {0} SET n = 1, n = 2", "n is set twice"),
    ("UPDATE {0} SET n = 1 / 0", "Division by zero"),
    ("UPDATE {0} SET n = nmae", r"line 1:\d+: column nmae not found"),
    ("DELETE FROM {0} WHERE id IN (SELECT id FROM nowhere)", "table or view nowhere not found"),
    (
        "MERGE INTO {0} t USING {0} s ON t.id = s.id WHEN NOT MATCHED THEN DELETE",
        "WHEN NOT MATCHED THEN DELETE is not allowed",
    ),
    (
        ("MERGE INTO {0} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"),
        "the source has no column n ",
    ),
]


def test_invalid_statements_are_rejected_with_their_position(sql: Sql) -> None:
    name = table_with_rows(sql, "cow", [(1, "d1", 1, "a")])
    for statement, expected in WRONG:
        with pytest.raises(InvalidInput, match=expected):
            sql(statement.format(name))
    assert sql.rows(name, NAMES) == [(1, "d1", 1, "a")]


def test_changes_that_do_not_fit_the_driver_have_the_same_result(
    sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_workers(session: SparkSession, uri: str, options: dict[str, object]) -> SparkWriter:
        address = StoreAddress(uri, dict(options))
        return SparkWriter(session, address, collected_bytes_max=-1, driver_bytes_max=-1)

    name = table_with_rows(sql, "mor", [(i, f"d{i % 2}", i, "a") for i in range(6)])
    monkeypatch.setattr("tidelock.spark.sql.target.SMALL_BYTES", -1)
    monkeypatch.setattr("tidelock.spark.sql.target.COLLECTED_BYTES_MAX", -1)
    monkeypatch.setattr("tidelock.table.session_engine", in_workers)
    sql(f"UPDATE {name} SET n = n + 10 WHERE id < 2")
    sql(f"DELETE FROM {name} WHERE id = 5")
    source = "(VALUES (0, 'd1', 1), (1, 'd1', 2), (2, 'd0', 3), (9, 'd1', 4)) s(id, day, x)"
    sql(
        f"MERGE INTO {name} t USING {source} ON t.id = s.id"
        " WHEN MATCHED AND s.x = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET day = s.day, n = s.x"
        " WHEN NOT MATCHED THEN INSERT (id, day, n) VALUES (s.id, s.day, s.x)"
    )
    assert sql.rows(name, "id, day, n") == [
        (0, "d1", 1),
        (1, "d1", 2),
        (3, "d1", 3),
        (4, "d0", 4),
        (9, "d1", 4),
    ]
    rows = "(VALUES (3, 'd1', 30, 'b'), (4, 'd0', 40, 'x'), (7, 'd1', 70, 'b')) s(id, day, n, name)"
    monkeypatch.delattr(MergeExecution, "compute")
    sql(
        f"MERGE INTO {name} t USING {rows} ON t.id = s.id AND t.day = s.day"
        " WHEN MATCHED AND s.name = 'x' THEN DELETE WHEN MATCHED THEN UPDATE SET *"
        " WHEN NOT MATCHED AND s.name <> 'x' THEN INSERT *"
    )
    assert [row[:3] for row in sql.rows(name, "id, day, n")] == [
        (0, "d1", 1),
        (1, "d1", 2),
        (3, "d1", 30),
        (7, "d1", 70),
        (9, "d1", 4),
    ]
