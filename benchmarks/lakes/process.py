"""Runs the program of one system in its own process, and collects its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.lakes.environments import environment

_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """The output of a program, and the reason if it did not finish."""

    output: str
    reason: str | None


def run(
    system: str, module: str, words: Sequence[str | Path], system_s_max: float
) -> ProgramOutput:
    """Run a module in a system's environment, for at most `system_s_max`.

    If BENCH_ERRORS is set in the environment, its standard error is printed.

    Raises: `ServerUnavailable` if the system cannot be installed.
    """
    where = environment(system)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [where.python, "-m", module, system, *words],
            cwd=_ROOT,
            env={**os.environ, **where.variables},
            stdout=output,
            stderr=errors,
            # A new process group, so that its JVM and its workers are killed with it.
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(system_s_max)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        errors.seek(0)
        stderr = errors.read()
        if os.environ.get("BENCH_ERRORS"):
            print(stderr, file=sys.stderr)
        return ProgramOutput(output.read(), _reason(code, stderr, system_s_max))


def _reason(code: int | None, stderr: str, system_s_max: float) -> str | None:
    if code is None:
        return f"stopped after {system_s_max:.0f} s; the remaining steps were not run"
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    last = lines[-1][:200] if lines else "no output"
    return None if code == 0 else f"exited with {code}: {last}"
