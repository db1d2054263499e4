"""`spark.sql` of a session that knows our tables, `CALL`, and the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

import tidelock as tl
from tests.spark.sqlkit import Sql, sql_in
from tidelock.base.errors import InvalidInput, NotFound, Unsupported


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[Sql]:
    with sql_in(spark, tmp_path) as found:
        yield found


def test_a_session_that_was_taught_reads_and_changes_tables_by_its_own_sql(sql: Sql) -> None:
    spark = tl.enable(sql.spark)
    name = sql.table("id BIGINT, n INT", type="mor")
    spark.sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    spark.sql(f"UPDATE {name} SET n = n + 10 WHERE id = 1")
    query = f"SELECT x.n FROM {name} x JOIN range(5) r ON x.id = r.id WHERE x.id = :id"
    assert [row.n for row in spark.sql(query, args={"id": 1}).collect()] == [11]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT max(n) AS most FROM {name}")
    assert spark.table("seen").collect()[0].most == 11
    spark.sql(f"INSERT INTO {name} SELECT :id, length(:text)", args={"id": 3, "text": "it's"})
    assert sql.rows(name, "id, n") == [(1, 11), (2, 2), (3, 4)]
    plan = spark.sql(f"EXPLAIN SELECT count(*) FROM {name}").collect()[0][0]
    assert "Physical Plan" in plan


def test_what_is_not_ours_is_sparks_mistakes_included(sql: Sql) -> None:
    spark = tl.enable(sql.spark)
    assert spark.sql("SELECT 1 AS one").collect()[0].one == 1
    with pytest.raises(ParseException):
        spark.sql("SELEC 1")
    with pytest.raises(AnalysisException):
        spark.sql("SELECT * FROM nowhere_at_all")
    with pytest.raises(InvalidInput, match="line 1:15: there is no table or view nowhere_at_all"):
        tl.sql(spark, "SELECT * FROM nowhere_at_all")


def test_the_past_and_the_changes_of_a_table_are_read_inside_any_query(sql: Sql) -> None:
    name = sql.table("id BIGINT, n INT")
    first = sql.done(f"INSERT INTO {name} VALUES (1, 1), (2, 2)")["instant"]
    sql(f"UPDATE {name} SET n = 20 WHERE id = 2")
    both = (
        f"SELECT a.id, a.n, b.n FROM {name} VERSION AS OF '{first}' AS a JOIN {name} b"
        " ON a.id = b.id ORDER BY a.id"
    )
    assert sql(both) == [(1, 1, 1), (2, 2, 20)]
    assert sql(f"SELECT count(*) FROM {name} TIMESTAMP AS OF '2020-01-01'") == [(0,)]
    with tl.Table.open(sql.uri(name)) as table:
        done = table.history(2)[1].completion
    changes = f"SELECT id, n FROM hudi_table_changes('{name}', 'latest_state', '{done}')"
    assert sql(changes) == [(2, 20)]


def test_procedures_show_and_serve_a_table(sql: Sql) -> None:
    name = sql.table("id BIGINT, n INT", type="mor")
    sql(f"INSERT INTO {name} VALUES (1, 1)")
    saved = sql(f"CALL create_savepoint(table => '{name}')")[0][1]
    last = sql.done(f"UPDATE {name} SET n = 2")["instant"]
    commits = sql(f"CALL show_commits(table => '{name}', limit => 1)")
    assert [(row[0], row[3]) for row in commits] == [(last, "UPSERT")]
    assert sql(f"CALL show_timeline('{name}', 1)")[0][0] == last
    assert [row[1] for row in sql(f"CALL show_locks('{name}')")] == ["free"]
    assert sql(f"CALL show_writers('{name}')") == []
    assert sql(f"CALL validate_audit_lock('{name}')")[0][1] == "PASSED"
    assert sql(f"CALL show_savepoints('{name}')")[0][0] == saved
    assert sql(f"CALL rollback_to_instant('{name}', '{last}')") == [(True,)]
    assert sql.rows(name, "id, n") == [(1, 1)]
    sql(f"UPDATE {name} SET n = 3")
    assert [row[1] for row in sql(f"CALL run_compaction('run', '{name}')")] == ["COMPLETED"]
    assert sql(f"CALL stats_file_sizes('{name}')")[-1][0] == "ALL"
    assert sql(f"CALL rollback_to_savepoint('{name}', '{saved}')") == [(True,)]
    assert sql.rows(name, "id, n") == [(1, 1)]
    assert sql(f"CALL delete_savepoint('{name}', '{saved}')") == [(True,)]
    assert "run_clustering" in [row[0] for row in sql("CALL help()")]


@pytest.mark.parametrize(
    ("statement", "kind", "says"),
    [
        ("CALL shw_commits('t')", InvalidInput, "line 1:6: there is no procedure shw_commits"),
        ("CALL show_commits()", InvalidInput, "show_commits needs table"),
        ("CALL show_commits(tabel => 't')", InvalidInput, "tabel is no argument"),
        ("CALL show_commits('t', 'x')", InvalidInput, "limit int"),
        ("CALL show_commits('nowhere_at_all')", NotFound, "no tidelock table nowhere_at_all"),
        ("ANALYZE TABLE {0} COMPUTE STATISTICS", Unsupported, "ANALYZE is not supported"),
        ("CREATE VIEW v AS SELECT * FROM {0}", Unsupported, "would be kept"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    sql: Sql, statement: str, kind: type[Exception], says: str
) -> None:
    name = sql.table("id BIGINT") if "{0}" in statement else ""
    with pytest.raises(kind, match=says):
        sql(statement.format(name))


def test_the_command_runs_a_script_in_the_session_that_is_there(
    sql: Sql,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tidelock.ops.cli.main import main

    monkeypatch.setattr(type(sql.spark), "stop", lambda _: None)
    script = tmp_path / "nightly.sql"
    place = tmp_path / "orders"
    script.write_text(
        f"CREATE TABLE cli_orders (id BIGINT, n INT) USING tidelock LOCATION '{place}'"
        " TBLPROPERTIES (primaryKey = 'id');\n"
        "INSERT INTO cli_orders VALUES (1, 1), (2, 2); -- two rows\n"
        "SELECT id, n FROM cli_orders ORDER BY id;\n"
    )
    sql.made.append("cli_orders")
    folder = str(tmp_path / "warehouse")
    assert main(["sql", "-f", str(script), "--warehouse", folder, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-2:] == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]
    assert main(["sql", "-e", "SELECT idd FROM cli_orders", "--warehouse", folder]) == 2
    assert "line 1:8: there is no column idd" in capsys.readouterr().err
