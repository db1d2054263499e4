"""The examples that need Spark, run in the session of the tests."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_streams_and_a_backfill_into_one_table(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "streams_into_one_table.py"))["run"](spark, tmp_path)
    assert "250 rows by eu, us, backfill" in capsys.readouterr().out


def test_concurrent_sql_jobs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "mixed_sql_jobs.py"))["run"](spark, tmp_path, 2)
    assert "every count is correct" in capsys.readouterr().out
