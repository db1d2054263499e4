"""The examples of docs/tables.md run unchanged on a table in a folder."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

PAGE = Path(__file__).parents[3] / "docs" / "tables.md"
URI = "s3://lake/orders"


def examples(folder: Path) -> list[str]:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert all(URI in block for block in blocks)
    return [block.replace(URI, str(folder / "orders")) for block in blocks]


def test_examples_of_the_tables_page_write_and_read_rows(tmp_path: Path) -> None:
    reading, writing = examples(tmp_path)
    schema = pa.schema(
        [("id", "int64"), ("ts", "int64"), ("region", "string"), ("amount", "float64")]
    )
    batch = [{"id": n, "ts": n, "region": ("eu", "us")[n % 2], "amount": 1.5} for n in range(6)]
    names: dict[str, Any] = {"schema": schema, "rows": batch, "keys": [5]}
    exec("import tidelock as tl", names)
    *writes, last = ast.parse(writing).body
    for statement in writes:
        exec(ast.unparse(statement), names)
    assert "delete_partition" in ast.unparse(last)
    exec(reading, names)
    orders = names["tl"].Table.open(str(tmp_path / "orders"))
    for call in re.findall(r"orders\.read\(partitions=.*?\)", reading):
        assert eval(call, {"orders": orders}).num_rows > 0, call
    exec(ast.unparse(last), names)
    orders.refresh()
    assert set(orders.read().column("region").to_pylist()) == {"us"}
