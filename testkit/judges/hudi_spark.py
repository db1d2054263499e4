"""Reference reader: Apache Hudi's data source, on a Spark version that Hudi has a bundle for.

It runs in a child process with its own PySpark from the tool cache: Spark 3.5 and Spark 4 cannot
share an interpreter.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from testkit.java.process import CommandProcess
from testkit.judges import spark_program
from testkit.judges.rows import Row, rows_of
from testkit.servers.cache import Installer, ToolCache
from testkit.servers.maven import Coordinates, fetch_jars

BUNDLES: Final = ("1.1.1", "1.2.0")
"""The Hudi releases that tests run with; the first one where a single release is enough."""
SPARK: Final = "3.5.6"

_QUERY = "hoodie.datasource.query.type"


@dataclass(frozen=True, slots=True)
class SparkBundle:
    """The files that the process needs: a folder with PySpark, and Hudi's jar."""

    packages: Path
    jar: Path
    version: str = BUNDLES[0]


def spark_bundle(version: str = BUNDLES[0], cache: ToolCache | None = None) -> SparkBundle:
    """Return PySpark and Hudi's bundle for it, downloaded if necessary: about 430 MB.

    Raises: `ServerUnavailable` without Java or Maven.
    """
    tools = cache or ToolCache.default()
    name = Coordinates("org.apache.hudi", "hudi-spark3.5-bundle_2.12", version, excluded=("*:*",))
    (jar,) = fetch_jars([name], tools)
    requirement = f"pyspark=={SPARK}"
    installer = Installer("PySpark", how_to_install=f"run `pip install {requirement}`")

    def install(target: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
        installer.download([*pip, "--target", target, requirement])

    return SparkBundle(tools.tool("pyspark", SPARK, install), jar, version)


class HudiSpark(CommandProcess):
    """Reads and writes tables in a running Spark process."""

    version = BUNDLES[0]

    @property
    def name(self) -> str:
        """The name of the reader."""
        return f"Apache Hudi {self.version} on Spark {SPARK}"

    def snapshot(self, table: str, as_of: str | None = None) -> list[Row]:
        """Return the current rows, or those of commits requested up to `as_of`."""
        return self._read(table, {} if as_of is None else {"as.of.instant": as_of})

    def read_optimized(self, table: str) -> list[Row]:
        """Return the rows of base files only."""
        return self._read(table, {_QUERY: "read_optimized"})

    def changes(self, table: str, since: str, until: str | None = None) -> list[Row]:
        """Return the rows changed by commits completed in (since, until]."""
        options = {_QUERY: "incremental", "hoodie.datasource.read.begin.instanttime": since}
        if until is not None:
            options["hoodie.datasource.read.end.instanttime"] = until
        return self._read(table, options)

    def write(self, table: str, rows: pa.Table, options: Mapping[str, str]) -> None:
        """Write rows with `df.write.format("hudi")`; create the table if it is missing."""
        path = self.folder / "in.parquet"
        pq.write_table(rows, path, coerce_timestamps="us", store_schema=False)
        self.call(
            json.dumps({"do": "write", "table": table, "rows": str(path), "options": dict(options)})
        )

    def _read(self, table: str, options: Mapping[str, str]) -> list[Row]:
        path = self.folder / "out"
        self.call(
            json.dumps({"do": "read", "table": table, "rows": str(path), "options": dict(options)})
        )
        return rows_of(pq.read_table(path))


@contextmanager
def hudi_spark(bundle: SparkBundle, *, zone: str = "UTC") -> Iterator[HudiSpark]:
    """Run a Spark process that reads and writes tables, and wait until it is ready.

    `zone` is the time zone of its JVM.
    """
    command = [sys.executable, spark_program.__file__, str(bundle.jar), zone]
    with (
        tempfile.TemporaryDirectory(prefix="tidelock-spark-") as folder,
        HudiSpark.run(command, Path(folder), cwd=Path(folder), env=_environment(bundle)) as judge,
    ):
        judge.version = bundle.version
        yield judge


def _environment(bundle: SparkBundle) -> dict[str, str]:
    """Return an environment with the other PySpark, and without the settings of this one."""
    external = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))
    }
    return {**external, "PYTHONPATH": str(bundle.packages), "SPARK_LOCAL_IP": "127.0.0.1"}
