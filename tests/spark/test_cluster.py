"""A real standalone Spark cluster: a master, two workers, and a submitted job."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tidelock as tl
from tidelock.cli.main import app

SPARK = Path(str(find_spec("pyspark").origin)).parent  # type: ignore[union-attr]
PATIENCE_S = 240

JOB = """
import json, os, sys
from pyspark.sql import SparkSession
import tidelock as tl

uri = sys.argv[1]
spark = tl.enable(SparkSession.builder.getOrCreate())
rows = spark.sparkContext.parallelize([(i, i % 4) for i in range(4000)], 4)
frame = spark.createDataFrame(rows, "id bigint, v bigint")
options = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
}
frame.write.format("tidelock").options(**options).mode("append").save(uri)
changed = frame.where("v = 1").selectExpr("id", "v + 100 as v")
changed.write.format("tidelock").mode("append").save(uri)
table = spark.read.format("tidelock").load(uri)
found = {"rows": table.count(), "changed": table.where("v = 101").count()}

def where(_):
    import tidelock
    yield os.getcwd(), tidelock.__file__

tasks = spark.sparkContext.parallelize(range(8), 8)
found["places"] = tasks.mapPartitions(where).distinct().collect()
print("FOUND " + json.dumps(found))
"""


@contextmanager
def daemon(log: Path, *command: str) -> Iterator[None]:
    """Run a Spark daemon for the duration of the block, in its own process group."""
    with log.open("w") as out:
        child = subprocess.Popen(
            [str(SPARK / "bin" / "spark-class"), *command],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SPARK_HOME": str(SPARK), "SPARK_DAEMON_MEMORY": "256m"},
            start_new_session=True,
        )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def wait_for_log(log: Path, pattern: str) -> str:
    """Wait for a pattern in a log; return the match."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found = re.search(pattern, log.read_text() if log.exists() else "")
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"{log} does not say {pattern}: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a master that has two workers."""
    folder = tmp_path_factory.mktemp("cluster")
    anywhere = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(daemon(log, "org.apache.spark.deploy.master.Master", *anywhere))
        master = wait_for_log(log, r"Starting Spark master at (spark://\S+)")
        for number in range(2):
            log, work = folder / f"worker-{number}.log", folder / f"work-{number}"
            given = (*anywhere, "--cores", "1", "--memory", "1g", "--work-dir", str(work), master)
            stack.enter_context(daemon(log, "org.apache.spark.deploy.worker.Worker", *given))
            wait_for_log(log, r"(Successfully registered with master)")
        yield master


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with the dependencies of tidelock, but without tidelock."""
    folder = tmp_path_factory.mktemp("python")
    libraries = folder / "libraries"
    libraries.mkdir()
    for file in SPARK.parent.iterdir():
        if "tidelock" not in file.name and file.suffix != ".pth":
            (libraries / file.name).symlink_to(file)
    program = folder / "python"
    real = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{libraries}:$PYTHONPATH" exec {real} "$@"\n')
    program.chmod(0o755)
    return program


def submitted(cluster: str, executors: Path, job: Path, *args: str) -> dict[str, object]:
    """Submit the job with executors that run this Python; return its result."""
    small = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        # The job begins once both executors are there, so that neither runs all of its tasks.
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        "spark.pyspark.python": str(executors),
        "spark.pyspark.driver.python": sys.executable,
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--master", cluster]
    for name, value in small.items():
        command += ["--conf", f"{name}={value}"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    done = subprocess.run(
        [*command, str(job), *args],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**env, "SPARK_HOME": str(SPARK)},
    )
    line = next((x for x in done.stdout.splitlines() if x.startswith("FOUND ")), None)
    assert line is not None, done.stderr[-4000:]
    found: dict[str, object] = json.loads(line.removeprefix("FOUND "))
    return found


@pytest.mark.timeout(900)
def test_job_on_a_cluster_ships_the_package_to_executors_that_have_none(
    cluster: str, bare_python: Path, tmp_path: Path
) -> None:
    job, uri = tmp_path / "job.py", str(tmp_path / "table")
    job.write_text(JOB)
    found = submitted(cluster, bare_python, job, uri)
    assert (found["rows"], found["changed"]) == (4000, 1000)
    locations = found["places"]
    assert isinstance(locations, list)
    assert len(locations) == 2, "both executors had work"
    assert all("tidelock.zip" in file for _, file in locations)
    with tl.Table.open(uri) as table:
        assert sum(row["v"] == 101 for row in table.read().to_pylist()) == 1000


def test_package_archive_works_with_py_files(bare_python: Path, tmp_path: Path) -> None:
    archive = tmp_path / "shipped.zip"
    done = CliRunner().invoke(app, ["package", str(archive)])
    assert done.output.strip() == str(archive)
    uri = str(tmp_path / "table")
    with tl.Table.create(uri, [("id", "int64")], key="id") as table:
        table.insert([{"id": 1}])
    code = (
        "import sys, tidelock as tl, tidelock.execution.spark.large_write;"
        f"print(tl.__file__, tl.Table.open({uri!r}).read().num_rows)"
    )
    ran = subprocess.run(
        [str(bare_python), "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(archive)},
    )
    assert ran.stdout.split() == [f"{archive}/tidelock/__init__.py", "1"]
    missing = subprocess.run([str(bare_python), "-c", code], check=False, capture_output=True)
    assert missing.returncode, "without the file there is no tidelock"
