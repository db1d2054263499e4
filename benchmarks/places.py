"""Stores to measure on: each a URI with settings, on a server that runs for as long as asked."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from tidelock.lock.config import LockSettings
from tidelock.lock.driver import Lock
from tidelock.store.contract import ObjectStore
from tidelock.store.probe import ensure_proven
from tidelock.store.uri import open_store
from tidelock.testing.servers import S3Server, azurite, fake_gcs, minio, seaweedfs

BUCKET = "tidelock-bench"


@dataclass(frozen=True, slots=True)
class Place:
    """Where objects go. It can be sent to another process."""

    name: str
    root: str
    settings: Mapping[str, object] = field(default_factory=dict)

    def store(self, resource: str) -> ObjectStore:
        """Open the store of a resource."""
        return open_store(f"{self.root}/{resource}", self.settings)

    def lock(self, resource: str) -> Lock:
        """Return a lock with Hudi's default lease; `prove` was called once for all of them."""
        return Lock(self.store(resource), LockSettings.read({}).lease, probe=False)

    def prove(self, resource: str) -> None:
        """Let the store prove that it honours conditions, which costs requests of its own."""
        store = self.store(resource)
        ensure_proven(store)
        store.close()


@contextmanager
def in_memory() -> Iterator[Place]:
    """Objects of this process."""
    yield Place("memory", "memory://bench")


@contextmanager
def in_folder() -> Iterator[Place]:
    """A folder on the disk, each write flushed to it."""
    with tempfile.TemporaryDirectory(prefix="tidelock-bench-") as folder:
        yield Place("local", folder)


def s3_settings(server: S3Server) -> dict[str, object]:
    """Return our settings for a test server."""
    return {
        "tidelock.s3.endpoint": server.endpoint,
        "tidelock.s3.region": server.region,
        "hoodie.aws.access.key": server.access_key,
        "hoodie.aws.secret.key": server.secret_key,
    }


@contextmanager
def on_seaweedfs() -> Iterator[Place]:
    """S3 as SeaweedFS speaks it."""
    with seaweedfs() as server:
        server.create_bucket(BUCKET)
        yield Place("S3 (SeaweedFS)", f"s3://{BUCKET}", s3_settings(server))


@contextmanager
def on_minio() -> Iterator[Place]:
    """S3 as MinIO speaks it."""
    with minio() as server:
        server.create_bucket(BUCKET)
        yield Place("S3 (MinIO)", f"s3://{BUCKET}", s3_settings(server))


@contextmanager
def on_azurite() -> Iterator[Place]:
    """Azure Blob Storage as Azurite speaks it."""
    with azurite() as server:
        server.create_container(BUCKET)
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={server.account};"
            f"AccountKey={server.account_key};BlobEndpoint={server.endpoint}/{server.account};"
        )
        host = f"{BUCKET}@{server.account}.dfs.core.windows.net"
        settings = {"hoodie.write.lock.azure.connection.string": connection}
        yield Place("Azure (Azurite)", f"abfss://{host}", settings)


@contextmanager
def on_fake_gcs() -> Iterator[Place]:
    """Google Cloud Storage as fake-gcs-server speaks it."""
    with fake_gcs() as server:
        server.create_bucket(BUCKET)
        yield Place("GCS (fake)", f"gs://{BUCKET}", {"tidelock.gcs.endpoint": server.endpoint})


Opened = Callable[[], AbstractContextManager[Place]]

ALL: Mapping[str, Opened] = {
    "memory": in_memory,
    "local": in_folder,
    "S3 (SeaweedFS)": on_seaweedfs,
    "S3 (MinIO)": on_minio,
    "Azure (Azurite)": on_azurite,
    "GCS (fake)": on_fake_gcs,
}
BETWEEN_PROCESSES: Mapping[str, Opened] = {
    name: ALL[name] for name in ("local", "S3 (MinIO)", "S3 (SeaweedFS)")
}
