"""Several processes upsert into one table concurrently, with a serial result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tests.process.upsert_worker import batch

WRITERS = 4
BATCHES = 6
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("who", pa.string())])
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
NONBLOCKING = BUCKETS | {
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
}


def run_writers(uri: Path, options: dict[str, object]) -> list[dict[str, Any]]:
    """Run the writers on a table; return the report of each batch, by completion."""
    command = [sys.executable, "-m", "tests.process.upsert_worker", str(uri)]
    writers = [
        subprocess.Popen(
            [*command, str(number), str(BATCHES), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    reports: list[dict[str, Any]] = []
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for number, writer in enumerate(writers):
        out, err = writer.communicate(timeout=240)
        assert writer.returncode == 0, err
        reports += [json.loads(line) | {"writer": number} for line in out.splitlines()]
    return sorted(reports, key=lambda each: str(each["completion"]))


@pytest.mark.parametrize(
    ("kind", "ordering", "options"),
    [
        ("COPY_ON_WRITE", "ts", {}),
        ("COPY_ON_WRITE", None, {}),
        ("MERGE_ON_READ", None, {}),
        ("MERGE_ON_READ", None, BUCKETS),
        ("MERGE_ON_READ", None, NONBLOCKING),
    ],
)
def test_table_equals_the_serial_merge(
    tmp_path: Path, kind: str, ordering: str | None, options: dict[str, object]
) -> None:
    uri = tmp_path / "table"
    tl.Table.create(
        str(uri), SCHEMA, key="id", ordering=ordering, type=kind, options=options
    ).close()
    reports = run_writers(uri, options)
    assert len(reports) == WRITERS * BATCHES
    assert len({each["completion"] for each in reports}) == len(reports)
    expected: dict[str, dict[str, Any]] = {}
    for each in reports:
        for row in batch(each["writer"], each["number"]):
            known = expected.get(row["id"])
            if known is None or ordering is None or known["ts"] <= row["ts"]:
                expected[row["id"]] = row
    with tl.Table.open(str(uri)) as table:
        found = table.read().to_pylist()
        assert len(found) == len(expected)
        assert {row["id"]: row for row in found} == expected
        assert [i for i in table.timeline if not i.is_completed and i.action.writes_data] == []


def test_nonblocking_mode_uses_event_time_and_rewrites_only_ties(
    tmp_path: Path,
) -> None:
    uri = tmp_path / "table"
    tl.Table.create(
        str(uri), SCHEMA, key="id", ordering="ts", type="MERGE_ON_READ", options=NONBLOCKING
    ).close()
    reports = run_writers(uri, NONBLOCKING)
    # Batches with the same number tie with each other, at most once for each pair.
    assert sum(each["rebases"] for each in reports) <= WRITERS * (WRITERS - 1) * BATCHES
    with tl.Table.open(str(uri)) as table:
        found = {row["id"]: row["ts"] for row in table.read().to_pylist()}
    last = {f"hot-{key}": BATCHES - 1 for key in range(6)}
    assert {key: ts for key, ts in found.items() if key.startswith("hot-")} == last
    assert len(found) == 6 + WRITERS * BATCHES + WRITERS // 2 * BATCHES
