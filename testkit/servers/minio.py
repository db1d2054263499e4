"""MinIO: a second S3 server, built from source if a Go toolchain is available.

Guarantees: it honours conditions on PUT, also in a race; If-Match on a missing object returns 404.
Does not guarantee: conditions on DELETE, which this version ignores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testkit.servers.cache import ToolCache
from testkit.servers.go import go_program
from testkit.servers.process import HOST, Launch, start
from testkit.servers.s3 import ACCESS_KEY, SECRET_KEY, S3Server, accepts_writes

# The last commit of the open repository; its releases have no semantic version.
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"


def install(cache: ToolCache) -> Path:
    """Return the `minio` binary. The first build takes minutes."""
    return go_program(
        cache, name="minio", module="github.com/minio/minio", version=VERSION, needs_go=(1, 24)
    )


@contextmanager
def minio(cache: ToolCache | None = None) -> Iterator[S3Server]:
    """Run MinIO for the duration of the block."""
    binary = install(cache or ToolCache.default())

    def plan(home: Path, ports: Sequence[int]) -> Launch:
        address = ["--address", f"{HOST}:{ports[0]}", "--console-address", f"{HOST}:{ports[1]}"]
        return Launch(
            [binary, "server", *address, "--certs-dir", home / "certs", home / "data"],
            ready=lambda: accepts_writes(ports[0]),
            env={
                "MINIO_ROOT_USER": ACCESS_KEY,
                "MINIO_ROOT_PASSWORD": SECRET_KEY,
                "MINIO_BROWSER": "off",
                "MINIO_UPDATE": "off",
            },
        )

    process, ports = start("minio", plan, ports=2)
    try:
        yield S3Server("MinIO 2026-02-12", f"http://{HOST}:{ports[0]}", process)
    finally:
        process.stop()
