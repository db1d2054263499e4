"""DynamoDB Local: Amazon's own DynamoDB for one machine, from Maven, on this machine's Java."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidelock.testing.servers.cache import ToolCache
from tidelock.testing.servers.maven import Coordinates, fetch_jars
from tidelock.testing.servers.process import HOST, Launch, answers_http, start
from tidelock.testing.servers.server import RunningServer
from tidelock.testing.servers.unavailable import ServerUnavailable

VERSION = "2.5.3"
_LOCAL = Coordinates("com.amazonaws", "DynamoDBLocal", VERSION)
_MAIN = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
# It answers 400 to a request without a body: that is how a browser is told that it is there.
_GREETING = 400


def install(cache: ToolCache) -> tuple[Path, ...]:
    """Return the jars. The native library of its memory lies beside them."""
    return fetch_jars([_LOCAL], cache)


@contextmanager
def dynamodb(cache: ToolCache | None = None) -> Iterator[RunningServer]:
    """Run DynamoDB Local, in memory, for as long as the block lasts."""
    java = shutil.which("java")
    if java is None:
        raise ServerUnavailable(
            "DynamoDB Local", reason="there is no `java` on PATH", how_to_install="install Java 17"
        )
    jars = install(cache or ToolCache.default())

    def plan(home: Path, ports: Sequence[int]) -> Launch:
        native = home / "native"
        native.mkdir()
        for library in jars[0].parent.glob("libsqlite4java-linux-*.so"):
            # The name by which it is looked for has no version in it.
            (native / f"{library.name.rpartition('-')[0]}.so").symlink_to(library)
        small = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        options = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(ports[0])]
        path = ":".join(map(str, jars))
        library_path = f"-Djava.library.path={native}"
        return Launch(
            [java, *small, library_path, "-cp", path, _MAIN, *options],
            ready=lambda: answers_http(ports[0], "/", status=_GREETING),
        )

    process, ports = start("dynamodb", plan, ports=1)
    try:
        yield RunningServer(f"DynamoDB Local {VERSION}", f"http://{HOST}:{ports[0]}", process)
    finally:
        process.stop()
