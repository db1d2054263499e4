"""One system's program in a process of its own, and all that it says, however it ends."""

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
class Ran:
    """What a program said, and why it did not come to its end, if it did not."""

    said: str
    reason: str | None


def run(system: str, module: str, words: Sequence[str | Path], system_s_max: float) -> Ran:
    """Run a module in a system's environment, for at most so long.

    With BENCH_ERRORS in the environment, what it says of errors is printed.

    Raises: `ServerUnavailable` where the system cannot be installed.
    """
    where = environment(system)
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [where.python, "-m", module, system, *words],
            cwd=_ROOT,
            env={**os.environ, **where.variables},
            stdout=said,
            stderr=errors,
            # A group of its own, so that its JVM and its workers end with it.
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
        said.seek(0)
        errors.seek(0)
        told = errors.read()
        if os.environ.get("BENCH_ERRORS"):
            print(told, file=sys.stderr)
        return Ran(said.read(), _reason(code, told, system_s_max))


def _reason(code: int | None, told: str, system_s_max: float) -> str | None:
    if code is None:
        return f"stopped after {system_s_max:.0f} s; the rest was not reached"
    lines = [line for line in told.strip().splitlines() if line.strip()]
    last = lines[-1][:200] if lines else "it said nothing"
    return None if code == 0 else f"ended with {code}: {last}"
