"""Every implementation of the store contract, each as a location where tests open stores."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from testkit.servers.azurite import AzureServer
from testkit.servers.fake_gcs import GcsServer
from testkit.servers.s3 import S3Server
from tidelock.storage.azure import AzureStore
from tidelock.storage.contract import ObjectStore
from tidelock.storage.gcs import GcsStore
from tidelock.storage.local import LocalStore
from tidelock.storage.memory import MemoryStore
from tidelock.storage.s3 import S3Store

BUCKET = "tidelock-contract"
ABSENT = "tidelock-absent"

Observe = Callable[[str], None] | None


class Open(Protocol):
    """Opens another client of the same location."""

    def __call__(self, *, observe: Observe = None, **options: Any) -> ObjectStore:
        """Return a store; `options` are keyword arguments of its class."""
        ...


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A location used by no other test, for any number of clients."""

    open: Open
    open_absent: Callable[[], ObjectStore] | None = None
    open_denied: Callable[[], ObjectStore] | None = None


def memory_location() -> StoreLocation:
    """Return memory of this process; all clients are the same object."""
    watchers: list[Callable[[str], None]] = []

    def tell(verb: str) -> None:
        for watch in watchers:
            watch(verb)

    store = MemoryStore(observe=tell)

    def open_memory(*, observe: Observe = None, **options: Any) -> ObjectStore:
        assert not options
        if observe is not None:
            watchers.append(observe)
        return store

    return StoreLocation(open_memory)


def local_location(folder: Path) -> StoreLocation:
    """Return a folder. Nothing is synced to disk, since these tests do not simulate power loss."""

    def open_local(*, observe: Observe = None, **options: Any) -> ObjectStore:
        return LocalStore(folder, fsync=False, observe=observe, **options)

    return StoreLocation(open_local)


def s3_settings(server: S3Server, *, endpoint: str | None = None) -> dict[str, object]:
    """Return the settings for `server`, reached at `endpoint` if that is a proxy."""
    return {
        "tidelock.s3.endpoint": endpoint or server.endpoint,
        "tidelock.s3.region": server.region,
        "hoodie.aws.access.key": server.access_key,
        "hoodie.aws.secret.key": server.secret_key,
    }


def s3_location(server: S3Server) -> StoreLocation:
    """Return a prefix in a bucket of an S3 server."""
    server.create_bucket(BUCKET)
    settings = s3_settings(server)
    prefix = uuid.uuid4().hex

    def open_s3(*, observe: Observe = None, **options: Any) -> ObjectStore:
        return S3Store(BUCKET, prefix, settings, observe=observe, **options)

    return StoreLocation(
        open_s3,
        open_absent=lambda: S3Store(ABSENT, prefix, settings),
        open_denied=lambda: S3Store(
            BUCKET, prefix, {**settings, "hoodie.aws.secret.key": "not the secret"}
        ),
    )


def gcs_location(server: GcsServer) -> StoreLocation:
    """Return a prefix in a bucket of a GCS server without authentication."""
    server.create_bucket(BUCKET)
    settings = {"tidelock.gcs.endpoint": server.endpoint}
    prefix = uuid.uuid4().hex

    def open_gcs(*, observe: Observe = None, **options: Any) -> ObjectStore:
        return GcsStore(BUCKET, prefix, settings, observe=observe, **options)

    return StoreLocation(open_gcs, open_absent=lambda: GcsStore(ABSENT, prefix, settings))


def azure_settings(server: AzureServer, *, endpoint: str | None = None) -> dict[str, object]:
    """Return the settings for `server`, reached at `endpoint` if that is a proxy."""
    return {"hoodie.write.lock.azure.connection.string": _connection(server, endpoint=endpoint)}


def azure_location(server: AzureServer) -> StoreLocation:
    """Return a prefix in a container of an Azure server."""
    server.create_container(BUCKET)
    settings = azure_settings(server)
    wrong = base64.b64encode(b"not the key").decode()
    refused = {"hoodie.write.lock.azure.connection.string": _connection(server, key=wrong)}
    prefix = uuid.uuid4().hex

    def open_azure(*, observe: Observe = None, **options: Any) -> ObjectStore:
        return AzureStore(server.account, BUCKET, prefix, settings, observe=observe, **options)

    return StoreLocation(
        open_azure,
        open_absent=lambda: AzureStore(server.account, ABSENT, prefix, settings),
        open_denied=lambda: AzureStore(server.account, BUCKET, prefix, refused),
    )


def _connection(server: AzureServer, *, endpoint: str | None = None, key: str = "") -> str:
    url = f"{endpoint or server.endpoint}/{server.account}"
    return (
        f"DefaultEndpointsProtocol=http;AccountName={server.account};"
        f"AccountKey={key or server.account_key};BlobEndpoint={url};"
    )


Make = Callable[[pytest.FixtureRequest], StoreLocation]

EMBEDDED: Mapping[str, Make] = {
    "memory": lambda request: memory_location(),
    "local": lambda request: local_location(request.getfixturevalue("tmp_path")),
}
CLOUDS: Mapping[str, Make] = {
    "s3-seaweedfs": lambda request: s3_location(request.getfixturevalue("seaweedfs_server")),
    "s3-minio": lambda request: s3_location(request.getfixturevalue("minio_server")),
    "gcs-fake": lambda request: gcs_location(request.getfixturevalue("fake_gcs_server")),
    "azure-azurite": lambda request: azure_location(request.getfixturevalue("azurite_server")),
}
ALL: Mapping[str, Make] = {**EMBEDDED, **CLOUDS}
# fake-gcs-server accepts any credentials.
GUARDED: Mapping[str, Make] = {name: CLOUDS[name] for name in CLOUDS if name != "gcs-fake"}

DEVIATIONS: Mapping[str, str] = {
    "test_list_orders_a_folder_by_the_slash_after_its_name[s3-seaweedfs]": (
        "SeaweedFS lists folder by folder: a/b comes before a-b"
    ),
    "test_list_orders_non_bmp_characters_by_their_bytes[azure-azurite]": (
        "Azurite orders keys by UTF-16 units"
    ),
    "test_key_with_unusual_characters_is_preserved[s3-seaweedfs-back\\\\slash]": (
        "SeaweedFS takes a backslash for a slash"
    ),
    "test_key_with_unusual_characters_is_preserved[azure-azurite-back\\\\slash]": (
        "Azure takes a backslash for a slash"
    ),
}
"""Tests that must fail because a test server differs from the real service."""

RARE_DEVIATIONS: Mapping[str, str] = {
    "test_one_of_many_uploads_of_a_key_succeeds[s3-seaweedfs-large]": (
        "SeaweedFS tests the condition of a multipart upload before it joins the parts"
    ),
}
"""Tests that may fail because a test server differs from the real service in some races."""
