"""ZooKeeper from Debian's packages, on the installed Java."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testkit.servers.cache import ToolCache
from testkit.servers.debian import unpacked_packages
from testkit.servers.process import HOST, Launch, start
from testkit.servers.server import RunningServer
from testkit.servers.unavailable import ServerUnavailable

_SYSTEM_JARS = Path("/usr/share/java")


def install(cache: ToolCache) -> Path:
    """Return the directory with ZooKeeper's jars."""
    return unpacked_packages(
        cache, name="zookeeper", packages=["libzookeeper-java"], with_dependencies=True
    )


@contextmanager
def zookeeper(cache: ToolCache | None = None) -> Iterator[RunningServer]:
    """Run a single ZooKeeper for the duration of the block."""
    java = shutil.which("java")
    if java is None:
        raise ServerUnavailable(
            "zookeeper", reason="there is no `java` on PATH", how_to_install="install Java 17"
        )
    root = install(cache or ToolCache.default())

    def plan(home: Path, ports: Sequence[int]) -> Launch:
        # Jars that are installed on the system were not downloaded.
        classpath = f"{root}{_SYSTEM_JARS}/*:{_SYSTEM_JARS}/*"
        small = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        config = _config_file(home, ports[0])
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return Launch(
            [java, *small, *_settings(), "-cp", classpath, main, config],
            ready=lambda: _answers_ruok(ports[0]),
        )

    process, ports = start("zookeeper", plan, ports=1)
    try:
        yield RunningServer("ZooKeeper", f"{HOST}:{ports[0]}", process)
    finally:
        process.stop()


def _settings() -> list[str]:
    off = ["zookeeper.admin.enableServer=false", "zookeeper.jmx.log4j.disable=true"]
    return [f"-D{setting}" for setting in off]


def _config_file(home: Path, port: int) -> Path:
    config = home / "zoo.cfg"
    lines = [f"dataDir={home / 'data'}", f"clientPort={port}", f"clientPortAddress={HOST}"]
    lines += ["tickTime=500", "maxClientCnxns=0", "4lw.commands.whitelist=ruok"]
    config.write_text("\n".join(lines) + "\n")
    return config


def _answers_ruok(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            connection.sendall(b"ruok")
            return connection.recv(16) == b"imok"
    except OSError:
        return False
