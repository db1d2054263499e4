"""The CLI under test: in this process where possible, as a subprocess otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tidelock.cli.main import main

CODE = "from tidelock.cli.main import run; run()"
LOCK_FILE = ".hoodie/.locks/table_lock.json"
TOKENS_FILE = ".hoodie/.locks/table_lock.tokens.json"


@dataclass(frozen=True, slots=True)
class Ended:
    """Exit status and output of a command."""

    code: int
    out: str
    err: str

    @property
    def facts(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        loaded: dict[str, Any] = json.loads(self.out)
        return loaded


class Program:
    """Runs CLI commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: str) -> Ended:
        self._capsys.readouterr()
        code = main(list(args))
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Ended(code, captured.out, captured.err)


def start(*args: str, **options: Any) -> subprocess.Popen[str]:
    """Start a subprocess; its output goes to pipes by default."""
    given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    given |= options
    return subprocess.Popen([sys.executable, "-c", CODE, *args], **given)


def end(process: subprocess.Popen[str], *, within_s: float = 120) -> Ended:
    """Wait for a subprocess to exit."""
    try:
        out, err = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"still running after {within_s} s; it said {out!r} {err!r}")
    assert "Traceback" not in (out or "") + (err or "")
    return Ended(process.returncode, out or "", err or "")


def eventually(condition: Callable[[], bool], *, within_s: float = 120) -> None:
    """Wait until a condition is true."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def plant(folder: Path, body: bytes, *, name: str = LOCK_FILE) -> Path:
    """Write bytes to a lock's object."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return path


def java_record(*, expired: bool, valid_until_epoch_ms: int, owner: str = "java-1") -> bytes:
    """Return a lock record as Hudi's Java writers write it."""
    fields = {"expired": expired, "validUntil": valid_until_epoch_ms, "owner": owner}
    return json.dumps(fields, separators=(",", ":")).encode()


def now_ms() -> int:
    """Return the wall time."""
    return time.time_ns() // 1_000_000
