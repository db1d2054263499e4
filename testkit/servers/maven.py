"""Java libraries by their Maven coordinates, with their dependencies."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from testkit.servers.cache import Installer, ToolCache
from tidelock.core.errors import InvalidInput

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


@dataclass(frozen=True, slots=True)
class Coordinates:
    """One artifact; `excluded` are dependencies to omit, as `group:artifact`."""

    group: str
    artifact: str
    version: str
    excluded: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Coordinates:
        """Parse `group:artifact:version`."""
        match text.split(":"):
            case [group, artifact, version] if group and artifact and version:
                return cls(group, artifact, version)
            case _:
                raise InvalidInput(f"expected group:artifact:version, got {text!r}")

    def __str__(self) -> str:
        """Return the text that `parse` accepts."""
        return f"{self.group}:{self.artifact}:{self.version}"


def fetch_jars(
    coordinates: Sequence[Coordinates], cache: ToolCache | None = None
) -> tuple[Path, ...]:
    """Return the jars of these artifacts and their runtime dependencies, sorted by name.

    Raises: `ServerUnavailable` if `mvn` is missing or an artifact cannot be resolved.
    """
    pom = _pom(coordinates)
    key = _key(pom)
    installer = Installer(
        " ".join(map(str, coordinates)),
        how_to_install="install Maven (`mvn`) and Java 17, with access to Maven Central",
    )

    def install(target: Path) -> None:
        (target / "pom.xml").write_text(pom)
        where = f"-DoutputDirectory={target / 'jars'}"
        flags: list[str | Path] = ["--quiet", "--batch-mode", "--file", target / "pom.xml"]
        # Maven remembers for a day that a registry lacked an artifact; a repetition must ask again.
        flags += ["--update-snapshots"]
        installer.download(["mvn", *flags, _COPY, where, "-DincludeScope=runtime"])

    home = (cache or ToolCache.default()).tool("maven", key, install)
    return tuple(sorted((home / "jars").glob("*.jar")))


def installed_jars(
    coordinates: Sequence[Coordinates], cache: ToolCache | None = None
) -> tuple[Path, ...]:
    """Return the jars if they are installed, else an empty tuple; download nothing."""
    home = (cache or ToolCache.default()).installed("maven", _key(_pom(coordinates)))
    return () if home is None else tuple(sorted((home / "jars").glob("*.jar")))


def _key(pom: str) -> str:
    return hashlib.sha256(pom.encode()).hexdigest()[:16]


def _pom(coordinates: Sequence[Coordinates]) -> str:
    dependencies = "\n".join(_dependency(one) for one in coordinates)
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>testkit</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def _dependency(one: Coordinates) -> str:
    names = _names(one.group, one.artifact)
    excluded = (_names(*pair.split(":")) for pair in one.excluded)
    exclusions = "".join(f"<exclusion>{pair}</exclusion>" for pair in excluded)
    version = f"<version>{escape(one.version)}</version>"
    inner = f"{names}{version}<exclusions>{exclusions}</exclusions>"
    return f"    <dependency>{inner}</dependency>"


def _names(group: str, artifact: str) -> str:
    return f"<groupId>{escape(group)}</groupId><artifactId>{escape(artifact)}</artifactId>"
