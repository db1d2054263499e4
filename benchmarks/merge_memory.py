"""The memory of a merge into a large file group: `python -m benchmarks.merge_memory [MB]`.

A group of the given size on disk (default: 2,048 MB) is written once, then 1 % of its rows is
merged into it by a separate process, whose peak memory is read from the kernel.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidelock.execution.filegroup.context import FileSettings, WriteContext
from tidelock.execution.filegroup.write import create_base, merge_base
from tidelock.hudi.file_groups import BaseFile, FileSlice, data_file
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY, avro_schema, render_schema, with_meta
from tidelock.storage.local import LocalStore

BATCH_ROWS = 200_000
ROW_BYTES = 132
"""The size of a row on disk: most of it is random, so it is not compressible."""

FIRST, SECOND = "20260101000000001", "20260101000000002"
USER = pa.schema(
    [
        pa.field("id", pa.string()),
        *[pa.field(f"number_{i}", pa.float64()) for i in range(6)],
        pa.field("city", pa.string()),
        pa.field("note", pa.string()),
    ]
)


def context(instant: str) -> WriteContext:
    """Return the context of a write that never starts a second file."""
    avro = render_schema(avro_schema(USER, table="large"))
    settings = FileSettings(file_bytes_max=None)
    return WriteContext(instant, 0, with_meta(USER), avro, settings=settings, markers=False)


def rows_at(numbers: np.ndarray, seed: int) -> pa.Table:
    """Return the rows with these numbers."""
    drawn = np.random.default_rng(seed)
    size = len(numbers)
    keys = pa.array(np.char.zfill(numbers.astype("U"), 12))
    notes = drawn.integers(0, 2**63, (size, 8), np.int64).view("u1").reshape(size, -1)
    letters = (notes % 94 + 33).astype(np.uint8)
    text = pa.Array.from_buffers(
        pa.binary(64), size, [None, pa.py_buffer(np.ascontiguousarray(letters))]
    )
    columns = {
        RECORD_KEY: keys,
        PARTITION_PATH: pa.repeat(pa.scalar("p"), size),
        "id": keys,
        **{f"number_{i}": pa.array(drawn.random(size)) for i in range(6)},
        "city": pa.array([f"city {i}" for i in range(100)]).take(
            pa.array(drawn.integers(0, 100, size))
        ),
        "note": text.cast(pa.binary()).cast(pa.string()),
    }
    return pa.table(columns)


def written(root: Path, size_mb: int) -> tuple[BaseFile, int]:
    """Write the group; return its base file and its number of rows."""
    count = size_mb * 1024 * 1024 // ROW_BYTES

    def batches() -> Iterator[pa.Table]:
        for start in range(0, count, BATCH_ROWS):
            numbers = np.arange(start, min(start + BATCH_ROWS, count))
            yield rows_at(numbers, start)

    (result,) = create_base(
        LocalStore(root, fsync=False),
        context(FIRST),
        partition="p",
        file_id="large-0",
        slot=0,
        rows=batches(),
    )
    name = (result.stat.path or "").rpartition("/")[2]
    base = data_file("p", name, result.stat.file_size_in_bytes or 0)
    assert isinstance(base, BaseFile)
    return base, count


def merge(root: Path, name: str, size_bytes: int, count: int) -> dict[str, float]:
    """Merge 1 % of the rows; return the time and memory of this process."""
    base = data_file("p", name, size_bytes)
    assert isinstance(base, BaseFile)
    piece = FileSlice("p", base.file_id, base.instant, base)
    numbers = np.sort(np.random.default_rng(7).choice(count, max(1, count // 100), replace=False))
    rows = rows_at(numbers, 7)
    before = _resident_mb("VmHWM")
    began = time.perf_counter()
    store = LocalStore(root, fsync=False)
    result = merge_base(store, context(SECOND), piece, slot=0, rows=rows)
    seconds = time.perf_counter() - began
    assert result.stat.num_writes == count
    assert result.stat.num_update_writes == len(numbers)
    return {"seconds": seconds, "before_mb": before, "peak_mb": _resident_mb("VmHWM")}


def measure(size_mb: int, folder: Path) -> dict[str, float]:
    """Write a group of `size_mb` below `folder`, and merge into it in a separate process."""
    base, count = written(folder, size_mb)
    command = [sys.executable, "-m", "benchmarks.merge_memory", "--merge"]
    command += [str(folder), base.name, str(base.size_bytes), str(count)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(output)
    return {"size_mb": base.size_bytes / 2**20, "rows": count, **found}


def _resident_mb(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main(arguments: list[str]) -> int:
    """Measure and print, or run the merge in a child process."""
    if arguments[:1] == ["--merge"]:
        folder, name, size_bytes, count = arguments[1:]
        print(json.dumps(merge(Path(folder), name, int(size_bytes), int(count))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = measure(int(arguments[0]) if arguments else 2_048, Path(folder))
    print(
        f"{found['size_mb']:.0f} MB, {found['rows']:,.0f} rows: merged in {found['seconds']:.1f} s,"
        f" peak {found['peak_mb']:.0f} MB ({found['before_mb']:.0f} MB before)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
