"""MERGE INTO beside other lakes: rows that the source alone tells, and rows that both sides do.

Each system runs in an environment and a process of its own: `python -m benchmarks.merging SYSTEM
INPUTS WORK`, which prints a line of JSON for each statement.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lakes.environments import SYSTEMS, environment, generator
from benchmarks.lakes.onspark import Delta, Hudi, HudiTable, Iceberg, Tidelock, TidelockLogs
from benchmarks.lakes.rows import write_inputs
from tidelock.testing.servers import ServerUnavailable

SCALE = 0.3
ROUNDS = 2
BATCHES = {"1 %": "up1", "10 %": "up10"}
UPSERT = "upsert"
ALONE = "MERGE, source alone"
BOTH = "MERGE, both sides"

_SYSTEM_S_MAX = 600.0
_MERGE = "MERGE INTO {table} t USING batch s ON t.id = s.id "
_STATEMENTS = {
    ALONE: _MERGE + "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    BOTH: _MERGE
    + "WHEN MATCHED THEN UPDATE SET l_quantity = t.l_quantity + s.l_quantity"
    + " WHEN NOT MATCHED THEN INSERT *",
}
_KINDS: dict[str, type[HudiTable | Delta]] = {
    "tidelock-spark": Tidelock,
    "delta": Delta,
    "iceberg": Iceberg,
    "hudi": Hudi,
    "tidelock-spark-mor": TidelockLogs,
}


@dataclass(frozen=True, slots=True)
class Merged:
    """How long one system took for a statement of one kind and size, at best."""

    system: str
    statement: str
    share: str
    best_s: float
    rows: int


def measure(missing: dict[str, str], scale: float = SCALE) -> list[Merged]:
    """Return what each system took; say what was not measured."""
    found: list[Merged] = []
    sums: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="tidelock-merging-") as name:
        folder = Path(name)
        try:
            rows = write_inputs(folder / "in", scale, generator())
        except ServerUnavailable as error:
            missing["MERGE beside other lakes"] = str(error)
            return found
        for system in _KINDS:
            print(f"  {system} ...", file=sys.stderr, flush=True)
            try:
                lines = _run(system, folder)
            except (ServerUnavailable, subprocess.SubprocessError) as error:
                missing[f"MERGE, {SYSTEMS[system]}"] = _reason(error)
                continue
            found += _best(SYSTEMS[system], lines, rows)
            for line in lines:
                if "sum" in line:
                    sums[SYSTEMS[system]] = line["sum"]
    usual = statistics.median_low(sums.values()) if sums else 0.0
    for shown, total in sums.items():
        if abs(total - usual) > abs(usual) * 1e-9:
            missing[f"MERGE, {shown}"] = f"the sum is {total}, that of the others {usual}"
            found = [each for each in found if each.system != shown]
    return found


def _best(shown: str, lines: list[dict[str, float]], rows: int) -> Iterator[Merged]:
    samples: dict[tuple[str, str], list[float]] = {}
    for line in lines:
        if "wall_s" in line:
            key = (str(line["statement"]), str(line["share"]))
            samples.setdefault(key, []).append(line["wall_s"])
    for (statement, share), walls in samples.items():
        yield Merged(shown, statement, share, min(walls), rows)


def _run(system: str, folder: Path) -> list[dict[str, float]]:
    place = environment(system)
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    done = subprocess.run(
        [place.python, "-m", __spec__.name, system, folder / "in", work],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **place.variables},
        check=True,
        capture_output=True,
        text=True,
        timeout=_SYSTEM_S_MAX,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _reason(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__


def statements(lake: HudiTable | Delta) -> Iterator[tuple[str, Callable[[str], None]]]:
    """Yield what a system can do with a batch. Hudi upserts; that is what its users do."""
    if isinstance(lake, HudiTable):
        yield UPSERT, lake.upsert
    if isinstance(lake, Hudi):
        return
    name = lake.name() if isinstance(lake, Delta) else f"tidelock.`{lake.work / 'table'}`"
    for statement, text in _STATEMENTS.items():
        yield statement, _merging(lake, text.format(table=name))


def _merging(lake: HudiTable | Delta, text: str) -> Callable[[str], None]:
    def merge(batch: str) -> None:
        lake.rows(batch).createOrReplaceTempView("batch")
        lake.spark.sql(text).collect()

    return merge


def main(system: str, inputs: Path, work: Path) -> None:
    """Warm up, then run every statement several times; print what each time took."""
    small = _loaded(system, inputs / "warm", work / "small")
    for _, merge in statements(small):
        merge("up1")
    lake = _loaded(system, inputs, work / "large")
    for _ in range(ROUNDS):
        for statement, merge in statements(lake):
            for share, batch in BATCHES.items():
                began = time.perf_counter()
                merge(batch)
                wall_s = time.perf_counter() - began
                told = {"statement": statement, "share": share, "wall_s": wall_s}
                print(json.dumps(told), flush=True)
    if not isinstance(lake, Hudi):
        print(json.dumps({"sum": lake.read_column()}), flush=True)


def _loaded(system: str, inputs: Path, work: Path) -> HudiTable | Delta:
    work.mkdir(parents=True)
    lake = _KINDS[system](inputs, work)
    lake.load()
    return lake


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
