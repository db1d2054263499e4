"""Fault injection with strace: a signal or an error at the n-th call of one kind."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testkit.servers.cache import ToolCache
from testkit.servers.debian import unpacked_packages
from tidelock.core.errors import Unavailable

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = -1


class StraceUnavailable(Unavailable):
    """strace is installed, but processes cannot be traced on this machine."""


@dataclass(frozen=True, slots=True)
class Strace:
    """The program, and its environment."""

    program: Path
    env: Mapping[str, str]


class Injection:
    """One action (`signal=SIGKILL`, `error=EIO`) at call number `when` of `calls`."""

    def __init__(self, strace: Strace, calls: str, action: str, when: int) -> None:
        """Prepare the injection."""
        self._strace = strace
        self._calls = calls
        self._action = action
        self._when = when
        self.happened = False

    @contextmanager
    def into(self, pid: int) -> Iterator[None]:
        """Count the calls of `pid` from now on, and inject at the selected one.

        The process must end within this block.
        """
        expressions = (
            f"trace={self._calls}",
            f"inject={self._calls}:{self._action}:when={self._when}",
        )
        with tempfile.NamedTemporaryFile(prefix="tidelock-strace-") as log:
            options = [option for choice in expressions for option in ("-e", choice)]
            tracer = subprocess.Popen(
                [self._strace.program, "-f", *options, "-o", log.name, "-p", str(pid)],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **self._strace.env},
            )
            try:
                self._await_attached(tracer)
                yield
                tracer.wait(30)
            finally:
                tracer.terminate()
                tracer.communicate(timeout=10)
            written = log.read().decode(errors="replace")
            self.happened = "(INJECTED)" in written or "+++ killed by SIGKILL +++" in written

    def _await_attached(self, tracer: subprocess.Popen[str]) -> None:
        assert tracer.stderr is not None
        output = ""
        for line in tracer.stderr:
            if "attached" in line:
                return
            output += line
        raise StraceUnavailable(
            f"{self._strace.program} cannot trace a process of the same user: {output.strip()}",
            hint="allow ptrace in this container (seccomp profile, SYS_PTRACE), or accept the skip",
        )


def find_strace(cache: ToolCache | None = None) -> Strace:
    """Return strace from PATH, else unpacked from Debian's package, after a test run.

    Raises: `ServerUnavailable` if it is not available, `StraceUnavailable` if it cannot trace.
    """
    program = shutil.which("strace")
    if program is not None:
        strace = Strace(Path(program), {})
    else:
        root = _unpacked(cache or ToolCache.default())
        libraries = sorted({str(path.parent) for path in root.glob("usr/lib/**/*.so*")})
        strace = Strace(root / "usr/bin/strace", {"LD_LIBRARY_PATH": ":".join(libraries)})
    _try(strace)
    return strace


def install(cache: ToolCache) -> None:
    """Download the package before the tests run, where the system has no strace."""
    if shutil.which("strace") is None:
        _unpacked(cache)


def _unpacked(cache: ToolCache) -> Path:
    return unpacked_packages(cache, name="strace", packages=["strace"], with_dependencies=True)


def allow_tracing() -> None:
    """Allow a sibling to trace this process, where only a parent may (Yama)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(_PR_SET_PTRACER_ANY), 0, 0, 0)


def _try(strace: Strace) -> None:
    target = subprocess.Popen(
        ["sleep", "60"],
        stdin=subprocess.DEVNULL,
        preexec_fn=allow_tracing,  # noqa: PLW1509
    )
    try:
        with Injection(strace, "fsync", "error=EIO", 1).into(target.pid):
            target.kill()
    finally:
        target.kill()
        target.wait(10)
