"""One of several writers: `writing.py write SYSTEM LOCATION NUMBER KIND COUNT START`.

It opens the table, prints `ready`, waits for the file START, writes COUNT batches of 100 rows, and
prints the results as JSON. It runs in the environment of the measured system, so it imports this
project only to measure it. For a table on S3, the settings of the server are in the environment as
JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

ROWS = 100
KEYS = 1_000
"""The number of rows of the table before the writers start."""

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("writer", pa.int64()),
        pa.field("round", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("amount", pa.float64()),
    ]
)

Write = Callable[[pa.Table, int], None]

STORE: dict[str, str] | None = json.loads(os.environ.get("BENCH_STORE", "null"))
"""Settings of the store, with the names of the measured system; None for a folder."""


def batch(kind: str, number: int, turn: int) -> pa.Table:
    """Return the rows of one batch: new rows, shared ones, or those of this writer."""
    first = {
        "append": KEYS + (number * 100_000 + turn) * ROWS,
        "same": 0,
        "disjoint": number * ROWS,
    }[kind]
    ids = list(range(first, first + ROWS))
    texts = [f"{number}-{turn}-{each}" for each in ids]
    columns = [ids, [number] * ROWS, [turn] * ROWS, texts, [float(turn)] * ROWS]
    return pa.table(columns, schema=SCHEMA)


def tidelock(location: str, kind: str) -> Write:
    """Write through this project's local engine."""
    import tidelock as tl

    table = tl.Table.open(location, settings=STORE)
    write = table.insert if kind == "append" else table.upsert
    return lambda rows, _: discard(write(rows))


def deltalake(location: str, kind: str) -> Write:
    """Write through delta-rs."""
    from deltalake import DeltaTable, write_deltalake

    def append(rows: pa.Table, _: int) -> None:
        write_deltalake(location, rows, mode="append", storage_options=STORE)

    def upsert(rows: pa.Table, _: int) -> None:
        merge = DeltaTable(location, storage_options=STORE).merge(
            rows, predicate="s.id = t.id", source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    return append if kind == "append" else upsert


def pyiceberg(location: str, kind: str) -> Write:
    """Write through PyIceberg with an SQL catalog in a file."""
    from pyiceberg.catalog.sql import SqlCatalog

    uri = f"sqlite:///{location}/catalog.db"
    catalog = SqlCatalog("bench", uri=uri, warehouse=f"file://{location}")

    def append(rows: pa.Table, _: int) -> None:
        catalog.load_table("d.t").append(rows)

    def upsert(rows: pa.Table, _: int) -> None:
        catalog.load_table("d.t").upsert(rows, join_cols=["id"])

    return append if kind == "append" else upsert


def lance(location: str, kind: str) -> Write:
    """Write through Lance."""
    import lance as library

    def append(rows: pa.Table, _: int) -> None:
        library.write_dataset(rows, location, mode="append")

    def upsert(rows: pa.Table, _: int) -> None:
        merge = library.dataset(location).merge_insert("id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    return append if kind == "append" else upsert


SYSTEMS: dict[str, Callable[[str, str], Write]] = {
    "tidelock": tidelock,
    "deltalake": deltalake,
    "pyiceberg": pyiceberg,
    "lance": lance,
}


def create(system: str, location: str) -> None:
    """Create the table with its first rows."""
    ids = list(range(KEYS))
    columns = [ids, [-1] * KEYS, [-1] * KEYS, ["first"] * KEYS, [0.0] * KEYS]
    rows = pa.table(columns, schema=SCHEMA)
    match system:
        case "tidelock":
            import tidelock as tl

            with tl.Table.create(location, SCHEMA, key="id", settings=STORE) as table:
                table.bulk_insert(rows)
        case "deltalake":
            from deltalake import write_deltalake

            write_deltalake(location, rows, storage_options=STORE)
        case "pyiceberg":
            from pyiceberg.catalog.sql import SqlCatalog

            Path(location).mkdir(parents=True)
            uri = f"sqlite:///{location}/catalog.db"
            catalog = SqlCatalog("bench", uri=uri, warehouse=f"file://{location}")
            catalog.create_namespace("d")
            catalog.create_table("d.t", schema=SCHEMA).append(rows)
        case _:
            import lance as library

            library.write_dataset(rows, location)


def read(system: str, location: str) -> dict[str, Any]:
    """Return the number of rows and keys of the table, and the batches in it."""
    columns = ["id", "writer", "round"]
    match system:
        case "tidelock":
            import tidelock as tl

            found = tl.Table.open(location, settings=STORE).read(columns)
        case "deltalake":
            from deltalake import DeltaTable

            table = DeltaTable(location, storage_options=STORE)
            found = pa.table(table.to_pyarrow_table(columns=columns))
        case "pyiceberg":
            from pyiceberg.catalog.sql import SqlCatalog

            uri = f"sqlite:///{location}/catalog.db"
            catalog = SqlCatalog("bench", uri=uri, warehouse=f"file://{location}")
            found = catalog.load_table("d.t").scan(selected_fields=tuple(columns)).to_arrow()
        case _:
            import lance as library

            found = library.dataset(location).to_table(columns=columns)
    seen = {*zip(found["writer"].to_pylist(), found["round"].to_pylist(), strict=True)}
    ids = found["id"].to_pylist()
    return {"rows": len(ids), "keys": len({*ids}), "batches": sorted(seen)}


def discard(_: object) -> None:
    """Discard a result."""


def main(argv: list[str]) -> None:
    """Create, write or read, according to the first argument."""
    verb, system, location = argv[:3]
    if verb == "create":
        create(system, location)
    elif verb == "read":
        print(json.dumps(read(system, location)))
    else:
        number, kind, count, start_file = int(argv[3]), argv[4], int(argv[5]), Path(argv[6])
        write = SYSTEMS[system](location, kind)
        batch(kind, number, 0)  # load modules before the measurement
        print("ready", flush=True)
        while not start_file.exists():
            time.sleep(0.002)
        began, cpu = time.time(), time.process_time()
        done = []
        for turn in range(count):
            rows, start = batch(kind, number, turn), time.perf_counter()
            error = ""
            try:
                write(rows, turn)
            except Exception as problem:
                error = f"{type(problem).__name__}: {problem}"[:300]
            done.append({"turn": turn, "s": time.perf_counter() - start, "error": error})
        used = time.process_time() - cpu
        print(json.dumps({"began": began, "ended": time.time(), "cpu_s": used, "commits": done}))


if __name__ == "__main__":
    main(sys.argv[1:])
