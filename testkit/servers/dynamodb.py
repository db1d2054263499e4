"""DynamoDB Local, Amazon's DynamoDB for one machine: jars from Maven, on the installed Java."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testkit.servers.cache import ToolCache
from testkit.servers.maven import Coordinates, fetch_jars
from testkit.servers.process import HOST, Launch, answers_http, start
from testkit.servers.server import RunningServer
from testkit.servers.unavailable import ServerUnavailable

VERSION = "2.5.3"
_LOCAL = Coordinates("com.amazonaws", "DynamoDBLocal", VERSION)
_MAIN = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
# It returns 400 for a request without a body once it is ready.
_READY_STATUS = 400


def install(cache: ToolCache) -> tuple[Path, ...]:
    """Return the jars; the native SQLite library is in the same directory."""
    return fetch_jars([_LOCAL], cache)


@contextmanager
def dynamodb(cache: ToolCache | None = None) -> Iterator[RunningServer]:
    """Run DynamoDB Local, in memory, for the duration of the block."""
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
            # It is loaded by a name without the version.
            (native / f"{library.name.rpartition('-')[0]}.so").symlink_to(library)
        small = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        options = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(ports[0])]
        path = ":".join(map(str, jars))
        library_path = f"-Djava.library.path={native}"
        return Launch(
            [java, *small, library_path, "-cp", path, _MAIN, *options],
            ready=lambda: answers_http(ports[0], "/", status=_READY_STATUS),
        )

    process, ports = start("dynamodb", plan, ports=1)
    try:
        yield RunningServer(f"DynamoDB Local {VERSION}", f"http://{HOST}:{ports[0]}", process)
    finally:
        process.stop()
