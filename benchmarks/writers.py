"""Several processes write to one table: commits per second, failed and lost batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.stores import BUCKET, s3_settings
from testkit.servers import S3Server, ServerUnavailable
from testkit.servers.cache import ToolCache

_SCRIPT = Path(__file__).parent / "writing.py"
PEERS = ("deltalake", "pyiceberg[sql-sqlite]", "pylance")
SYSTEMS = ("tidelock", "deltalake", "lance", "pyiceberg")
CASES = (
    *(("append", writers) for writers in (1, 4, 8, 16)),
    *(("same", writers) for writers in (4, 8, 16)),
    *(("disjoint", writers) for writers in (4, 8, 16)),
)
S3_SYSTEMS = ("tidelock", "deltalake")
S3_CASES = tuple((kind, writers) for kind in ("append", "same") for writers in (1, 4, 8, 16))
COMMITS = {"append": 20, "same": 10, "disjoint": 10}


@dataclass(frozen=True, slots=True)
class WritersResult:
    """The result of some writers of one system on one table.

    `lost` counts acknowledged batches that are not in the table; a batch that was replaced by a
    later one with the same keys is not lost. `twice` counts duplicate keys.
    """

    system: str
    kind: str
    writers: int
    commits_per_s: float
    failed: int
    attempted: int
    p50_ms: float
    p99_ms: float
    lost: int
    twice: int
    cpu_ms: float
    """CPU time of all writers per attempted batch."""


def peers_python(cache: ToolCache | None = None) -> Path:
    """Return the interpreter of an environment with the other systems; create it if necessary."""
    home = (cache or ToolCache.default()).tool("bench-peers", "1", _install)
    return home / "bin" / "python"


def _install(home: Path) -> None:
    venv.create(home, with_pip=True, clear=True)
    done = subprocess.run(
        [home / "bin" / "python", "-m", "pip", "install", "--quiet", *PEERS],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ServerUnavailable(
            "other table formats", reason=done.stderr[-500:], how_to_install="see a package index"
        )


def measure(
    kind: str,
    writers: int,
    systems: Sequence[str] = SYSTEMS,
    *,
    server: S3Server | None = None,
) -> tuple[list[WritersResult], dict[str, str]]:
    """Measure each system in turn; also return why some were not measured."""
    results, missing = [], {}
    for system in systems:
        try:
            results.append(_one(system, kind, writers, server))
        except (ServerUnavailable, subprocess.CalledProcessError) as error:
            error_text = getattr(error, "stderr", None) or str(error)
            missing[f"{system}, {kind} with {writers}"] = error_text.strip().splitlines()[-1][:200]
    return results, missing


def _one(system: str, kind: str, writers: int, server: S3Server | None) -> WritersResult:
    python = Path(sys.executable) if system == "tidelock" else peers_python()
    count = COMMITS[kind]
    with tempfile.TemporaryDirectory() as folder:
        location, start_file = str(Path(folder) / "table"), Path(folder) / "start"
        environment = dict(os.environ)
        if server is not None:
            location = f"s3://{BUCKET}/{system}-{kind}-{writers}-{time.time_ns()}"
            environment["BENCH_STORE"] = json.dumps(_store(system, server))
        _run(python, environment, "create", system, location)
        runs = [
            subprocess.Popen(
                [
                    python,
                    _SCRIPT,
                    "write",
                    system,
                    location,
                    str(n),
                    kind,
                    str(count),
                    str(start_file),
                ],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for n in range(writers)
        ]
        for run in runs:
            assert run.stdout is not None
            run.stdout.readline()
        time.sleep(0.1)
        start_file.touch()
        outputs = [json.loads(run.communicate()[0]) for run in runs]
        found = json.loads(_run(python, environment, "read", system, location))
    return _summarized(system, kind, writers, outputs, found)


def _store(system: str, server: S3Server) -> Mapping[str, object]:
    if system == "tidelock":
        return s3_settings(server)
    return {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_REGION": server.region,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
    }


def _summarized(
    system: str, kind: str, writers: int, outputs: list[dict[str, object]], found: dict[str, object]
) -> WritersResult:
    commits = [
        (number, commit)
        for number, each in enumerate(outputs)
        for commit in each["commits"]  # type: ignore[attr-defined]
    ]
    landed = [(number, commit["turn"]) for number, commit in commits if not commit["error"]]
    seen = {tuple(each) for each in found["batches"]}  # type: ignore[attr-defined]
    times = sorted(commit["s"] * 1_000 for _, commit in commits)
    span = max(each["ended"] for each in outputs) - min(each["began"] for each in outputs)  # type: ignore[operator, type-var]
    return WritersResult(
        system=system,
        kind=kind,
        writers=writers,
        commits_per_s=len(landed) / span,
        failed=len(commits) - len(landed),
        attempted=len(commits),
        p50_ms=times[len(times) // 2],
        p99_ms=times[min(len(times) - 1, int(len(times) * 0.99))],
        lost=_lost(kind, landed, seen),
        cpu_ms=1_000 * sum(each["cpu_s"] for each in outputs) / len(commits),  # type: ignore[misc]
        twice=int(found["rows"]) - int(found["keys"]),  # type: ignore[call-overload]
    )


def _lost(kind: str, landed: list[tuple[int, int]], seen: set[tuple[int, ...]]) -> int:
    match kind:
        case "append":
            return sum(1 for each in landed if each not in seen)
        case "disjoint":
            last: dict[int, int] = {}
            for number, turn in landed:
                last[number] = max(turn, last.get(number, -1))
            return sum(1 for each in last.items() if each not in seen)
        case _:
            # All batches have the same keys, so the last batch of one writer must be in the table.
            ends = dict(sorted(landed))
            return 0 if not ends or any(each in seen for each in ends.items()) else 1


def _run(python: Path, environment: Mapping[str, str], *arguments: str) -> str:
    command = [str(python), str(_SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout
