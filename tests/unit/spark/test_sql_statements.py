"""Parsing of statements: their kind, their tables, and positions of errors."""

from __future__ import annotations

import pytest
from sqlglot import exp

from tidelock.core.errors import InvalidInput, Unsupported
from tidelock.spark.sql.execute import bind_parameters
from tidelock.spark.sql.insert import query_span
from tidelock.spark.sql.sources import (
    TableChangesCall,
    columns_named,
    table_references,
    using_query,
)
from tidelock.spark.sql.statement import parse, split_statements, to_sql, top_level, with_clause


def tables(text: str) -> list[str]:
    return sorted(each.name for each in table_references(parse(text)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELEC 1", "line 1:7: unexpected '1'"),
        ("SELECT a\nFROM t WHRE x", "line 2:13: unexpected 'x'"),
        ("MERGE INTO t USING s", "line 1:20: unexpected 's'"),
    ],
)
def test_parse_error_has_a_position(text: str, expected: str) -> None:
    error = parse(text).error
    assert error is not None
    assert error.message.startswith(expected)
    assert error.message.splitlines()[-1].strip() == "^"


@pytest.mark.parametrize("text", ["", "  \n", "-- nothing\n", "/* nothing */"])
def test_empty_statement_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match="the statement is empty"):
        parse(text)


def test_several_statements_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="got 2"):
        parse("SELECT 1; SELECT 2")


def test_script_is_split_at_semicolons_outside_of_strings_and_comments() -> None:
    script = "SELECT 1; -- a;b\n SELECT ';' ; CALL help(); SHOW TABLES;\n"
    assert split_statements(script) == [
        "SELECT 1",
        "-- a;b\n SELECT ';'",
        "CALL help()",
        "SHOW TABLES",
    ]


def test_script_with_an_open_quote_is_rejected() -> None:
    with pytest.raises(InvalidInput):
        split_statements("SELECT 'abc; SELECT 2")


def test_names_of_with_clauses_are_not_tables() -> None:
    text = (
        "WITH t AS (SELECT * FROM t WHERE x IN (SELECT y FROM z))"
        " SELECT *, (SELECT max(a) FROM w WHERE w.i = t.i) FROM t JOIN db.u ON true"
    )
    assert tables(text) == ["db.u", "t", "w", "z"]


def test_names_of_the_with_clause_of_an_insert_are_not_tables() -> None:
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
def test_time_travel_belongs_to_its_table(clause: str, as_of: str) -> None:
    text = f"SELECT * FROM a {clause} AS x JOIN b ON true"
    found = {each.name: each for each in table_references(parse(text))}
    assert found["a"].as_of == as_of
    assert found["b"].as_of is None
    span = found["a"].span
    assert text[span.start : span.end] == f"a {clause}"


def test_time_travel_to_an_expression_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="expected a literal"):
        table_references(parse("SELECT * FROM t TIMESTAMP AS OF date_sub(now(), 1)"))


def test_both_names_of_the_changes_function_are_accepted() -> None:
    for name in ("hudi_table_changes", "tidelock_table_changes"):
        text = f"SELECT * FROM {name}('db.t', 'latest_state', 'earliest', '2025') c"
        (found,) = table_references(parse(text))
        assert found.parts == ("db", "t")
        assert found.changes == TableChangesCall("000", "2025")
        assert text[found.span.start : found.span.end].endswith("'2025')")


def test_cdc_changes_are_rejected() -> None:
    with pytest.raises(Unsupported, match="cdc"):
        table_references(parse("SELECT * FROM hudi_table_changes('t', 'cdc', '0')"))


def test_changes_with_too_few_arguments_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="expected literals for table"):
        table_references(parse("SELECT * FROM hudi_table_changes('t')"))


def test_star_selects_all_columns_and_a_count_does_not() -> None:
    def named(text: str) -> frozenset[str] | None:
        tree = parse(text).tree
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
def test_query_of_an_insert_comes_after_all_clauses(head: str, query: str) -> None:
    statement = parse(f"{head} {query}")
    assert isinstance(statement.tree, exp.Insert)
    span = query_span(statement, statement.tree)
    assert statement.text[span.start : span.end] == query


def test_source_of_a_merge_is_the_query_in_parentheses() -> None:
    text = "MERGE INTO t USING (SELECT (1) AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    span = using_query(parse(text))
    assert text[span.start : span.end] == "SELECT (1) AS id"


@pytest.mark.parametrize("quoted", ["r'as'", "'as'", "`as`"])
def test_quoted_word_is_not_a_keyword(quoted: str) -> None:
    statement = parse(f"CREATE TABLE t USING tidelock COMMENT {quoted} AS SELECT 1 AS id")
    index = top_level(statement, "AS")
    assert index is not None
    assert statement.tokens[index + 1].text == "SELECT"


def test_with_clause_before_a_merge_is_found() -> None:
    text = "WITH s AS (SELECT 1 AS id) MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE"
    span = with_clause(parse(text))
    assert span is not None
    assert text[span.start : span.end].strip() == "WITH s AS (SELECT 1 AS id)"
    assert with_clause(parse("SELECT 1")) is None


def test_parameters_become_values_and_never_text() -> None:
    statement = parse("DELETE FROM t WHERE a = :name AND b = :n")
    tree = bind_parameters(statement, {"name": "x' OR '1'='1", "n": 3}).tree
    assert tree is not None
    assert to_sql(tree) == r"DELETE FROM t WHERE a = 'x\' OR \'1\'=\'1' AND b = 3"


def test_positional_parameters_are_bound_in_order() -> None:
    tree = bind_parameters(parse("UPDATE t SET a = ? WHERE b = ?"), [1, None]).tree
    assert tree is not None
    assert to_sql(tree) == "UPDATE t SET a = 1 WHERE b = NULL"


def test_parameter_without_a_value_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="'x' has no value"):
        bind_parameters(parse("DELETE FROM t WHERE a = :x"), {"y": 1})
