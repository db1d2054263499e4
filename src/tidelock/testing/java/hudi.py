"""Hudi's jars and the compiled program that drives them.

The lock provider always is Apache Hudi's, unmodified. It loads the client that talks to S3 by its
class name; that client is in an artefact of its own, which not every mirror of Maven Central
carries. Where it is missing a client of ours stands in, and `Hudi.client` says so.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tidelock.testing.servers.cache import Installer, ToolCache
from tidelock.testing.servers.maven import Coordinates, fetch_jars
from tidelock.testing.servers.unavailable import ServerUnavailable

VERSION = "1.2.1"
_AWS_SDK = "2.29.52"
"""The version that Hudi's own build names."""

_SOURCES = Path(__file__).parent
_PROGRAM = _SOURCES / "HudiWriter.java"
_STAND_IN = _SOURCES / "S3StorageLockClient.java"


def hudi_artifact(artifact: str) -> Coordinates:
    """Name an artefact of Hudi's, without what it asks for: most of that nobody here needs."""
    return Coordinates("org.apache.hudi", artifact, VERSION, excluded=("*:*",))


def _aws(artifact: str) -> Coordinates:
    return Coordinates("software.amazon.awssdk", artifact, _AWS_SDK)


_PROVIDER = (
    hudi_artifact("hudi-client-common"),
    hudi_artifact("hudi-common"),
    hudi_artifact("hudi-io"),
    _aws("s3"),
    Coordinates("com.fasterxml.jackson.core", "jackson-databind", "2.10.0"),
    # Hudi's count of locks that were taken from the dead, which it keeps also with metrics off.
    Coordinates("io.dropwizard.metrics", "metrics-core", "4.1.1"),
    Coordinates("org.slf4j", "slf4j-simple", "1.7.36"),
)
_CLIENT = (hudi_artifact("hudi-aws"), _aws("sts"), _aws("dynamodb"))


@dataclass(frozen=True, slots=True)
class Hudi:
    """What a Java process needs to run Hudi's lock on S3."""

    class_path: tuple[Path, ...]
    client: str
    """Whose S3 client it is, in words."""


def hudi(cache: ToolCache | None = None) -> Hudi:
    """Return Hudi's lock, downloaded and compiled against if need be.

    Raises ServerUnavailable where there is no Java, no Maven, or no way to Hudi's artefacts.
    """
    kept = cache or ToolCache.default()
    try:
        jars = fetch_jars((*_PROVIDER, *_CLIENT), kept)
    except ServerUnavailable:
        jars = fetch_jars(_PROVIDER, kept)
        classes = compiled("hudi-writer", jars, (_PROGRAM, _STAND_IN), kept)
        return Hudi((classes, *jars), f"our S3 client (hudi-aws {VERSION} was not found)")
    classes = compiled("hudi-writer", jars, (_PROGRAM,), kept)
    return Hudi((classes, *jars), "Hudi's S3 client")


def install(cache: ToolCache) -> None:
    """Download and compile ahead of the tests."""
    hudi(cache)


def compiled(
    name: str, jars: tuple[Path, ...], sources: tuple[Path, ...], cache: ToolCache
) -> Path:
    """Return the folder of the classes of a program of ours that runs against these jars."""
    inputs = [jar.name.encode() for jar in jars] + [source.read_bytes() for source in sources]
    key = hashlib.sha256(b"\0".join(inputs)).hexdigest()[:16]
    installer = Installer(f"the Java program {name}", how_to_install="install a JDK of Java 17")

    def build(target: Path) -> None:
        command: list[str | Path] = ["javac", "-nowarn", "--release", "17", "-d", target]
        installer.run([*command, "-cp", ":".join(map(str, jars)), *sources])

    return cache.tool(name, key, build)
