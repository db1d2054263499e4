"""The stores of the benchmarks: a URI with settings, and a running server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from testkit.servers import S3Server, azurite, fake_gcs, minio, seaweedfs
from tidelock.lock.client import Lock
from tidelock.lock.config import LockSettings
from tidelock.storage.contract import ObjectStore
from tidelock.storage.probe import ensure_safe
from tidelock.storage.uri import open_store

BUCKET = "tidelock-bench"


@dataclass(frozen=True, slots=True)
class BenchStore:
    """A store: its URI and settings. It can be sent to another process."""

    name: str
    root: str
    settings: Mapping[str, object] = field(default_factory=dict)

    def store(self, resource: str) -> ObjectStore:
        """Open the store of a resource."""
        return open_store(f"{self.root}/{resource}", self.settings)

    def lock(self, resource: str) -> Lock:
        """Return a lock with Hudi's default lease; call `prove` once before."""
        return Lock(self.store(resource), LockSettings.read({}).lease, probe=False)

    def prove(self, resource: str) -> None:
        """Check that the store honours conditional writes, which sends extra requests."""
        store = self.store(resource)
        ensure_safe(store)
        store.close()


@contextmanager
def in_memory() -> Iterator[BenchStore]:
    """Yield a store in the memory of this process."""
    yield BenchStore("memory", "memory://bench")


@contextmanager
def in_folder() -> Iterator[BenchStore]:
    """Yield a folder on disk; each write is flushed."""
    with tempfile.TemporaryDirectory(prefix="tidelock-bench-") as folder:
        yield BenchStore("local", folder)


def s3_settings(server: S3Server) -> dict[str, object]:
    """Return the settings for a test server."""
    return {
        "tidelock.s3.endpoint": server.endpoint,
        "tidelock.s3.region": server.region,
        "hoodie.aws.access.key": server.access_key,
        "hoodie.aws.secret.key": server.secret_key,
    }


@contextmanager
def on_seaweedfs() -> Iterator[BenchStore]:
    """Yield a bucket on SeaweedFS."""
    with seaweedfs() as server:
        server.create_bucket(BUCKET)
        yield BenchStore("S3 (SeaweedFS)", f"s3://{BUCKET}", s3_settings(server))


@contextmanager
def on_minio() -> Iterator[BenchStore]:
    """Yield a bucket on MinIO."""
    with minio() as server:
        server.create_bucket(BUCKET)
        yield BenchStore("S3 (MinIO)", f"s3://{BUCKET}", s3_settings(server))


@contextmanager
def on_azurite() -> Iterator[BenchStore]:
    """Yield a container on Azurite."""
    with azurite() as server:
        server.create_container(BUCKET)
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={server.account};"
            f"AccountKey={server.account_key};BlobEndpoint={server.endpoint}/{server.account};"
        )
        host = f"{BUCKET}@{server.account}.dfs.core.windows.net"
        settings = {"hoodie.write.lock.azure.connection.string": connection}
        yield BenchStore("Azure (Azurite)", f"abfss://{host}", settings)


@contextmanager
def on_fake_gcs() -> Iterator[BenchStore]:
    """Yield a bucket on fake-gcs-server."""
    with fake_gcs() as server:
        server.create_bucket(BUCKET)
        yield BenchStore("GCS (fake)", f"gs://{BUCKET}", {"tidelock.gcs.endpoint": server.endpoint})


Opened = Callable[[], AbstractContextManager[BenchStore]]

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
