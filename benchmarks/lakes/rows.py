"""The rows that are measured: TPC-H's lineitem with a key of one column, and batches of changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import polars as pl

FORGED = "base.parquet"
_SEED = 7


def write_inputs(folder: Path, scale: float, generator: Path) -> int:
    """Write the table's rows, upserts of 1 and 10 %, and 1 % of the keys to delete; count rows.

    Of each upsert four fifths are random keys of the table, and one fifth is new.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = ["--tables=lineitem", f"--output-dir={folder}"]
    subprocess.run(
        [generator, "parquet", "-s", str(scale), *wanted], check=True, capture_output=True
    )
    raw = pl.scan_parquet(folder / "lineitem.parquet")
    key = (pl.col("l_orderkey").cast(pl.Int64) * 8 + pl.col("l_linenumber")).alias("id")
    # Decimals and dates are for queries; what is measured here is how rows travel.
    plain = raw.with_columns(key).with_columns(
        pl.col(pl.Decimal).cast(pl.Float64), pl.col(pl.Date).cast(pl.String)
    )
    base = plain.select("id", pl.exclude("id")).collect()
    base.write_parquet(folder / FORGED, compression="snappy")
    chance = np.random.default_rng(_SEED)
    largest = int(base["id"].max() or 0)  # type: ignore[arg-type]
    for name, share in (("up1", 100), ("up10", 10)):
        count = base.height // share
        old = base[np.sort(chance.choice(base.height, count * 4 // 5, replace=False))]
        fresh = base[: count - old.height].with_columns(
            pl.int_range(largest + share, largest + share + count - old.height).alias("id")
        )
        changed = pl.concat([old, fresh]).with_columns(pl.col("l_quantity") + 1000)
        changed.write_parquet(folder / f"{name}.parquet", compression="snappy")
    gone = base[np.sort(chance.choice(base.height, base.height // 100, replace=False))]
    gone.write_parquet(folder / "gone.parquet", compression="snappy")
    return base.height
