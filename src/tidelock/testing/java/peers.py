"""Other people's locks, in Java processes of their own: Curator's, Amazon's, Hudi's providers."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tidelock.testing.java.hudi import compiled, hudi_artifact
from tidelock.testing.java.writer import HudiWriter
from tidelock.testing.servers.cache import ToolCache
from tidelock.testing.servers.maven import Coordinates, fetch_jars

_SOURCE = Path(__file__).parent / "LockPeer.java"
_NEEDED = (
    # The versions that Hudi's own build names.
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
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@dataclass(frozen=True, slots=True)
class LockPeers:
    """What a Java process needs to run any of these locks."""

    class_path: tuple[Path, ...]


def lock_peers(cache: ToolCache | None = None) -> LockPeers:
    """Return the locks, downloaded and compiled against if need be.

    Raises ServerUnavailable where there is no Java, no Maven, or no way to the artefacts.
    """
    kept = cache or ToolCache.default()
    jars = fetch_jars(_JARS, kept)
    return LockPeers((compiled("lock-peer", jars, (_SOURCE,), kept), *jars))


class LockPeer(HudiWriter):
    """A handle on one of them."""

    def sections(self, count: int, marker: Path) -> None:
        """Begin to do critical sections; `overlaps` waits for their end."""
        self.tell("sections", count, marker)

    def overlaps(self) -> int:
        """Return how many of the sections met somebody else inside."""
        return cast("int", self.answer())


@contextmanager
def lock_peer(peers: LockPeers, *arguments: str) -> Iterator[LockPeer]:
    """Run one of the locks; `arguments` are those of `LockPeer.java`. It holds nothing yet."""
    path = ":".join(map(str, peers.class_path))
    with tempfile.NamedTemporaryFile(prefix="tidelock-java-", suffix=".log") as log:
        process = subprocess.Popen(
            ["java", *_JVM, "-cp", path, "LockPeer", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        peer = LockPeer(process, Path(log.name))
        try:
            peer.answer()
            yield peer
        finally:
            peer.close()
