"""fake-gcs-server: the JSON API of Google Cloud Storage, in memory.

Guarantees: `ifGenerationMatch` on media and multipart uploads is honoured, also in a race.
Does not guarantee: conditions on deletes, which this version ignores; uploads by the XML API, which
it refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidelock.testing.servers.cache import ToolCache
from tidelock.testing.servers.go import go_program
from tidelock.testing.servers.process import HOST, Launch, answers_http, start
from tidelock.testing.servers.server import RunningServer, send

VERSION = "v1.56.1"


@dataclass(frozen=True, slots=True)
class GcsServer(RunningServer):
    """A GCS endpoint that asks for no credentials."""

    def create_bucket(self, bucket: str) -> None:
        """Make a bucket, which may exist already."""
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
    """Run fake-gcs-server for as long as the block lasts."""
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
