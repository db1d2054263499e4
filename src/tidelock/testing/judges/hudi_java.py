"""The judge from Java: Apache Hudi's file system view and file group reader, without Spark."""

from __future__ import annotations

from tidelock.testing.java.hudi import VERSION
from tidelock.testing.java.tables import JavaTables
from tidelock.testing.judges.rows import Row, ordered


class HudiJava:
    """Reads tables in a Java process that runs already."""

    def __init__(self, tables: JavaTables) -> None:
        """Take the process to ask."""
        self._tables = tables

    @property
    def name(self) -> str:
        """Say which reader it is."""
        return f"Apache Hudi {VERSION} (Java)"

    def snapshot(self, table: str, as_of: str | None = None) -> list[Row]:
        """Return the rows now, or of writes requested by `as_of`."""
        return ordered(self._tables.snapshot(table, as_of))

    def read_optimized(self, table: str) -> list[Row]:
        """Return the rows of base files alone."""
        return ordered(self._tables.read_optimized(table))

    def changes(self, table: str, since: str, until: str | None = None) -> list[Row]:
        """Return the rows that writes completed in (since, until] left behind."""
        return ordered(self._tables.changes(table, since, until))
