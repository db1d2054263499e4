"""The cache of installed tools between test runs.

A tool is installed in a temporary directory and published by one rename, so a reader sees a
complete tool or none. A file lock makes parallel test workers wait for one installation instead of
starting several.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testkit.servers.unavailable import ServerUnavailable

_OUTPUT_TAIL_CHARS = 1_500
_DOWNLOAD_ATTEMPTS = 3
_DOWNLOAD_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class ToolCache:
    """Installed tools below one root directory."""

    root: Path

    @classmethod
    def default(cls) -> ToolCache:
        """Return the cache at `$TIDELOCK_CACHE`, or at `~/.cache/tidelock`."""
        configured = os.environ.get("TIDELOCK_CACHE")
        return cls(Path(configured) if configured else Path.home() / ".cache" / "tidelock")

    def installed(self, name: str, version: str) -> Path | None:
        """Return the directory of a tool if it is installed; install nothing."""
        home = self.root / "tools" / name / version
        return home if home.is_dir() else None

    def tool(self, name: str, version: str, install: Callable[[Path], None]) -> Path:
        """Return the directory of a tool; install it first if necessary.

        `install` fills an empty directory. If it raises, nothing is published and the next caller
        tries again. The files must not depend on the name of the directory, which is renamed.
        """
        home = self.root / "tools" / name / version
        if home.is_dir():
            return home
        home.parent.mkdir(parents=True, exist_ok=True)
        with _file_lock(home.parent / f"{version}.lock"):
            if home.is_dir():
                return home
            building = Path(tempfile.mkdtemp(prefix=f".{version}-", dir=home.parent))
            try:
                install(building)
                building.chmod(0o755)
                building.rename(home)
            finally:
                shutil.rmtree(building, ignore_errors=True)
        return home


@dataclass(frozen=True, slots=True)
class Installer:
    """Runs the commands that install one tool; a failure raises `ServerUnavailable`."""

    name: str
    how_to_install: str

    def download(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        deadline_s: float = 900.0,
    ) -> str:
        """Run a command that uses the network; repeat it if it fails, because registries do."""
        for attempt in range(1, _DOWNLOAD_ATTEMPTS):
            try:
                return self.run(command, cwd=cwd, env=env, deadline_s=deadline_s)
            except ServerUnavailable as error:
                if isinstance(error.__cause__, FileNotFoundError | subprocess.TimeoutExpired):
                    raise
                time.sleep(attempt * _DOWNLOAD_PAUSE_S)
        return self.run(command, cwd=cwd, env=env, deadline_s=deadline_s)

    def run(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        deadline_s: float = 900.0,
    ) -> str:
        """Run a command and return its output."""
        words = [str(word) for word in command]
        try:
            done = subprocess.run(
                words,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=deadline_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise self.unavailable(f"the command {words[0]!r} is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise self.unavailable(
                f"`{' '.join(words)}` timed out after {deadline_s:.0f} s"
            ) from error
        if done.returncode != 0:
            tail = done.stdout[-_OUTPUT_TAIL_CHARS:].strip()
            raise self.unavailable(f"`{' '.join(words)}` failed ({done.returncode}): {tail}")
        return done.stdout

    def unavailable(self, reason: str) -> ServerUnavailable:
        """Return the error with the reason why this tool is not available."""
        return ServerUnavailable(self.name, reason=reason, how_to_install=self.how_to_install)


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    with path.open("a") as handle:
        # The kernel releases the lock when the file is closed, even if the process is killed.
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
