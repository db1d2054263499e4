"""Streamers as processes: how one is started, what it says, and that none is left behind."""

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
def kept_or_not(folder: Path | None, prefix: str) -> Iterator[Path]:
    """Yield the folder of a run: the one that is named, which stays, or one that goes with it."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        yield Path(name)


def streamer_command(
    target: Path, scratch: Path, *, operation: str, confs: Mapping[str, str]
) -> list[str]:
    """Return the command of a streamer that goes on and tells what it does as JSON.

    It lacks the source. What its Spark session leaves lies below `scratch`.
    """
    command = [
        *(sys.executable, "-m", "tidelock.ops.submit", "streamer", "--continuous", "--json"),
        *("--target-base-path", str(target), "--op", operation),
        *("--spark-conf", f"spark.local.dir={scratch / 'spark'}"),
        *("--spark-conf", f"spark.sql.warehouse.dir={scratch / 'warehouse'}"),
        # Lives are short: what is compiled thoroughly would not pay.
        *("--spark-conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"),
    ]
    every = {"hoodie.datasource.write.recordkey.field": "id", **confs}
    every.setdefault("tidelock.streamer.idle.poll.ms", "200")
    for name, value in every.items():
        command += ["--hoodie-conf", f"{name}={value}"]
    return command


@contextmanager
def running_streamer(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a streamer for as long as the block lasts; its standard error goes to the log."""
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
    """Return what the streamer says next; None once it says no more.

    Raises: `AssertionError` for a batch that failed, even if the streamer would try it again.
    """
    assert streamer.stdout is not None
    line = streamer.stdout.readline()
    if not line:
        return None
    found: dict[str, Any] = json.loads(line)
    if "error" in found:
        raise AssertionError(f"a streamer failed: {line}")
    return found
