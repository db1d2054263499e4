"""`spark.sql` of an enabled session, `CALL`, and the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

import tidelock as tl
from tests.spark.sqlkit import Sql, sql_in
from tidelock.core.errors import InvalidInput, NotFound, Unsupported


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[Sql]:
    with sql_in(spark, tmp_path) as found:
        yield found


def test_spark_sql_of_an_enabled_session_reads_and_changes_tables(sql: Sql) -> None:
    spark = tl.enable(sql.spark)
    name = sql.table("id BIGINT, n INT", type="mor")
    spark.sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    spark.sql(f"UPDATE {name} SET n = n + 10 WHERE id = 1")
    query = f"SELECT x.n FROM {name} x JOIN range(5) r ON x.id = r.id WHERE x.id = :id"
    assert [row.n for row in spark.sql(query, args={"id": 1}).collect()] == [11]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW session_most AS SELECT max(n) AS most FROM {name}")
    assert spark.table("session_most").collect()[0].most == 11
    spark.catalog.dropTempView("session_most")
    spark.sql(f"INSERT INTO {name} SELECT :id, length(:text)", args={"id": 3, "text": "it's"})
    assert sql.rows(name, "id, n") == [(1, 11), (2, 2), (3, 4)]
    plan = spark.sql(f"EXPLAIN SELECT count(*) FROM {name}").collect()[0][0]
    assert "Physical Plan" in plan


def test_other_statements_go_to_spark_with_their_errors(sql: Sql) -> None:
    spark = tl.enable(sql.spark)
    assert spark.sql("SELECT 1 AS one").collect()[0].one == 1
    with pytest.raises(ParseException):
        spark.sql("SELEC 1")
    with pytest.raises(AnalysisException):
        spark.sql("SELECT * FROM nowhere_at_all")
    with pytest.raises(InvalidInput, match="line 1:15: table or view nowhere_at_all not found"):
        tl.sql(spark, "SELECT * FROM nowhere_at_all")


def test_time_travel_and_changes_work_in_any_query(sql: Sql) -> None:
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


def test_procedures_inspect_and_maintain_a_table(sql: Sql) -> None:
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
    ("statement", "kind", "expected"),
    [
        ("CALL shw_commits('t')", InvalidInput, "line 1:6: procedure shw_commits not found"),
        ("CALL show_commits()", InvalidInput, "show_commits: missing argument table"),
        ("CALL show_commits(tabel => 't')", InvalidInput, "unknown argument tabel"),
        ("CALL show_commits('t', 'x')", InvalidInput, "limit int"),
        (
            "CALL show_commits('nowhere_at_all')",
            NotFound,
            "tidelock table nowhere_at_all not found",
        ),
        ("ANALYZE TABLE {0} COMPUTE STATISTICS", Unsupported, "ANALYZE is not supported"),
        ("CREATE VIEW v AS SELECT * FROM {0}", Unsupported, "permanent views on tidelock tables"),
    ],
)
def test_unsupported_statements_are_rejected(
    sql: Sql, statement: str, kind: type[Exception], expected: str
) -> None:
    name = sql.table("id BIGINT") if "{0}" in statement else ""
    with pytest.raises(kind, match=expected):
        sql(statement.format(name))


def test_command_runs_a_script_in_an_existing_session(
    sql: Sql,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tidelock.cli.main import main

    monkeypatch.setattr(type(sql.spark), "stop", lambda _: None)
    script = tmp_path / "nightly.sql"
    location = tmp_path / "orders"
    script.write_text(
        f"CREATE TABLE cli_orders (id BIGINT, n INT) USING tidelock LOCATION '{location}'"
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
    assert "line 1:8: column idd not found" in capsys.readouterr().err
