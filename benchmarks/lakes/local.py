"""The systems without Spark, including the local engine of this project."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from benchmarks.lakes.lake import HOT, KEY, Lake


class Local(Lake):
    """A system without Spark; rows are Arrow tables."""

    def arrow(self, name: str) -> Any:
        import pyarrow.parquet as pq

        return pq.read_table(self.path(name))


class TidelockLocal(Local):
    """This project without Spark."""

    kind: ClassVar[str] = "COPY_ON_WRITE"

    def load(self) -> None:
        import tidelock as tl

        options = {
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "16" if self.by is None else "2",
            "hoodie.parquet.compression.codec": "snappy",
        }
        rows = self.arrow("base")
        self.lake = tl.Table.create(
            str(self.work / "table"),
            rows.schema,
            key=KEY,
            partition_by=self.by,
            type=self.kind,
            options=options,
        )
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

    def between(self, low: int, high: int) -> int:
        import pyarrow.compute as pc

        key = pc.field(KEY)
        return int(self.lake.read(filter=(key >= low) & (key < high)).num_rows)

    def start_changes(self) -> None:
        self.since = self.lake.latest_completion or ""

    def changes(self) -> int:
        return int(self.lake.changes(self.since).num_rows)


class TidelockLocalLogs(TidelockLocal):
    """This project without Spark, merge-on-read."""

    kind = "MERGE_ON_READ"

    def compact(self) -> None:
        import tidelock as tl

        everything = {"hoodie.compact.inline.max.delta.commits": "1"}
        with tl.Table.open(str(self.work / "table"), options=everything) as lake:
            lake.compact()
        self.lake.refresh()


class DeltaRs(Local):
    """delta-rs."""

    def load(self) -> None:
        from deltalake import write_deltalake

        by = None if self.by is None else [self.by]
        write_deltalake(str(self.work / "table"), self.arrow("base"), partition_by=by)

    def _open(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(str(self.work / "table"))

    def _merge(self, rows: Any) -> Any:
        same = "t.id = s.id" if self.by is None else f"t.{self.by} = '{HOT}' AND t.id = s.id"
        return self._open().merge(rows, same, source_alias="s", target_alias="t")

    def upsert(self, batch: str) -> None:
        merge = self._merge(self.arrow(batch))
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self) -> None:
        self._merge(self.arrow("gone").select([KEY])).when_matched_delete().execute()

    def read_all(self) -> None:
        self._open().to_pyarrow_dataset().to_table()

    def read_column(self) -> float:
        import pyarrow.compute as pc

        found = self._open().to_pyarrow_dataset().to_table(columns=["l_quantity"])
        return float(pc.sum(found.column(0)).as_py())

    def point(self, key: int) -> int:
        import pyarrow.compute as pc

        return int(self._open().to_pyarrow_dataset().count_rows(filter=pc.field(KEY) == key))

    def between(self, low: int, high: int) -> int:
        import pyarrow.compute as pc

        in_range = (pc.field(KEY) >= low) & (pc.field(KEY) < high)
        return int(self._open().to_pyarrow_dataset().to_table(filter=in_range).num_rows)

    def start_changes(self) -> None:
        lake = self._open()
        lake.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
        self.since = self._open().version()

    def changes(self) -> int:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pa.table(self._open().load_cdf(starting_version=self.since + 1).read_all())
        kinds = found.column("_change_type").cast(pa.string())
        return int(pc.sum(pc.not_equal(kinds, "update_preimage")).as_py())


class Lance(Local):
    """Lance. It has no partitions."""

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

    def between(self, low: int, high: int) -> int:
        return int(self._open().to_table(filter=f"{KEY} >= {low} AND {KEY} < {high}").num_rows)


class DuckLake(Local):
    """DuckDB's DuckLake with a catalog in a DuckDB file."""

    def load(self) -> None:
        import duckdb

        self.duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        self.duck.execute(f"LOAD '{_extension()}'")
        files = self.work / "files"
        self.duck.execute(
            f"ATTACH 'ducklake:{self.work / 'meta.db'}' AS lake (DATA_PATH '{files}')"
        )
        rows = f"SELECT * FROM read_parquet('{self.path('base')}')"
        if self.by is None:
            self.duck.execute(f"CREATE TABLE lake.t AS {rows}")
            return
        self.duck.execute(f"CREATE TABLE lake.t AS {rows} LIMIT 0")
        self.duck.execute(f"ALTER TABLE lake.t SET PARTITIONED BY ({self.by})")
        self.duck.execute(f"INSERT INTO lake.t {rows}")

    def upsert(self, batch: str) -> None:
        hot = "" if self.by is None else f" AND t.{self.by} = '{HOT}'"
        self.duck.execute(
            f"MERGE INTO lake.t USING (SELECT * FROM read_parquet('{self.path(batch)}')) s"
            f" ON t.id = s.id{hot} WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
        )

    def delete(self) -> None:
        keys = f"SELECT id FROM read_parquet('{self.path('gone')}')"
        self.duck.execute(f"DELETE FROM lake.t WHERE id IN ({keys})")

    def read_all(self) -> None:
        self.duck.execute("SELECT * FROM lake.t").fetch_arrow_table()

    def _one(self, query: str) -> Any:
        return self.duck.execute(query).fetchall()[0][0]

    def read_column(self) -> float:
        return float(self._one("SELECT sum(l_quantity) FROM lake.t"))

    def point(self, key: int) -> int:
        return int(self._one(f"SELECT count(*) FROM lake.t WHERE id = {key}"))

    def between(self, low: int, high: int) -> int:
        query = f"SELECT * FROM lake.t WHERE id >= {low} AND id < {high}"
        return int(self.duck.execute(query).fetch_arrow_table().num_rows)

    def _version(self) -> int:
        return int(self._one("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')"))

    def start_changes(self) -> None:
        self.since = self._version()

    def changes(self) -> int:
        span = f"{self.since + 1}, {self._version()}"
        query = f"SELECT * FROM ducklake_table_changes('lake', 'main', 't', {span})"
        found = self.duck.execute(f"{query} WHERE change_type <> 'update_preimage'")
        return int(found.fetch_arrow_table().num_rows)


def _extension() -> Path:
    """Return the file of the extension, which is in a separate wheel."""
    import sysconfig

    folder = Path(sysconfig.get_path("purelib"))
    return next(folder.glob("duckdb_extension*/**/ducklake.duckdb_extension"))


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
        if self.by is not None:
            with self.lake.update_spec() as spec:
                spec.add_identity(self.by)
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

    def between(self, low: int, high: int) -> int:
        return int(self.lake.scan(f"{KEY} >= {low} AND {KEY} < {high}").to_arrow().num_rows)
