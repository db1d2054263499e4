"""Statements as they are read: their kind, their tables, and where they are wrong."""

from __future__ import annotations

import pytest
from sqlglot import exp

from tidelock.base.errors import InvalidInput, Unsupported
from tidelock.pipeline.sql.inserting import query_span
from tidelock.pipeline.sql.mergesource import inner_query
from tidelock.pipeline.sql.parameters import filled
from tidelock.pipeline.sql.references import Changes, columns_named, references
from tidelock.pipeline.sql.statement import leading_with, read, rendered, split


def tables(text: str) -> list[str]:
    return sorted(each.name for each in references(read(text)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELEC 1", "line 1:7: '1' is not expected here"),
        ("SELECT a\nFROM t WHRE x", "line 2:13: 'x' is not expected here"),
        ("MERGE INTO t USING s", "line 1:20: 's' is not expected here"),
    ],
)
def test_a_statement_that_cannot_be_read_says_where(text: str, says: str) -> None:
    error = read(text).error
    assert error is not None
    assert error.message.startswith(says)
    assert error.message.splitlines()[-1].strip() == "^"


@pytest.mark.parametrize("text", ["", "  \n", "-- nothing\n", "/* nothing */"])
def test_no_statement_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="no statement"):
        read(text)


def test_several_statements_are_refused_where_one_is_wanted() -> None:
    with pytest.raises(InvalidInput, match="2 statements"):
        read("SELECT 1; SELECT 2")


def test_a_script_is_split_at_semicolons_that_are_not_in_texts_or_comments() -> None:
    script = "SELECT 1; -- a;b\n SELECT ';' ; CALL help(); SHOW TABLES;\n"
    assert split(script) == ["SELECT 1", "-- a;b\n SELECT ';'", "CALL help()", "SHOW TABLES"]


def test_a_script_with_an_open_quote_is_refused() -> None:
    with pytest.raises(InvalidInput):
        split("SELECT 'abc; SELECT 2")


def test_names_of_with_clauses_are_not_tables() -> None:
    text = (
        "WITH t AS (SELECT * FROM t WHERE x IN (SELECT y FROM z))"
        " SELECT *, (SELECT max(a) FROM w WHERE w.i = t.i) FROM t JOIN db.u ON true"
    )
    assert tables(text) == ["db.u", "t", "w", "z"]


def test_the_with_clause_of_an_insert_names_no_table_behind_it() -> None:
    text = "WITH q AS (SELECT * FROM t) INSERT INTO u SELECT * FROM q"
    assert tables(text) == ["t"]


def test_tables_of_subqueries_in_conditions_are_found() -> None:
    assert tables("UPDATE t SET a = (SELECT max(a) FROM t) WHERE id IN (SELECT id FROM s)") == [
        "s",
        "t",
    ]
    assert tables("EXPLAIN SELECT * FROM t") == ["t"]


@pytest.mark.parametrize(
    ("clause", "as_of"),
    [
        ("TIMESTAMP AS OF '2025-01-01'", "2025-01-01"),
        ("FOR VERSION AS OF 20250101000000000", "20250101000000000"),
        ("FOR SYSTEM_TIME AS OF '20250101000000'", "20250101000000"),
    ],
)
def test_a_moment_belongs_to_its_table_and_its_place(clause: str, as_of: str) -> None:
    text = f"SELECT * FROM a {clause} AS x JOIN b ON true"
    found = {each.name: each for each in references(read(text))}
    assert found["a"].as_of == as_of
    assert found["b"].as_of is None
    span = found["a"].span
    assert text[span.start : span.end] == f"a {clause}"


def test_a_moment_that_is_computed_is_refused_at_its_place() -> None:
    with pytest.raises(InvalidInput, match="plain value"):
        references(read("SELECT * FROM t TIMESTAMP AS OF date_sub(now(), 1)"))


def test_changes_are_read_from_the_function_of_either_name() -> None:
    for name in ("hudi_table_changes", "tidelock_table_changes"):
        text = f"SELECT * FROM {name}('db.t', 'latest_state', 'earliest', '2025') c"
        (found,) = references(read(text))
        assert found.parts == ("db", "t")
        assert found.changes == Changes("000", "2025")
        assert text[found.span.start : found.span.end].endswith("'2025')")


def test_changes_with_rows_before_are_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="cdc"):
        references(read("SELECT * FROM hudi_table_changes('t', 'cdc', '0')"))


def test_changes_with_too_few_arguments_are_refused() -> None:
    with pytest.raises(InvalidInput, match="takes a table"):
        references(read("SELECT * FROM hudi_table_changes('t')"))


def test_a_star_asks_for_every_column_and_a_count_does_not() -> None:
    def named(text: str) -> frozenset[str] | None:
        tree = read(text).tree
        assert tree is not None
        return columns_named(tree)

    assert named("SELECT * FROM t") is None
    assert named("SELECT x.* FROM t x") is None
    assert named("SELECT a FROM t NATURAL JOIN u") is None
    assert named("SELECT count(*), A FROM t WHERE b > 1") == frozenset({"a", "b", "t"})


@pytest.mark.parametrize(
    ("head", "query"),
    [
        ("INSERT INTO t", "VALUES (1, 'a')"),
        ("INSERT INTO t (a, b)", "SELECT 1, 2"),
        ("INSERT INTO TABLE db.t PARTITION (d = '1', h) (a)", "(SELECT 1)"),
        ("INSERT OVERWRITE t PARTITION (d = '1')", "SELECT (1)"),
        ("INSERT INTO t BY NAME", "SELECT 1 AS a"),
    ],
)
def test_the_query_of_an_insert_begins_behind_everything_else(head: str, query: str) -> None:
    statement = read(f"{head} {query}")
    assert isinstance(statement.tree, exp.Insert)
    span = query_span(statement, statement.tree)
    assert statement.text[span.start : span.end] == query


def test_the_source_of_a_merge_is_the_query_in_brackets() -> None:
    text = "MERGE INTO t USING (SELECT (1) AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    span = inner_query(read(text))
    assert text[span.start : span.end] == "SELECT (1) AS id"


def test_a_with_clause_before_a_merge_is_found_whole() -> None:
    text = "WITH s AS (SELECT 1 AS id) MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE"
    span = leading_with(read(text))
    assert span is not None
    assert text[span.start : span.end].strip() == "WITH s AS (SELECT 1 AS id)"
    assert leading_with(read("SELECT 1")) is None


def test_parameters_become_values_and_never_text() -> None:
    statement = read("DELETE FROM t WHERE a = :name AND b = :n")
    tree = filled(statement, {"name": "x' OR '1'='1", "n": 3}).tree
    assert tree is not None
    assert rendered(tree) == r"DELETE FROM t WHERE a = 'x\' OR \'1\'=\'1' AND b = 3"


def test_parameters_by_place_are_taken_in_their_order() -> None:
    tree = filled(read("UPDATE t SET a = ? WHERE b = ?"), [1, None]).tree
    assert tree is not None
    assert rendered(tree) == "UPDATE t SET a = 1 WHERE b = NULL"


def test_a_parameter_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'x' has no value"):
        filled(read("DELETE FROM t WHERE a = :x"), {"y": 1})
