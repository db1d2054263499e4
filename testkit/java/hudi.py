"""Hudi's jars and the compiled program that uses them.

The lock provider is always Apache Hudi's, unmodified. It loads its S3 client by class name from a
separate artifact, which not every mirror of Maven Central has. If it is missing, our own client is
used, and `Hudi.client` says so.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from testkit.servers.cache import Installer, ToolCache
from testkit.servers.maven import Coordinates, fetch_jars, installed_jars
from testkit.servers.unavailable import ServerUnavailable

VERSION = "1.2.1"
_AWS_SDK = "2.29.52"
"""The version of Hudi's own build."""

_SOURCES = Path(__file__).parent
_PROGRAM = (_SOURCES / "HudiWriter.java", _SOURCES / "S3WarmUp.java")
_STAND_IN = _SOURCES / "S3StorageLockClient.java"


def hudi_artifact(artifact: str) -> Coordinates:
    """Return the coordinates of a Hudi artifact without its dependencies; most are not needed."""
    return Coordinates("org.apache.hudi", artifact, VERSION, excluded=("*:*",))


def _aws(artifact: str) -> Coordinates:
    return Coordinates("software.amazon.awssdk", artifact, _AWS_SDK)


_PROVIDER = (
    hudi_artifact("hudi-client-common"),
    hudi_artifact("hudi-common"),
    hudi_artifact("hudi-io"),
    _aws("s3"),
    Coordinates("com.fasterxml.jackson.core", "jackson-databind", "2.10.0"),
    # Hudi counts locks taken over from dead owners, even with metrics disabled.
    Coordinates("io.dropwizard.metrics", "metrics-core", "4.1.1"),
    Coordinates("org.slf4j", "slf4j-simple", "1.7.36"),
)
_CLIENT = (hudi_artifact("hudi-aws"), _aws("sts"), _aws("dynamodb"))


@dataclass(frozen=True, slots=True)
class Hudi:
    """The class path of a Java process that runs Hudi's lock on S3."""

    class_path: tuple[Path, ...]
    client: str
    """A description of the S3 client."""


def hudi(cache: ToolCache | None = None) -> Hudi:
    """Return the class path; download the jars and compile the program if necessary.

    Raises: `ServerUnavailable` without Java or Maven, or if an artifact cannot be downloaded.
    """
    tools = cache or ToolCache.default()
    # An artifact that was not found is not looked up again by each process that needs the lock.
    if installed_jars(_PROVIDER, tools) and not installed_jars((*_PROVIDER, *_CLIENT), tools):
        return _with_own_client(tools)
    return install_hudi(tools)


def install_hudi(tools: ToolCache) -> Hudi:
    """Return the class path; look up again what was not found before. Raises as `hudi`."""
    try:
        jars = fetch_jars((*_PROVIDER, *_CLIENT), tools)
    except ServerUnavailable:
        return _with_own_client(tools)
    classes = compiled("hudi-writer", jars, _PROGRAM, tools)
    return Hudi((classes, *jars), "Hudi's S3 client")


def _with_own_client(tools: ToolCache) -> Hudi:
    jars = fetch_jars(_PROVIDER, tools)
    classes = compiled("hudi-writer", jars, (*_PROGRAM, _STAND_IN), tools)
    return Hudi((classes, *jars), f"our S3 client (hudi-aws {VERSION} was not found)")


def compiled(
    name: str, jars: tuple[Path, ...], sources: tuple[Path, ...], cache: ToolCache
) -> Path:
    """Compile `sources` against `jars`; return the folder of the classes."""
    inputs = [jar.name.encode() for jar in jars] + [source.read_bytes() for source in sources]
    key = hashlib.sha256(b"\0".join(inputs)).hexdigest()[:16]
    installer = Installer(f"the Java program {name}", how_to_install="install a JDK of Java 17")

    def build(target: Path) -> None:
        command: list[str | Path] = ["javac", "-nowarn", "--release", "17", "-d", target]
        installer.run([*command, "-cp", ":".join(map(str, jars)), *sources])

    return cache.tool(name, key, build)
