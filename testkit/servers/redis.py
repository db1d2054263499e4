"""Redis, from Debian's package."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testkit.servers.cache import ToolCache
from testkit.servers.debian import unpacked_packages
from testkit.servers.process import HOST, Launch, start
from testkit.servers.server import RunningServer


def install(cache: ToolCache) -> Path:
    """Return the directory with Redis and the libraries it needs."""
    return unpacked_packages(
        cache, name="redis", packages=["redis-server", "redis-tools"], with_dependencies=True
    )


@contextmanager
def redis(cache: ToolCache | None = None) -> Iterator[RunningServer]:
    """Run Redis for the duration of the block."""
    root = install(cache or ToolCache.default())
    libraries = sorted({str(path.parent) for path in root.glob("usr/lib/**/*.so*")})

    def plan(home: Path, ports: Sequence[int]) -> Launch:
        address = ["--bind", HOST, "--port", str(ports[0])]
        return Launch(
            [root / "usr/bin/redis-server", *address, "--dir", home, "--save", ""],
            ready=lambda: _answers_ping(ports[0]),
            env={"LD_LIBRARY_PATH": ":".join(libraries)},
        )

    process, ports = start("redis", plan, ports=1)
    try:
        yield RunningServer("Redis", f"{HOST}:{ports[0]}", process)
    finally:
        process.stop()


def _answers_ping(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
