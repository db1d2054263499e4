"""The input rows: TPC-H's lineitem with a key of one column, and batches of changes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.lakes.lake import COMMITS, HOT, KEY, PARTITION, ROUNDS

_SEED = 7
_WARM = 20_000
"""The number of rows of the warm-up table."""


def write_inputs(
    folder: Path, scale: float, generator: Path, batches: Sequence[str] | None = None
) -> int:
    """Write the rows of the table, and all or some batches; return the number of rows.

    Four fifths of each upsert are existing keys, one fifth is new. No batch has a key twice, which
    some systems do not support.
    """
    base = _lineitem(folder, scale, generator)
    _write(base, folder, "base")
    chance = np.random.default_rng(_SEED)
    for name, batch in batches_of(base, chance):
        if batches is None or name in batches:
            _write(batch, folder, name)
    warm = folder / "warm"
    warm.mkdir()
    few = base[:_WARM]
    _write(few, warm, "base")
    for name, batch in batches_of(few, chance):
        if name in ("up1", "gone"):
            _write(batch, warm, name)
    return base.height


def _lineitem(folder: Path, scale: float, generator: Path) -> pl.DataFrame:
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--tables=lineitem", f"--output-dir={folder}"]
    subprocess.run(
        [generator, "parquet", "-s", str(scale), *options], check=True, capture_output=True
    )
    raw = folder / "lineitem.parquet"
    key = (pl.col("l_orderkey").cast(pl.Int64) * 8 + pl.col("l_linenumber")).alias(KEY)
    # Decimals and dates matter for queries; this benchmark measures reads and writes of rows.
    plain = (
        pl.scan_parquet(raw)
        .with_columns(key)
        .with_columns(pl.col(pl.Decimal).cast(pl.Float64), pl.col(pl.Date).cast(pl.String))
        .select(KEY, pl.exclude(KEY))
        .collect()
    )
    raw.unlink()
    return plain


def batches_of(
    base: pl.DataFrame, chance: np.random.Generator
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each batch with its name; `gone` has the rows to delete."""
    hot = np.flatnonzero((base[PARTITION] == HOT).to_numpy())
    picks: dict[str, Callable[[int], np.ndarray]] = {
        "up": lambda count: chance.choice(base.height, count, replace=False),
        "zipf": lambda count: _zipf(base.height, count, chance),
        "hot": lambda count: chance.choice(hot, min(count, len(hot)), replace=False),
    }
    number = 0
    for name, pick in picks.items():
        for share in (1, 10):
            number += 1
            yield f"{name}{share}", _upsert(base, base.height * share // 100, pick, number)
    for kind, batches, parts in (("round", ROUNDS, 100), ("few", COMMITS, 200)):
        for turn in range(1, batches + 1):
            number += 1
            yield f"{kind}{turn}", _upsert(base, base.height // parts, picks["up"], number)
    yield "gone", base[np.sort(picks["up"](base.height // 100))]


def _upsert(
    base: pl.DataFrame, count: int, pick: Callable[[int], np.ndarray], number: int
) -> pl.DataFrame:
    old = base[np.sort(pick(count * 4 // 5))]
    largest = int(base[KEY].max() or 0)  # type: ignore[arg-type]
    # Each batch has its own range of new keys.
    first = largest + 1 + number * base.height
    fresh = old[: count - old.height].with_columns(
        pl.int_range(first, first + min(count - old.height, old.height)).alias(KEY)
    )
    return pl.concat([old, fresh]).with_columns(pl.col("l_quantity") + 1000 + number)


def _zipf(rows: int, count: int, chance: np.random.Generator) -> np.ndarray:
    """Return rows drawn by Zipf's law without repetition; the last rows are the most frequent."""
    # The smallest of exponential times divided by weights are a weighted sample.
    times = chance.exponential(size=rows) * np.arange(rows, 0, -1, dtype=np.float64)
    return np.asarray(np.argpartition(times, count)[:count])


def _write(rows: pl.DataFrame, folder: Path, name: str) -> None:
    rows.write_parquet(folder / f"{name}.parquet", compression="snappy")
