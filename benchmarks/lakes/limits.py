"""Lower bounds: one process on plain files, without a table format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.lakes.lake import HOT, KEY
from benchmarks.lakes.local import Local

_FILES = 16


class Limit(Local):
    """polars reads, joins and writes."""

    def _files(self) -> list[Path]:
        # The batches of a partitioned table are for one partition.
        return sorted((self.work / "table").glob("*.parquet" if self.by is None else f"{HOT}-*"))

    def load(self) -> None:
        import polars as pl

        (self.work / "table").mkdir()
        base = pl.read_parquet(self.path("base"))
        parts = {"all": base}
        if self.by is not None:
            found = base.partition_by(self.by, as_dict=True)
            parts = {str(key[0]): rows for key, rows in found.items()}
        for name, rows in parts.items():
            size = -(-rows.height // (_FILES if self.by is None else 2))
            for number, part in enumerate(rows.iter_slices(size)):
                self._write(part, self.work / "table" / f"{name}-{number:02}.parquet")

    def _write(self, rows: Any, file: Path) -> None:
        rows.write_parquet(file, compression="snappy")

    def _rewrite(self, batch: str, *, keep: bool) -> None:
        import polars as pl

        fresh = pl.read_parquet(self.path(batch))
        files = self._files()
        size = -(-fresh.height // len(files))
        for number, file in enumerate(files):
            rest = pl.read_parquet(file).join(fresh.select(KEY), on=KEY, how="anti")
            mine = fresh[number * size : (number + 1) * size] if keep else fresh[:0]
            self._write(pl.concat([rest, mine]), file)

    def upsert(self, batch: str) -> None:
        self._rewrite(batch, keep=True)

    def delete(self) -> None:
        self._rewrite("gone", keep=False)

    def _scan(self) -> Any:
        import polars as pl

        return pl.scan_parquet(self.work / "table" / "*.parquet")

    def read_all(self) -> None:
        self._scan().collect()

    def read_column(self) -> float:
        import polars as pl

        return float(self._scan().select(pl.col("l_quantity").sum()).collect().item())

    def point(self, key: int) -> int:
        import polars as pl

        return int(self._scan().filter(pl.col(KEY) == key).select(KEY).collect().height)

    def between(self, low: int, high: int) -> int:
        import polars as pl

        return int(self._scan().filter(pl.col(KEY).is_between(low, high - 1)).collect().height)


class ArrowLimit(Local):
    """pyarrow reads, filters and writes; it needs no join to remove rows."""

    def load(self) -> None:
        import pyarrow as pa

        (self.work / "table").mkdir()
        base = self.arrow("base")
        parts: dict[str, pa.Table] = {"all": base}
        if self.by is not None:
            import pyarrow.compute as pc

            names = base.column(self.by).unique().to_pylist()
            parts = {name: base.filter(pc.equal(base.column(self.by), name)) for name in names}
        for name, rows in parts.items():
            size = -(-rows.num_rows // (_FILES if self.by is None else 2))
            for number, start in enumerate(range(0, rows.num_rows, size)):
                self._write(rows.slice(start, size), f"{name}-{number:02}.parquet")

    def _write(self, rows: Any, name: str) -> None:
        import pyarrow.parquet as pq

        pq.write_table(rows, self.work / "table" / name, compression="snappy")

    def _rewrite(self, batch: str, *, keep: bool) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        fresh = self.arrow(batch)
        files = sorted((self.work / "table").glob("*" if self.by is None else f"{HOT}-*"))
        size = -(-fresh.num_rows // len(files))
        for number, file in enumerate(files):
            old = pq.read_table(file)
            gone = pc.is_in(old.column(KEY), value_set=fresh.column(KEY))
            mine = fresh.slice(number * size, size if keep else 0)
            self._write(pa.concat_tables([old.filter(pc.invert(gone)), mine]), file.name)

    def upsert(self, batch: str) -> None:
        self._rewrite(batch, keep=True)

    def delete(self) -> None:
        self._rewrite("gone", keep=False)

    def _table(self, columns: list[str] | None = None, row_filter: Any = None) -> Any:
        import pyarrow.parquet as pq

        return pq.read_table(self.work / "table", columns=columns, filters=row_filter)

    def read_all(self) -> None:
        self._table()

    def read_column(self) -> float:
        import pyarrow.compute as pc

        return float(pc.sum(self._table(["l_quantity"]).column(0)).as_py())

    def point(self, key: int) -> int:
        import pyarrow.compute as pc

        return int(self._table([KEY], pc.field(KEY) == key).num_rows)

    def between(self, low: int, high: int) -> int:
        import pyarrow.compute as pc

        return int(self._table(None, (pc.field(KEY) >= low) & (pc.field(KEY) < high)).num_rows)
