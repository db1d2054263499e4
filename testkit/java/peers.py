"""Locks of other projects in Java processes: Curator, Amazon's DynamoDB lock, Hudi's providers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from testkit.java.hudi import compiled, hudi_artifact
from testkit.java.process import JVM_OPTIONS
from testkit.java.writer import HudiWriter
from testkit.servers.cache import ToolCache
from testkit.servers.maven import Coordinates, fetch_jars

_SOURCE = Path(__file__).parent / "LockPeer.java"
_NEEDED = (
    # The versions of Hudi's own build.
    "org.apache.curator:curator-recipes:2.7.1",
    "com.amazonaws:dynamodb-lock-client:1.2.0",
    "org.apache.hadoop:hadoop-client-api:3.3.6",
    "org.apache.hadoop:hadoop-client-runtime:3.3.6",
    "com.fasterxml.jackson.core:jackson-databind:2.15.2",
    "com.fasterxml.jackson.datatype:jackson-datatype-jsr310:2.15.2",
    "com.fasterxml.jackson.module:jackson-module-afterburner:2.15.2",
    "com.github.ben-manes.caffeine:caffeine:2.9.1",
    "io.dropwizard.metrics:metrics-core:4.1.1",
    "org.apache.avro:avro:1.11.4",
    "org.lz4:lz4-java:1.8.0",
)
_JARS = (
    hudi_artifact("hudi-client-common"),
    hudi_artifact("hudi-common"),
    hudi_artifact("hudi-hadoop-common"),
    hudi_artifact("hudi-io"),
    *map(Coordinates.parse, _NEEDED),
)


@dataclass(frozen=True, slots=True)
class LockPeers:
    """The class path of a Java process that runs any of these locks."""

    class_path: tuple[Path, ...]


def lock_peers(cache: ToolCache | None = None) -> LockPeers:
    """Return the class path; download the jars and compile the program if necessary.

    Raises: `ServerUnavailable` without Java or Maven, or if an artifact cannot be downloaded.
    """
    tools = cache or ToolCache.default()
    jars = fetch_jars(_JARS, tools)
    return LockPeers((compiled("lock-peer", jars, (_SOURCE,), tools), *jars))


class LockPeer(HudiWriter):
    """A running process with one of these locks."""

    def sections(self, count: int, marker: Path) -> None:
        """Start to run critical sections; `overlaps` waits for their end."""
        self.start_command("sections", count, marker)

    def overlaps(self) -> int:
        """Return how many of the sections overlapped with another process."""
        return cast("int", self.receive())


@contextmanager
def lock_peer(peers: LockPeers, *arguments: str) -> Iterator[LockPeer]:
    """Run one of the locks; `arguments` are those of `LockPeer.java`. It is not held yet."""
    path = ":".join(map(str, peers.class_path))
    command = ["java", "-Xmx256m", *JVM_OPTIONS, "-cp", path, "LockPeer", *arguments]
    with (
        tempfile.TemporaryDirectory(prefix="tidelock-java-") as folder,
        LockPeer.run(command, Path(folder)) as peer,
    ):
        yield peer
