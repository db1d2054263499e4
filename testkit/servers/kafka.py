"""Kafka: a single broker from its Maven jars, and the jars of Spark's Kafka connector."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from testkit.servers.cache import ToolCache
from testkit.servers.maven import Coordinates, fetch_jars, installed_jars
from testkit.servers.process import HOST, Launch, answers_tcp, start
from testkit.servers.server import RunningServer
from testkit.servers.unavailable import ServerUnavailable

PARTITIONS: Final = 4
"""The number of partitions of an automatically created topic."""

VERSION: Final = "4.1.0"
_BROKER: Final = (
    Coordinates("org.apache.kafka", "kafka_2.13", VERSION),
    Coordinates("org.slf4j", "slf4j-simple", "1.7.36"),
)
_NOTHING_ELSE: Final = ("*:*",)
_CONNECTOR: Final = (
    Coordinates("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.1.1", _NOTHING_ELSE),
    # Only Kerberos needs this artifact, and not all mirrors have every release of it.
    Coordinates("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", _NOTHING_ELSE),
    Coordinates("org.apache.kafka", "kafka-clients", "3.9.1", _NOTHING_ELSE),
    Coordinates("org.apache.commons", "commons-pool2", "2.12.1", _NOTHING_ELSE),
)


def install(cache: ToolCache) -> tuple[Path, ...]:
    """Return the jars of the broker; also download those of Spark's connector."""
    connector_jars(cache)
    return fetch_jars(_BROKER, cache)


def connector_jars(cache: ToolCache | None = None) -> tuple[Path, ...]:
    """Return the jars with which Spark reads and writes topics, for `spark.jars`."""
    return fetch_jars(_CONNECTOR, cache)


def installed_connector() -> tuple[Path, ...]:
    """Return those jars if they are installed: a session cannot add them later."""
    return installed_jars(_CONNECTOR)


@contextmanager
def kafka(cache: ToolCache | None = None) -> Iterator[RunningServer]:
    """Run one broker, which is its own controller, for the duration of the block."""
    java = shutil.which("java")
    if java is None:
        raise ServerUnavailable(
            "kafka", reason="there is no `java` on PATH", how_to_install="install Java 17"
        )
    jars = install(cache or ToolCache.default())

    def plan(home: Path, ports: Sequence[int]) -> Launch:
        config = _config_file(home, *ports)
        small = ["-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command: list[str | Path] = [
            java,
            *small,
            "-cp",
            f"{jars[0].parent}/*",
            "kafka.Kafka",
            config,
        ]
        return Launch(command, ready=lambda: _serves(home, ports[0]))

    process, ports = start("kafka", plan, ports=2)
    try:
        yield RunningServer(f"Kafka {VERSION}", f"{HOST}:{ports[0]}", process)
    finally:
        process.stop()


def _serves(home: Path, port: int) -> bool:
    return b"Kafka Server started" in (home / "server.log").read_bytes() and answers_tcp(port)


def _config_file(home: Path, port: int, controller: int) -> Path:
    data = home / "data"
    data.mkdir()
    # The storage tool would write the same two lines, but needs another JVM.
    identity = {"version": "1", "cluster.id": "tidelock-tests", "node.id": "1"}
    _write(data / "meta.properties", identity)
    config = home / "server.properties"
    _write(
        config,
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(data),
            "num.partitions": str(PARTITIONS),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.flush.interval.messages": "9223372036854775807",
        },
    )
    return config


def _write(path: Path, settings: dict[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
