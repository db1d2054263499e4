"""Several Spark programs upsert overlapping keys into one table: every batch lands, none is lost.

    python -m tidelock.testing.sparkwriters --writers 4 --seconds 120

Each writer is a process with a Spark session of its own. The rows are ordered by a number that no
other batch has, so what the table must hold in the end follows from what was acknowledged.
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
    """Return rows of which most are other writers' as well; their order is this batch's own."""
    first = (turn * 37 + writer * 101) % KEYS
    ids = [(first + each) % KEYS for each in range(ROWS)]
    order = turn * writers + writer
    return pa.table([ids, [order] * ROWS, [f"{writer}/{turn}"] * ROWS], schema=SCHEMA)


def write(place: str, writer: int, writers: int, seconds: float, gate: Path) -> None:
    """Upsert through Spark until the time is over; print what was acknowledged, or failed."""
    import tidelock as tl
    from tidelock.engine.spark.session import local_session

    with tempfile.TemporaryDirectory(prefix="tidelock-spark-") as scratch:
        settings = {"spark.local.dir": scratch, "spark.sql.warehouse.dir": f"{scratch}/warehouse"}
        spark = local_session(f"writer {writer}", cores="1", memory="1g", settings=settings)
        tl.enable(spark)
        _upsert(spark, place, batch(writer, writers, 0).slice(0, 0))
        _say("ready")
        while not gate.exists():
            time.sleep(0.05)
        until, turn = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            told: dict[str, Any] = {"turn": turn, "error": ""}
            try:
                _upsert(spark, place, batch(writer, writers, turn))
            except Exception as error:
                told["error"] = f"{type(error).__name__}: {error}"
            _say(json.dumps(told))
            turn += 1
        spark.stop()


def _upsert(spark: Any, place: str, rows: pa.Table) -> None:
    frame = spark.createDataFrame(rows)
    options = {"hoodie.datasource.write.operation": "upsert"}
    frame.write.format("tidelock").options(**options).mode("append").save(place)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(writers: int, seconds: float) -> dict[str, Any]:
    """Let them write, then compare the table with what they were told; return what was found."""
    import tidelock as tl

    with tempfile.TemporaryDirectory(prefix="tidelock-writers-") as folder:
        place, gate = str(Path(folder) / "table"), Path(folder) / "gate"
        tl.Table.create(place, SCHEMA, key="id", ordering="ts").close()
        runs = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", __spec__.name, "--as", str(number)),
                    *("--place", place, "--gate", str(gate)),
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
                assert each.poll() is None, "a writer ended before it began"
        gate.touch()
        told = [
            [json.loads(line) for line in each.communicate()[0].splitlines() if line[:1] == "{"]
            for each in runs
        ]
        found = tl.Table.open(place).read().to_pylist()
    return _judged(told, found, writers)


def _judged(
    told: list[list[dict[str, Any]]], found: list[dict[str, Any]], writers: int
) -> dict[str, Any]:
    expected: dict[int, tuple[int, str]] = {}
    landed = failed = 0
    for writer, batches in enumerate(told):
        for each in batches:
            if each["error"]:
                failed += 1
                continue
            landed += 1
            for row in batch(writer, writers, each["turn"]).to_pylist():
                expected[row["id"]] = max(
                    expected.get(row["id"], (-1, "")), (row["ts"], row["who"])
                )
    held = {row["id"]: (row["ts"], row["who"]) for row in found}
    wrong = sorted(
        key for key in expected.keys() | held.keys() if expected.get(key) != held.get(key)
    )
    errors = sorted({each["error"] for batches in told for each in batches if each["error"]})
    return {
        "landed": landed,
        "failed": failed,
        "keys": len(held),
        "keys twice": len(found) - len(held),
        "keys wrong": len(wrong),
        "errors": errors[:5],
    }


def main() -> int:
    """Run the writers, or be one of them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--as", type=int, dest="number", help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    parser.add_argument("--gate", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.number is not None:
        write(given.place, given.number, given.writers, given.seconds, given.gate)
        return 0
    found = run(given.writers, given.seconds)
    _say(json.dumps(found, indent=1))
    return 1 if found["failed"] or found["keys wrong"] or found["keys twice"] else 0


if __name__ == "__main__":
    sys.exit(main())
