"""Reference reader: the package `hudi` from PyPI, Apache Hudi's reader in Rust."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pyarrow as pa

from testkit.judges.rows import Row, ordered, rows_of


class HudiRs:
    """Reads tables with the package `hudi`."""

    @property
    def name(self) -> str:
        """The name of the reader."""
        return f"hudi {version('hudi')} (Rust)"

    def snapshot(self, table: str, as_of: str | None = None) -> list[Row]:
        """Return the current rows, or those of commits requested up to `as_of`."""
        options = _options()
        return _read(table, options if as_of is None else options.with_as_of_timestamp(as_of))

    def read_optimized(self, table: str) -> list[Row]:
        """Return the rows of base files only."""
        return _read(
            table, _options().with_hudi_option("hoodie.read.use.read_optimized.mode", "true")
        )

    def changes(self, table: str, since: str, until: str | None = None) -> list[Row]:
        """Return the rows changed by commits completed in (since, until].

        For a table with log files, it merges only the log blocks in the range. So the result
        includes changes that lost to an older row by their ordering value.
        """
        from hudi import HudiQueryType

        options = _options().with_query_type(HudiQueryType.Incremental).with_start_timestamp(since)
        return _read(table, options if until is None else options.with_end_timestamp(until))


def _options() -> Any:
    # The package is not a dependency, so it is imported only when used.
    from hudi import HudiReadOptions

    return HudiReadOptions()


def _read(table: str, options: Any) -> list[Row]:
    from hudi import HudiTableBuilder

    batches = HudiTableBuilder.from_base_uri(table).build().read(options)
    # There is one batch per file slice; their schemas may differ after schema evolution.
    return ordered(row for batch in batches for row in rows_of(pa.Table.from_batches([batch])))
