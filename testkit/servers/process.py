"""Starts a server process, waits until it is ready, and stops it reliably."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from testkit.servers import warden
from testkit.servers.unavailable import ServerUnavailable

HOST = "127.0.0.1"

# Long, because a loaded machine takes a multiple of the usual seconds.
_START_DEADLINE_S = 180.0
_STOP_DEADLINE_S = 60.0
_POLL_S = 0.02
_LOG_TAIL_BYTES = 3_000
_START_ATTEMPTS = 3
_PORT_TAKEN = (b"address already in use", b"is not available on 127.0.0.1")
"""What servers log when another process has their port; the second is SeaweedFS's."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The command of a server, and a check whether it is ready."""

    command: Sequence[str | Path]
    ready: Callable[[], bool]
    env: Mapping[str, str] = field(default_factory=dict)
    leftovers: Sequence[Path] = ()
    """Files outside its directory that the server leaves behind."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server with its own directory, which `stop` removes."""

    popen: subprocess.Popen[bytes]
    home: Path
    leftovers: Sequence[Path]
    owner_pid: int

    @property
    def log(self) -> Path:
        """The file with the output of the server."""
        return self.home / "server.log"

    def port_is_taken(self) -> bool:
        """Return whether the server found one of its ports in use."""
        log = self.log.read_bytes().lower()
        return any(words in log for words in _PORT_TAKEN)

    def log_tail(self) -> str:
        """Return the end of the server's output."""
        return self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()

    def stop(self) -> None:
        """Kill the server and remove its files. Stopping twice is allowed."""
        if os.getpid() != self.owner_pid:
            # A forked child inherits this object and its exit handler, but not the server.
            return
        atexit.unregister(self.stop)
        if self.popen.poll() is None:
            self.popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(_STOP_DEADLINE_S)
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(_STOP_DEADLINE_S)
        if self.popen.stdin is not None:
            self.popen.stdin.close()
        shutil.rmtree(self.home, ignore_errors=True)
        for path in self.leftovers:
            path.unlink(missing_ok=True)


def start(
    name: str,
    plan: Callable[[Path, Sequence[int]], Launch],
    *,
    ports: int,
    deadline_s: float = _START_DEADLINE_S,
) -> tuple[ServerProcess, Sequence[int]]:
    """Start a server on free ports, and return it once it is ready.

    `plan` receives the server's own directory and its ports. Another process may take a port before
    the server binds it; then the start is repeated with other ports.
    """
    for attempt in range(1, _START_ATTEMPTS + 1):
        home = Path(tempfile.mkdtemp(prefix=f"tidelock-{name}-"))
        chosen = free_ports(ports)
        launch = plan(home, chosen)
        process = _spawn(launch, home)
        failure = _wait_until_ready(process, launch.ready, deadline_s)
        if failure is None:
            return process, chosen
        tail, port_is_taken = process.log_tail(), process.port_is_taken()
        process.stop()
        if port_is_taken and attempt < _START_ATTEMPTS:
            continue
        raise ServerUnavailable(
            name,
            reason=f"{failure}; the end of its log:\n{tail}",
            how_to_install="read the log above; the server is installed but does not start",
        )
    raise AssertionError


def free_ports(count: int) -> list[int]:
    """Return different loopback ports that are currently free."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind((HOST, 0))
        return [int(sock.getsockname()[1]) for sock in sockets]


def answers_tcp(port: int) -> bool:
    """Return whether the port accepts connections."""
    try:
        with socket.create_connection((HOST, port), timeout=1.0):
            return True
    except OSError:
        return False


def answers_http(port: int, path: str, *, status: int = 200) -> bool:
    """Return whether a GET of the path returns this status."""
    connection = HTTPConnection(HOST, port, timeout=2.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == status
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _spawn(launch: Launch, home: Path) -> ServerProcess:
    with (home / "server.log").open("wb") as log:
        popen = subprocess.Popen(
            [sys.executable, "-I", "-S", warden.__file__, *map(str, launch.command)],
            cwd=home,
            env={**os.environ, **launch.env},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    process = ServerProcess(
        popen=popen, home=home, leftovers=tuple(launch.leftovers), owner_pid=os.getpid()
    )
    atexit.register(process.stop)
    return process


def _wait_until_ready(
    process: ServerProcess, ready: Callable[[], bool], deadline_s: float
) -> str | None:
    """Return None once the server is ready, or the reason why it failed to start."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        code = process.popen.poll()
        if code is not None:
            return f"it exited with code {code} before it was ready"
        if ready():
            return None
        if process.port_is_taken():
            return "one of its ports was taken"
        time.sleep(_POLL_S)
    return f"it was not ready within {deadline_s:.0f} s"
