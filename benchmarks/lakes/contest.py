"""Runs every system through the course, each in its own environment, in turns."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.lakes.rows import write_inputs
from tidelock.testing.judges.hudi_spark import BUNDLE, SPARK, spark_bundle
from tidelock.testing.servers import ServerUnavailable
from tidelock.testing.servers.cache import ToolCache
from tidelock.testing.servers.maven import Coordinates, fetch_jars

_ROOT: Final = Path(__file__).parents[2]
_PROGRAM: Final = "benchmarks.lakes.program"
_DELTA: Final = Coordinates("io.delta", "delta-spark_4.1_2.13", "4.1.0")
_ICEBERG: Final = Coordinates("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.11.0")
_ROUNDS: Final = 2
_SYSTEM_S_MAX: Final = 300
PACKAGES: Final = (
    "deltalake",
    "pyiceberg[sql-sqlite,pyarrow]",
    "pylance",
    "duckdb",
    "polars",
    "pyarrow",
    "tpchgen-cli",
)

SYSTEMS: Final = {
    "tidelock-spark": "tidelock on Spark 4.1",
    "delta": f"Delta {_DELTA.version} on Spark 4.1",
    "iceberg": f"Iceberg {_ICEBERG.version} on Spark 4.1",
    "hudi": f"Hudi {BUNDLE} on Spark {SPARK}",
    "tidelock-spark-mor": "tidelock on Spark 4.1, merge-on-read",
    "hudi-mor": f"Hudi {BUNDLE} on Spark {SPARK}, merge-on-read",
    "parquet-spark": "Spark 4.1's own Parquet",
    "tidelock-local": "tidelock without Spark",
    "delta-rs": "delta-rs",
    "lance": "Lance",
    "ducklake": "DuckLake",
    "pyiceberg": "PyIceberg",
    "polars-limit": "polars on plain files (the limit)",
}


@dataclass(frozen=True, slots=True)
class LakeFigure:
    """What one system took for one part of the course."""

    system: str
    measure: str
    best_s: float
    median_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class _Environment:
    python: Path
    variables: Mapping[str, str]


def measure(scale: float, rounds: int = _ROUNDS) -> tuple[list[LakeFigure], dict[str, str]]:
    """Return what each system took, and why some were not measured."""
    missing: dict[str, str] = {}
    walls: dict[tuple[str, str], list[float]] = {}
    cpus: dict[tuple[str, str], list[float]] = {}
    sums: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="tidelock-lakes-") as name:
        folder = Path(name)
        write_inputs(folder / "in", scale, peers_home() / "bin" / "tpchgen-cli")
        for _ in range(rounds):
            for system, shown in SYSTEMS.items():
                if shown in missing:
                    continue
                try:
                    lines = _run(system, folder)
                except subprocess.TimeoutExpired as error:
                    lines = _lines((error.stdout or b"").decode())
                    missing[shown] = f"stopped after {_SYSTEM_S_MAX} s; the rest was not reached"
                except (ServerUnavailable, subprocess.SubprocessError) as error:
                    missing[shown] = _reason(error)
                    continue
                for line in lines:
                    if "sum" in line:
                        sums[shown] = line["sum"]
                        continue
                    walls.setdefault((shown, str(line["measure"])), []).append(line["wall_s"])
                    cpus.setdefault((shown, str(line["measure"])), []).append(line["cpu_s"])
                shutil.rmtree(folder / "work", ignore_errors=True)
    wrong = _wrong(sums)
    missing.update(wrong)
    figures = [
        LakeFigure(*key, min(times), statistics.median(times), statistics.median(cpus[key]))
        for key, times in walls.items()
        if key[0] not in wrong
    ]
    return figures, missing


def _wrong(sums: Mapping[str, float]) -> dict[str, str]:
    """A system whose rows are not those of the others did not do the work that was timed."""
    if not sums:
        return {}
    usual = statistics.median_low(sums.values())
    return {
        system: f"the table's sum is {found}, that of the others {usual}"
        for system, found in sums.items()
        if abs(found - usual) > abs(usual) * 1e-9
    }


def _run(system: str, folder: Path) -> list[dict[str, Any]]:
    environment = _environment(system)
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    print(f"  {system} ...", file=sys.stderr, flush=True)
    done = subprocess.run(
        [environment.python, "-m", _PROGRAM, system, folder / "in", work],
        cwd=_ROOT,
        env={**os.environ, **environment.variables},
        check=True,
        capture_output=True,
        text=True,
        timeout=_SYSTEM_S_MAX,
    )
    return _lines(done.stdout)


def _lines(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def _environment(system: str) -> _Environment:
    ours = Path(sys.executable)
    match system:
        case "delta":
            return _Environment(ours, {"BENCH_JARS": _jars([_DELTA])})
        case "iceberg":
            return _Environment(ours, {"BENCH_JARS": _jars([_ICEBERG])})
        case "hudi" | "hudi-mor":
            bundle = spark_bundle()
            variables = {"PYTHONPATH": str(bundle.packages), "BENCH_JARS": str(bundle.jar)}
            return _Environment(ours, variables)
        case "delta-rs" | "lance" | "ducklake" | "pyiceberg" | "polars-limit":
            return _Environment(peers_home() / "bin" / "python", {})
        case _:
            return _Environment(ours, {})


def _jars(coordinates: Sequence[Coordinates]) -> str:
    # Spark brings its own Scala and Hadoop; a second one beside it would be loaded instead.
    own = ("scala-library", "spark-", "hadoop-")
    jars = [jar for jar in fetch_jars(coordinates) if not jar.name.startswith(own)]
    return ",".join(map(str, jars))


def peers_home(cache: ToolCache | None = None) -> Path:
    """Return an environment with the systems that come as wheels, made if need be."""
    return (cache or ToolCache.default()).tool("bench-lakes", "1", _install)


def _install(home: Path) -> None:
    venv.create(home, with_pip=True, clear=True)
    done = subprocess.run(
        [home / "bin" / "python", "-m", "pip", "install", "--quiet", *PACKAGES],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ServerUnavailable(
            "other table formats", reason=done.stderr[-500:], how_to_install="see a package index"
        )


def _reason(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    lines = [line for line in str(said).strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__
