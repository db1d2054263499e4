"""fake-gcs-server: the JSON API of Google Cloud Storage, in memory.

Guarantees: it honours `ifGenerationMatch` on media and multipart uploads, also in a race.
Does not guarantee: conditions on deletes, which this version ignores; uploads with the XML API,
which it rejects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testkit.servers.cache import ToolCache
from testkit.servers.go import go_program
from testkit.servers.process import HOST, Launch, answers_http, start
from testkit.servers.server import RunningServer, send

VERSION = "v1.56.1"


@dataclass(frozen=True, slots=True)
class GcsServer(RunningServer):
    """A GCS endpoint without credentials."""

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket; it may exist already."""
        reply = send(
            f"{self.endpoint}/storage/v1/b?project=test",
            method="POST",
            headers={"Content-Type": "application/json"},
            body=json.dumps({"name": bucket}).encode(),
        )
        if reply.status not in (200, 409):
            raise AssertionError(
                f"{self.name} did not create bucket {bucket}: {reply.status} {reply.body!r}"
            )


def install(cache: ToolCache) -> Path:
    """Return the `fake-gcs-server` binary. The first build takes minutes."""
    module = "github.com/fsouza/fake-gcs-server"
    return go_program(
        cache, name="fake-gcs-server", module=module, version=VERSION, needs_go=(1, 26)
    )


@contextmanager
def fake_gcs(cache: ToolCache | None = None) -> Iterator[GcsServer]:
    """Run fake-gcs-server for the duration of the block."""
    binary = install(cache or ToolCache.default())

    def plan(_home: Path, ports: Sequence[int]) -> Launch:
        address = [f"-host={HOST}", f"-port={ports[0]}", f"-public-host={HOST}:{ports[0]}"]
        return Launch(
            [binary, "-backend=memory", "-scheme=http", *address, "-log-level=warn"],
            ready=lambda: answers_http(ports[0], "/_internal/healthcheck"),
        )

    process, ports = start("fake-gcs-server", plan, ports=1)
    try:
        yield GcsServer(f"fake-gcs-server {VERSION}", f"http://{HOST}:{ports[0]}", process)
    finally:
        process.stop()
