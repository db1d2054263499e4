"""The judge on Spark: Apache Hudi's data source, on the Spark that a bundle of Hudi exists for.

It runs in a process of its own with its own PySpark, kept in the tool cache: a Spark 3.5 and a
Spark 4 cannot share an interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.testing.judges import spark_program
from tidelock.testing.judges.rows import Row, rows_of
from tidelock.testing.servers.cache import Installer, ToolCache
from tidelock.testing.servers.maven import Coordinates, fetch_jars

BUNDLES: Final = ("1.1.1", "1.2.0")
"""The releases of Hudi whose bundle for this Spark tests run with; the first where one will do."""
SPARK: Final = "3.5.6"

_QUERY = "hoodie.datasource.query.type"
_LOG_TAIL_CHARS: Final = 4_000


@dataclass(frozen=True, slots=True)
class SparkBundle:
    """What a process needs to be this judge: a folder with PySpark, and Hudi's jar."""

    packages: Path
    jar: Path
    version: str = BUNDLES[0]


def spark_bundle(version: str = BUNDLES[0], cache: ToolCache | None = None) -> SparkBundle:
    """Return PySpark and Hudi's bundle for it, downloaded if need be: about 430 MB.

    Raises ServerUnavailable where there is no Java, no Maven, or no way to either.
    """
    kept = cache or ToolCache.default()
    name = Coordinates("org.apache.hudi", "hudi-spark3.5-bundle_2.12", version, excluded=("*:*",))
    (jar,) = fetch_jars([name], kept)
    requirement = f"pyspark=={SPARK}"
    installer = Installer("PySpark", how_to_install=f"run `pip install {requirement}`")

    def install(target: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
        installer.run([*pip, "--target", target, requirement])

    return SparkBundle(kept.tool("pyspark", SPARK, install), jar, version)


class HudiSpark:
    """Reads and writes tables in a Spark process that runs already."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, version: str) -> None:
        """Take over a process that was just started, and a folder for the rows that travel."""
        self._process = process
        self._folder = folder
        self._version = version

    @property
    def name(self) -> str:
        """Say which reader it is."""
        return f"Apache Hudi {self._version} on Spark {SPARK}"

    def snapshot(self, table: str, as_of: str | None = None) -> list[Row]:
        """Return the rows now, or of writes requested by `as_of`."""
        return self._read(table, {} if as_of is None else {"as.of.instant": as_of})

    def read_optimized(self, table: str) -> list[Row]:
        """Return the rows of base files alone."""
        return self._read(table, {_QUERY: "read_optimized"})

    def changes(self, table: str, since: str, until: str | None = None) -> list[Row]:
        """Return the rows that writes completed in (since, until] left behind."""
        options = {_QUERY: "incremental", "hoodie.datasource.read.begin.instanttime": since}
        if until is not None:
            options["hoodie.datasource.read.end.instanttime"] = until
        return self._read(table, options)

    def write(self, table: str, rows: pa.Table, options: Mapping[str, str]) -> None:
        """Write rows with `df.write.format("hudi")`; a table that is not there is made."""
        path = self._folder / "in.parquet"
        pq.write_table(rows, path, coerce_timestamps="us", store_schema=False)
        self._ask({"do": "write", "table": table, "rows": str(path), "options": dict(options)})

    def wait_until_ready(self) -> None:
        """Wait for the answer that Spark is up."""
        self._answer()

    def close(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _read(self, table: str, options: Mapping[str, str]) -> list[Row]:
        path = self._folder / "out"
        self._ask({"do": "read", "table": table, "rows": str(path), "options": dict(options)})
        return rows_of(pq.read_table(path))

    def _ask(self, command: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            log = (self._folder / "spark.log").read_text(errors="replace")
            raise AssertionError(f"the Spark process ended:\n{log[-_LOG_TAIL_CHARS:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(f"Hudi on Spark refused: {answer['error'][:_LOG_TAIL_CHARS]}")


@contextmanager
def hudi_spark(bundle: SparkBundle, *, zone: str = "UTC") -> Iterator[HudiSpark]:
    """Run a Spark process that reads and writes tables; it is ready when this returns.

    `zone` is the time zone of its Java, as if it ran on a machine there.
    """
    with tempfile.TemporaryDirectory(prefix="tidelock-spark-") as name:
        folder = Path(name)
        with (folder / "spark.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, spark_program.__file__, str(bundle.jar), zone],
                cwd=folder,
                env=_environment(bundle),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        judge = HudiSpark(process, folder, bundle.version)
        try:
            judge.wait_until_ready()
            yield judge
        finally:
            judge.close()


def _environment(bundle: SparkBundle) -> dict[str, str]:
    """Put the other PySpark before ours, and let nothing of a Spark of ours reach it."""
    foreign = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))
    }
    return {**foreign, "PYTHONPATH": str(bundle.packages), "SPARK_LOCAL_IP": "127.0.0.1"}
