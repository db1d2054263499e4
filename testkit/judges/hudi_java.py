"""Reference reader: Apache Hudi's Java file system view and file group reader, without Spark."""

from __future__ import annotations

from testkit.java.hudi import VERSION
from testkit.java.tables import JavaTables
from testkit.judges.rows import Row, ordered


class HudiJava:
    """Reads tables in a running Java process."""

    def __init__(self, tables: JavaTables) -> None:
        """Use a running process."""
        self._tables = tables

    @property
    def name(self) -> str:
        """The name of the reader."""
        return f"Apache Hudi {VERSION} (Java)"

    def snapshot(self, table: str, as_of: str | None = None) -> list[Row]:
        """Return the current rows, or those of commits requested up to `as_of`."""
        return ordered(self._tables.snapshot(table, as_of))

    def read_optimized(self, table: str) -> list[Row]:
        """Return the rows of base files only."""
        return ordered(self._tables.read_optimized(table))

    def changes(self, table: str, since: str, until: str | None = None) -> list[Row]:
        """Return the rows changed by commits completed in (since, until]."""
        return ordered(self._tables.changes(table, since, until))
