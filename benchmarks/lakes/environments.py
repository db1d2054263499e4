"""The interpreter and packages of each system, installed on demand."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from testkit.judges.hudi_spark import BUNDLES, SPARK, spark_bundle
from testkit.servers import ServerUnavailable
from testkit.servers.cache import ToolCache
from testkit.servers.maven import Coordinates, fetch_jars

_DELTA: Final = Coordinates("io.delta", "delta-spark_4.1_2.13", "4.4.0")
_ICEBERG: Final = Coordinates("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.11.0")
_ARROW: Final = "pyarrow==26.0.1"
_GENERATOR: Final = ("tpchgen-cli==4.0.0",)
_WHEELS: Final = {
    "delta-rs": ("deltalake==1.6.6", _ARROW),
    "lance": ("pylance==14.0.2", _ARROW),
    "ducklake": ("duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5", _ARROW),
    "pyiceberg": ("pyiceberg[sql-sqlite,pyarrow]==0.12.0", _ARROW),
    "paimon": ("pypaimon==2.1.0",),
    "polars-limit": ("polars==2.1.0", _ARROW),
    "pyarrow-limit": (_ARROW,),
}

SYSTEMS: Final = {
    "tidelock-spark": "tidelock on Spark 4.1",
    "hudi": f"Hudi {BUNDLES[0]} on Spark {SPARK}",
    "delta": f"Delta {_DELTA.version} on Spark 4.1",
    "iceberg": f"Iceberg {_ICEBERG.version} on Spark 4.1",
    "tidelock-spark-mor": "tidelock on Spark 4.1, merge-on-read",
    "hudi-mor": f"Hudi {BUNDLES[0]} on Spark {SPARK}, merge-on-read",
    "parquet-spark": "Spark 4.1's own Parquet",
    "tidelock-local": "tidelock without Spark",
    "tidelock-local-mor": "tidelock without Spark, merge-on-read",
    "delta-rs": "delta-rs 1.6.6",
    "lance": "Lance 14.0.2",
    "ducklake": "DuckLake 1.5.5",
    "pyiceberg": "PyIceberg 0.12.0",
    "paimon": "pypaimon 2.1.0",
    "polars-limit": "polars on plain files (the limit)",
    "pyarrow-limit": "pyarrow on plain files (the limit)",
}
"""The systems in the order in which they run and are shown."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The interpreter and the environment variables of a system's process."""

    python: Path
    variables: Mapping[str, str] = field(default_factory=dict)


def environment(system: str, cache: ToolCache | None = None) -> Environment:
    """Return the environment of a system. Raises: `ServerUnavailable` if it is not available."""
    ours = Path(sys.executable)
    match system:
        case "delta":
            return Environment(ours, {"BENCH_JARS": _jars([_DELTA])})
        case "iceberg":
            return Environment(ours, {"BENCH_JARS": _jars([_ICEBERG])})
        case "hudi" | "hudi-mor":
            bundle = spark_bundle(cache=cache)
            variables = {"PYTHONPATH": str(bundle.packages), "BENCH_JARS": str(bundle.jar)}
            return Environment(ours, variables)
        case wheels if wheels in _WHEELS:
            return Environment(_installed(wheels, _WHEELS[wheels], cache) / "bin" / "python")
        case _:
            return Environment(ours)


def generator(cache: ToolCache | None = None) -> Path:
    """Return the program that generates TPC-H rows. Raises: `ServerUnavailable`."""
    return _installed("tpch", _GENERATOR, cache) / "bin" / "tpchgen-cli"


def _jars(coordinates: Sequence[Coordinates]) -> str:
    # Spark has its own Scala and Hadoop; a second version on the class path would be used instead.
    own = ("scala-library", "spark-", "hadoop-")
    jars = [jar for jar in fetch_jars(coordinates) if not jar.name.startswith(own)]
    return ",".join(map(str, jars))


def _installed(name: str, packages: Sequence[str], cache: ToolCache | None) -> Path:
    """Return an environment with only these packages; create it if necessary."""
    version = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:16]

    def install(home: Path) -> None:
        venv.create(home, with_pip=True, clear=True)
        pip: list[str | Path] = [
            home / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            *packages,
        ]
        done = subprocess.run(pip, check=False, capture_output=True, text=True)
        if done.returncode:
            output = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise ServerUnavailable(
                name,
                reason=(output or ["pip failed"])[-1][:300],
                how_to_install=f"pip install {' '.join(packages)}",
            )

    return (cache or ToolCache.default()).tool(f"bench-{name}", version, install)
