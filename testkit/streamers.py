"""Runs streamers as child processes and reads their events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def run_folder(folder: Path | None, prefix: str) -> Iterator[Path]:
    """Yield the folder of a run: the given one, which is kept, or a temporary one."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        yield Path(name)


def streamer_command(
    target: Path, scratch: Path, *, operation: str, confs: Mapping[str, str]
) -> list[str]:
    """Return the command of a continuous streamer with JSON output, without its source.

    The files of its Spark session are below `scratch`.
    """
    command = [
        *(sys.executable, "-m", "tidelock.cli.submit", "streamer", "--continuous", "--json"),
        *("--target-base-path", str(target), "--op", operation),
        *("--spark-conf", f"spark.local.dir={scratch / 'spark'}"),
        *("--spark-conf", f"spark.sql.warehouse.dir={scratch / 'warehouse'}"),
        # The processes are short-lived, so full JIT compilation would not pay off.
        *("--spark-conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"),
    ]
    settings = {"hoodie.datasource.write.recordkey.field": "id", **confs}
    settings.setdefault("tidelock.streamer.idle.poll.ms", "200")
    for name, value in settings.items():
        command += ["--hoodie-conf", f"{name}={value}"]
    return command


@contextmanager
def running_streamer(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a streamer for the duration of the block; append its standard error to the log."""
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def next_event(streamer: subprocess.Popen[str]) -> dict[str, Any] | None:
    """Return the next event of the streamer; None at the end of its output.

    Raises: `AssertionError` for a failed batch, even if the streamer would retry it.
    """
    assert streamer.stdout is not None
    line = streamer.stdout.readline()
    if not line:
        return None
    found: dict[str, Any] = json.loads(line)
    if "error" in found:
        raise AssertionError(f"a streamer failed: {line}")
    return found
