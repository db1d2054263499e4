"""The systems that need no Spark, this project's local engine among them."""

from __future__ import annotations

from typing import Any

from benchmarks.lakes.lake import KEY, Lake


class Local(Lake):
    """A system without Spark; rows come as an Arrow table."""

    def arrow(self, name: str) -> Any:
        import pyarrow.parquet as pq

        return pq.read_table(self.path(name))


class TidelockLocal(Local):
    """This project without Spark."""

    def load(self) -> None:
        import tidelock as tl

        options = {
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "16",
            "hoodie.parquet.compression.codec": "snappy",
        }
        rows = self.arrow("base")
        place = str(self.work / "table")
        self.lake = tl.Table.create(place, rows.schema, key=KEY, options=options)
        self.lake.bulk_insert(rows)

    def upsert(self, batch: str) -> None:
        self.lake.upsert(self.arrow(batch))

    def delete(self) -> None:
        self.lake.delete(self.arrow("gone").select([KEY]))

    def read_all(self) -> None:
        self.lake.read()

    def read_column(self) -> float:
        import pyarrow.compute as pc

        return float(pc.sum(self.lake.read(columns=["l_quantity"]).column(0)).as_py())

    def point(self, key: int) -> int:
        import pyarrow.compute as pc

        return int(self.lake.read(columns=[KEY], filter=pc.field(KEY) == key).num_rows)


class DeltaRs(Local):
    """delta-rs."""

    def load(self) -> None:
        from deltalake import write_deltalake

        write_deltalake(str(self.work / "table"), self.arrow("base"))

    def _merge(self, rows: Any) -> Any:
        from deltalake import DeltaTable

        lake = DeltaTable(str(self.work / "table"))
        return lake.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")

    def upsert(self, batch: str) -> None:
        merge = self._merge(self.arrow(batch))
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self) -> None:
        self._merge(self.arrow("gone").select([KEY])).when_matched_delete().execute()

    def _dataset(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(str(self.work / "table")).to_pyarrow_dataset()

    def read_all(self) -> None:
        self._dataset().to_table()

    def read_column(self) -> float:
        import pyarrow.compute as pc

        return float(pc.sum(self._dataset().to_table(columns=["l_quantity"]).column(0)).as_py())

    def point(self, key: int) -> int:
        import pyarrow.compute as pc

        return int(self._dataset().count_rows(filter=pc.field(KEY) == key))


class Lance(Local):
    """Lance."""

    def load(self) -> None:
        import lance

        lance.write_dataset(self.arrow("base"), str(self.work / "table"))

    def _open(self) -> Any:
        import lance

        return lance.dataset(str(self.work / "table"))

    def upsert(self, batch: str) -> None:
        merge = self._open().merge_insert(KEY).when_matched_update_all()
        merge.when_not_matched_insert_all().execute(self.arrow(batch))

    def delete(self) -> None:
        keys = self.arrow("gone").column(KEY).to_pylist()
        self._open().delete(f"{KEY} IN ({', '.join(map(str, keys))})")

    def read_all(self) -> None:
        self._open().to_table()

    def read_column(self) -> float:
        import pyarrow.compute as pc

        return float(pc.sum(self._open().to_table(columns=["l_quantity"]).column(0)).as_py())

    def point(self, key: int) -> int:
        return int(self._open().count_rows(filter=f"{KEY} = {key}"))


class DuckLake(Local):
    """DuckDB's DuckLake, its catalog a DuckDB file."""

    def load(self) -> None:
        import duckdb

        self.duck = duckdb.connect()
        self.duck.execute("INSTALL ducklake; LOAD ducklake")
        files = self.work / "files"
        self.duck.execute(
            f"ATTACH 'ducklake:{self.work / 'meta.db'}' AS lake (DATA_PATH '{files}')"
        )
        self.duck.execute(
            f"CREATE TABLE lake.t AS SELECT * FROM read_parquet('{self.path('base')}')"
        )

    def upsert(self, batch: str) -> None:
        self.duck.execute(
            f"MERGE INTO lake.t USING (SELECT * FROM read_parquet('{self.path(batch)}')) s"
            " ON lake.t.id = s.id WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
        )

    def delete(self) -> None:
        keys = f"SELECT id FROM read_parquet('{self.path('gone')}')"
        self.duck.execute(f"DELETE FROM lake.t WHERE id IN ({keys})")

    def read_all(self) -> None:
        self.duck.execute("SELECT * FROM lake.t").fetch_arrow_table()

    def read_column(self) -> float:
        return float(self.duck.execute("SELECT sum(l_quantity) FROM lake.t").fetchall()[0][0])

    def point(self, key: int) -> int:
        return int(
            self.duck.execute(f"SELECT count(*) FROM lake.t WHERE id = {key}").fetchall()[0][0]
        )


class PyIceberg(Local):
    """PyIceberg with a catalog in SQLite."""

    def load(self) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        (self.work / "warehouse").mkdir()
        catalog = SqlCatalog(
            "bench", uri=f"sqlite:///{self.work}/c.db", warehouse=f"file://{self.work}/warehouse"
        )
        catalog.create_namespace("d")
        rows = self.arrow("base")
        self.lake = catalog.create_table("d.t", schema=rows.schema)
        self.lake.append(rows)

    def upsert(self, batch: str) -> None:
        self.lake.upsert(self.arrow(batch), join_cols=[KEY])

    def delete(self) -> None:
        from pyiceberg.expressions import In

        self.lake.delete(In(KEY, self.arrow("gone").column(KEY).to_pylist()))

    def read_all(self) -> None:
        self.lake.scan().to_arrow()

    def read_column(self) -> float:
        import pyarrow.compute as pc

        found = self.lake.scan(selected_fields=("l_quantity",)).to_arrow()
        return float(pc.sum(found.column(0)).as_py())

    def point(self, key: int) -> int:
        from pyiceberg.expressions import EqualTo

        return int(self.lake.scan(row_filter=EqualTo(KEY, key)).to_arrow().num_rows)


class Limit(Local):
    """polars on plain files: the least that one process can do, with no table around it."""

    def load(self) -> None:
        import polars as pl

        (self.work / "table").mkdir()
        base = pl.read_parquet(self.path("base"))
        for number, part in enumerate(base.iter_slices(-(-base.height // 16))):
            part.write_parquet(self.work / "table" / f"{number:02}.parquet", compression="snappy")

    def _rewrite(self, batch: str, *, keep: bool) -> None:
        import polars as pl

        fresh = pl.read_parquet(self.path(batch))
        files = sorted((self.work / "table").glob("*.parquet"))
        size = -(-fresh.height // len(files))
        for number, file in enumerate(files):
            rest = pl.read_parquet(file).join(fresh.select(KEY), on=KEY, how="anti")
            mine = fresh[number * size : (number + 1) * size] if keep else fresh[:0]
            pl.concat([rest, mine]).write_parquet(file, compression="snappy")

    def upsert(self, batch: str) -> None:
        self._rewrite(batch, keep=True)

    def delete(self) -> None:
        self._rewrite("gone", keep=False)

    def read_all(self) -> None:
        import polars as pl

        pl.read_parquet(self.work / "table" / "*.parquet")

    def read_column(self) -> float:
        import polars as pl

        files = self.work / "table" / "*.parquet"
        return float(pl.scan_parquet(files).select(pl.col("l_quantity").sum()).collect().item())

    def point(self, key: int) -> int:
        import polars as pl

        files = self.work / "table" / "*.parquet"
        return pl.scan_parquet(files).filter(pl.col(KEY) == key).collect().height
