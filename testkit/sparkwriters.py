"""Several Spark writers upsert overlapping keys into one table: every batch is committed.

    python -m testkit.sparkwriters --writers 4 --seconds 120

Each writer is a process with its own Spark session. The ordering value is unique to the batch, so
the expected rows follow from the acknowledged batches.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

KEYS = 500
ROWS = 200
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("who", pa.string())])


def batch(writer: int, writers: int, turn: int) -> pa.Table:
    """Return rows with keys that other writers use too; the ordering value is unique."""
    first = (turn * 37 + writer * 101) % KEYS
    ids = [(first + each) % KEYS for each in range(ROWS)]
    order = turn * writers + writer
    return pa.table([ids, [order] * ROWS, [f"{writer}/{turn}"] * ROWS], schema=SCHEMA)


def write(uri: str, writer: int, writers: int, seconds: float, start_file: Path) -> None:
    """Upsert through Spark until the deadline; print the acknowledged and failed batches."""
    import tidelock as tl
    from tidelock.execution.spark.session import local_session

    with tempfile.TemporaryDirectory(prefix="tidelock-spark-") as scratch:
        settings = {"spark.local.dir": scratch, "spark.sql.warehouse.dir": f"{scratch}/warehouse"}
        spark = local_session(f"writer {writer}", cores="1", memory="1g", settings=settings)
        tl.enable(spark)
        _upsert(spark, uri, batch(writer, writers, 0).slice(0, 0))
        _print("ready")
        while not start_file.exists():
            time.sleep(0.05)
        deadline, turn = time.monotonic() + seconds, 0
        while time.monotonic() < deadline:
            acknowledged: dict[str, Any] = {"turn": turn, "error": ""}
            try:
                _upsert(spark, uri, batch(writer, writers, turn))
            except Exception as error:
                acknowledged["error"] = f"{type(error).__name__}: {error}"
            _print(json.dumps(acknowledged))
            turn += 1
        spark.stop()


def _upsert(spark: Any, uri: str, rows: pa.Table) -> None:
    frame = spark.createDataFrame(rows)
    options = {"hoodie.datasource.write.operation": "upsert"}
    frame.write.format("tidelock").options(**options).mode("append").save(uri)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(writers: int, seconds: float) -> dict[str, Any]:
    """Run the writers, then compare the table with the acknowledged batches."""
    import tidelock as tl

    with tempfile.TemporaryDirectory(prefix="tidelock-writers-") as folder:
        uri, start_file = str(Path(folder) / "table"), Path(folder) / "start"
        tl.Table.create(uri, SCHEMA, key="id", ordering="ts").close()
        runs = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", __spec__.name, "--as", str(number)),
                    *("--uri", uri, "--start-file", str(start_file)),
                    *("--writers", str(writers), "--seconds", str(seconds)),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(writers)
        ]
        for each in runs:
            assert each.stdout is not None
            while each.stdout.readline().strip() != "ready":
                assert each.poll() is None, "a writer exited before it was ready"
        start_file.touch()
        acknowledged = [
            [json.loads(line) for line in each.communicate()[0].splitlines() if line[:1] == "{"]
            for each in runs
        ]
        found = tl.Table.open(uri).read().to_pylist()
    return _compare(acknowledged, found, writers)


def _compare(
    acknowledged: list[list[dict[str, Any]]], found: list[dict[str, Any]], writers: int
) -> dict[str, Any]:
    expected: dict[int, tuple[int, str]] = {}
    landed = failed = 0
    for writer, batches in enumerate(acknowledged):
        for each in batches:
            if each["error"]:
                failed += 1
                continue
            landed += 1
            for row in batch(writer, writers, each["turn"]).to_pylist():
                expected[row["id"]] = max(
                    expected.get(row["id"], (-1, "")), (row["ts"], row["who"])
                )
    actual = {row["id"]: (row["ts"], row["who"]) for row in found}
    wrong = sorted(
        key for key in expected.keys() | actual.keys() if expected.get(key) != actual.get(key)
    )
    errors = sorted(
        {each["error"] for batches in acknowledged for each in batches if each["error"]}
    )
    return {
        "landed": landed,
        "failed": failed,
        "keys": len(actual),
        "keys twice": len(found) - len(actual),
        "keys wrong": len(wrong),
        "errors": errors[:5],
    }


def main() -> int:
    """Run all writers, or one of them in a child process; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--as", type=int, dest="number", help=argparse.SUPPRESS)
    parser.add_argument("--uri", help=argparse.SUPPRESS)
    parser.add_argument("--start-file", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.number is not None:
        write(args.uri, args.number, args.writers, args.seconds, args.start_file)
        return 0
    found = run(args.writers, args.seconds)
    _print(json.dumps(found, indent=1))
    return 1 if found["failed"] or found["keys wrong"] or found["keys twice"] else 0


if __name__ == "__main__":
    sys.exit(main())
