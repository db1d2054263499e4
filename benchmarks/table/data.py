"""The input rows: ten columns, keys like UUIDs, and batches of changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

CITIES = 200


def trips(first: int, rows: int, *, ts: int, seed: int) -> pa.Table:
    """Return rows with keys from `first`, and event times slightly above `ts`."""
    chance = np.random.default_rng(seed)
    numbers = np.arange(first, first + rows, dtype=np.int64)
    return pa.table(
        {
            "uuid": _uuids(numbers),
            "ts": pa.array(numbers % 1_000 + ts),
            "rider": _named("rider", chance.integers(0, 100_000, rows)),
            "driver": _named("driver", chance.integers(0, 20_000, rows)),
            "lat": pa.array(chance.random(rows) * 180 - 90),
            "lon": pa.array(chance.random(rows) * 360 - 180),
            "fare": pa.array(np.round(chance.random(rows) * 100, 2)),
            "seats": pa.array(chance.integers(1, 7, rows).astype(np.int32)),
            "city": _named("city", chance.integers(0, CITIES, rows)),
            "note": _named("note about trip", chance.integers(0, 2**40, rows)),
        }
    )


def write_inputs(folder: Path, rows: int) -> None:
    """Write the rows of the table and the batches to upsert: 80 % updates, 20 % inserts."""
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / "base"
    base.mkdir(exist_ok=True)
    part = -(-rows // 8)
    for number, start in enumerate(range(0, rows, part)):
        table = trips(start, min(part, rows - start), ts=1_000_000, seed=number)
        pq.write_table(table, base / f"part-{number}.parquet", compression="snappy")
    for name, share in (("up10", 10), ("up1", 100)):
        count = rows // share
        chosen = np.random.default_rng(share).choice(rows, count * 8 // 10, replace=False)
        changed = trips(0, rows, ts=2_000_000, seed=99).take(pa.array(np.sort(chosen)))
        fresh = trips(rows * share, count - len(chosen), ts=2_000_000, seed=98)
        pq.write_table(pa.concat_tables([changed, fresh]), folder / f"{name}.parquet")


def _uuids(numbers: np.ndarray) -> pa.Array:
    # Spread over the whole range, so that consecutive rows do not have consecutive keys.
    mixed = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)
    text = pa.array(mixed).cast(pa.string())
    plain = pc.replace_substring(text, "-", "f")
    return pc.binary_join_element_wise(pc.utf8_lpad(plain, 20, "0"), "-4000-8000-000000000000", "")


def _named(name: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(name, pa.array(numbers).cast(pa.string()), "-")
