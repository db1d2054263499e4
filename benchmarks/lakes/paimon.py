"""Apache Paimon's Python library: a table with a primary key, stored in sorted runs."""

from __future__ import annotations

from typing import Any

from benchmarks.lakes.lake import KEY
from benchmarks.lakes.local import Local

_KIND = "kind"
"""The column that marks deleted rows; the library has no other way to delete."""


class Paimon(Local):
    """pypaimon with a file catalog, and the same buckets as this project."""

    def load(self) -> None:
        import pyarrow as pa
        from pypaimon import CatalogFactory, Schema

        rows = self.arrow("base")
        catalog = CatalogFactory.create({"warehouse": str(self.work / "warehouse")})
        catalog.create_database("d", True)  # noqa: FBT003 - as the library has it
        fields = [field.with_nullable(field.name not in (KEY, self.by)) for field in rows.schema]
        schema = Schema.from_pyarrow_schema(
            pa.schema([*fields, pa.field(_KIND, pa.string())]),
            partition_keys=[] if self.by is None else [self.by],
            primary_keys=[KEY] if self.by is None else [self.by, KEY],
            options={"bucket": "16" if self.by is None else "2", "rowkind.field": _KIND},
        )
        catalog.create_table("d.t", schema, False)  # noqa: FBT003
        self.lake: Any = catalog.get_table("d.t")
        self._write(rows, "+I")

    def _write(self, rows: Any, kind: str) -> None:
        import pyarrow as pa

        marked = rows.append_column(_KIND, pa.repeat(pa.scalar(kind), rows.num_rows))
        keys = [KEY] if self.by is None else [KEY, self.by]
        fields = [field.with_nullable(field.name not in keys) for field in marked.schema]
        builder = self.lake.new_batch_write_builder()
        writer, committer = builder.new_write(), builder.new_commit()
        writer.write_arrow(marked.cast(pa.schema(fields)))
        committer.commit(writer.prepare_commit())
        writer.close()
        committer.close()

    def upsert(self, batch: str) -> None:
        self._write(self.arrow(batch), "+U")

    def delete(self) -> None:
        self._write(self.arrow("gone"), "-D")

    def _read(self, columns: list[str] | None = None, low: int = 0, high: int = 0) -> Any:
        builder = self.lake.new_read_builder()
        if columns is not None:
            builder = builder.with_projection(columns)
        if high:
            keys = self.lake.new_read_builder().new_predicate_builder()
            builder = builder.with_filter(keys.between(KEY, low, high - 1))
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    def read_all(self) -> None:
        self._read()

    def read_column(self) -> float:
        import pyarrow.compute as pc

        return float(pc.sum(self._read(["l_quantity"]).column("l_quantity")).as_py())

    def point(self, key: int) -> int:
        return int(self._read([KEY], key, key + 1).num_rows)

    def between(self, low: int, high: int) -> int:
        return int(self._read(None, low, high).num_rows)
