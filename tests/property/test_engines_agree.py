"""Both engines write the same table from the same rows: values, keys, and file groups."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.spark.bench import SCHEMA, Bench

WAYS: dict[str, dict[str, int]] = {
    "spread": {"driver_work_bytes_max": 0},
    "large": {"collected_bytes_max": 0, "driver_bytes_max": 0},
}

KEYS = st.text("ab\u00e9\U0001f30a,:/ ", min_size=1, max_size=3)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": KEYS,
            "day": st.sampled_from(["d1", "d 2", "d=3", None]),
            "ts": st.one_of(st.none(), st.integers(-2, 2)),
            "name": st.text(max_size=3),
            "_hoodie_is_deleted": st.one_of(st.none(), st.booleans()),
        }
    ),
    max_size=12,
)


@pytest.mark.parametrize("way", WAYS)
@settings(
    max_examples=4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batches=st.lists(ROWS, min_size=1, max_size=2), index=st.sampled_from(["SIMPLE", "BUCKET"]))
def test_engines_agree_on_every_row_and_its_file_group(
    spark: SparkSession, way: str, batches: list[list[dict[str, Any]]], index: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mine = Bench(Path(folder) / "spark", index=index, spark=spark, limits=WAYS[way])
        local = Bench(Path(folder) / "local", index=index)
        for batch in batches:
            table = pa.Table.from_pylist(batch, schema=SCHEMA)
            for bench in (mine, local):
                bench.upsert(table)
        assert mine.placed() == local.placed()
        assert mine.seen() == local.seen()
