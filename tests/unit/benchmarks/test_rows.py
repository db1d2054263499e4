"""Generated change batches: unique keys, new keys unique across batches, and hot rows."""

from __future__ import annotations

import numpy as np
import polars as pl

from benchmarks.lakes.lake import HOT, KEY, PARTITION
from benchmarks.lakes.rows import batches_of

ROWS = 7_000


def base() -> pl.DataFrame:
    modes = [HOT, "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]
    return pl.DataFrame(
        {
            KEY: range(ROWS),
            "l_quantity": [1.0] * ROWS,
            PARTITION: [modes[n % 7] for n in range(ROWS)],
        }
    )


def made() -> dict[str, pl.DataFrame]:
    return dict(batches_of(base(), np.random.default_rng(1)))


def test_keys_are_unique_within_a_batch() -> None:
    assert all(batch[KEY].n_unique() == batch.height for batch in made().values())


def test_one_percent_batch_has_one_percent_of_the_rows_of_which_80_percent_exist() -> None:
    batch = made()["up1"]
    assert batch.height == ROWS // 100
    assert batch.filter(pl.col(KEY) < ROWS).height == ROWS // 100 * 4 // 5


def test_new_keys_are_new_in_every_batch() -> None:
    fresh = [batch.filter(pl.col(KEY) >= ROWS)[KEY] for batch in made().values()]
    every = pl.concat(fresh)
    assert every.n_unique() == len(every)


def test_hot_batch_has_rows_of_one_partition() -> None:
    assert made()["hot10"][PARTITION].unique().to_list() == [HOT]


def test_zipf_prefers_the_last_rows() -> None:
    known = made()["zipf1"].filter(pl.col(KEY) < ROWS)
    assert known.filter(pl.col(KEY) >= ROWS // 2).height > known.height * 3 // 4
