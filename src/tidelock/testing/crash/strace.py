"""strace as a surgeon: a signal or an error at exactly the n-th call of one kind."""

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

from tidelock.base.errors import Unavailable
from tidelock.testing.servers.cache import ToolCache
from tidelock.testing.servers.debian import unpacked_packages

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = -1


class StraceUnavailable(Unavailable):
    """strace is here, but this machine lets nobody trace a process."""


@dataclass(frozen=True, slots=True)
class Strace:
    """The tool, and the environment it runs in."""

    program: Path
    env: Mapping[str, str]


class Injection:
    """One action (`signal=SIGKILL`, `error=EIO`) at call number `when` of `calls`."""

    def __init__(self, strace: Strace, calls: str, action: str, when: int) -> None:
        """Prepare it; nothing happens yet."""
        self._strace = strace
        self._calls = calls
        self._action = action
        self._when = when
        self.happened = False

    @contextmanager
    def into(self, pid: int) -> Iterator[None]:
        """Count the calls of `pid` from now on, and act at the chosen one.

        The process must end before this does.
        """
        chosen = (f"trace={self._calls}", f"inject={self._calls}:{self._action}:when={self._when}")
        with tempfile.NamedTemporaryFile(prefix="tidelock-strace-") as log:
            options = [option for choice in chosen for option in ("-e", choice)]
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
        said = ""
        for line in tracer.stderr:
            if "attached" in line:
                return
            said += line
        raise StraceUnavailable(
            f"{self._strace.program} may not trace a process of its own user: {said.strip()}",
            hint="allow ptrace in this container (seccomp profile, SYS_PTRACE), or accept the skip",
        )


def find_strace(cache: ToolCache | None = None) -> Strace:
    """Return strace from the path, else unpacked from Debian's package, and try it once.

    Raises: `ServerUnavailable` when it cannot be had, `StraceUnavailable` when it may not trace.
    """
    program = shutil.which("strace")
    if program is not None:
        strace = Strace(Path(program), {})
    else:
        root = unpacked_packages(
            cache or ToolCache.default(), name="strace", packages=["strace"], with_dependencies=True
        )
        libraries = sorted({str(path.parent) for path in root.glob("usr/lib/**/*.so*")})
        strace = Strace(root / "usr/bin/strace", {"LD_LIBRARY_PATH": ":".join(libraries)})
    _try(strace)
    return strace


def allow_tracing() -> None:
    """Let a sibling trace this process where only a parent may (Yama)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(_PR_SET_PTRACER_ANY), 0, 0, 0)


def _try(strace: Strace) -> None:
    patient = subprocess.Popen(
        ["sleep", "60"],
        stdin=subprocess.DEVNULL,
        preexec_fn=allow_tracing,  # noqa: PLW1509
    )
    try:
        with Injection(strace, "fsync", "error=EIO", 1).into(patient.pid):
            patient.kill()
    finally:
        patient.kill()
        patient.wait(10)
