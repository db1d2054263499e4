"""Kafka, a single broker from its Maven jars, and the jars of Spark's connector to it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidelock.testing.servers.cache import ToolCache
from tidelock.testing.servers.maven import Coordinates, fetch_jars, installed_jars
from tidelock.testing.servers.process import HOST, Launch, answers_tcp, start
from tidelock.testing.servers.server import RunningServer
from tidelock.testing.servers.unavailable import ServerUnavailable

PARTITIONS: Final = 4
"""Partitions of a topic that comes to be by being written to."""

VERSION: Final = "4.1.0"
_BROKER: Final = (
    Coordinates("org.apache.kafka", "kafka_2.13", VERSION),
    Coordinates("org.slf4j", "slf4j-simple", "1.7.36"),
)
_NOTHING_ELSE: Final = ("*:*",)
_CONNECTOR: Final = (
    Coordinates("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.1.1", _NOTHING_ELSE),
    # Mirrors do not all have each release of this part, which only Kerberos needs.
    Coordinates("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", _NOTHING_ELSE),
    Coordinates("org.apache.kafka", "kafka-clients", "3.9.1", _NOTHING_ELSE),
    Coordinates("org.apache.commons", "commons-pool2", "2.12.1", _NOTHING_ELSE),
)


def install(cache: ToolCache) -> tuple[Path, ...]:
    """Return the jars of the broker; those of Spark's connector are fetched with them."""
    connector_jars(cache)
    return fetch_jars(_BROKER, cache)


def connector_jars(cache: ToolCache | None = None) -> tuple[Path, ...]:
    """Return the jars that let Spark read and write topics: a value for `spark.jars`."""
    return fetch_jars(_CONNECTOR, cache)


def installed_connector() -> tuple[Path, ...]:
    """Return those jars if they were fetched before: a session cannot get them later."""
    return installed_jars(_CONNECTOR)


@contextmanager
def kafka(cache: ToolCache | None = None) -> Iterator[RunningServer]:
    """Run one broker that is its own controller for as long as the block lasts."""
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

    process, ports = start("kafka", plan, ports=2, deadline_s=120)
    try:
        yield RunningServer(f"Kafka {VERSION}", f"{HOST}:{ports[0]}", process)
    finally:
        process.stop()


def _serves(home: Path, port: int) -> bool:
    return b"Kafka Server started" in (home / "server.log").read_bytes() and answers_tcp(port)


def _config_file(home: Path, port: int, controller: int) -> Path:
    data = home / "data"
    data.mkdir()
    # What the storage tool would write: a second Java for two lines.
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
