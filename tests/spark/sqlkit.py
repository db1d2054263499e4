"""Helpers for SQL tests: tables with unique names, and rows to compare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tidelock as tl

_NUMBERS = count()


@dataclass
class Sql:
    """The SQL of a session, and the tables that a test creates with it."""

    spark: SparkSession
    folder: Path
    made: list[str] = field(default_factory=list)

    def __call__(self, text: str, args: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        return [tuple(row) for row in tl.sql(self.spark, text, args).collect()]

    def done(self, text: str) -> dict[str, Any]:
        """Run a statement that changes a table; return its report."""
        (row,) = tl.sql(self.spark, text).collect()
        return dict(row.asDict())

    def rows(self, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """Return the rows of a table, sorted as text."""
        return sorted(self(f"SELECT {columns} FROM {table}"), key=repr)

    def table(self, columns: str, *, partitioned: str = "", **properties: str) -> str:
        """Create a table in the test's folder, and return its name."""
        name = f"t{next(_NUMBERS)}"
        self.made.append(name)
        table_properties = {"primaryKey": "id", **properties}
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in table_properties.items())
        by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
        self(
            f"CREATE TABLE {name} ({columns}) USING tidelock {by}"
            f" LOCATION '{self.folder / name}' TBLPROPERTIES ({pairs})"
        )
        return name

    def uri(self, table: str) -> str:
        """Return the location of a table."""
        return str(self.folder / table)


@contextmanager
def sql_in(spark: SparkSession, folder: Path) -> Iterator[Sql]:
    """Return SQL in the shared session; its tables are unregistered afterwards."""
    found = Sql(spark, folder)
    try:
        yield found
    finally:
        for name in found.made:
            found(f"DROP TABLE IF EXISTS {name}")
