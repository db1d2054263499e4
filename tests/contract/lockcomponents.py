"""Every type of lock store that the lock service supports, as Dapr component files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.lockserver import HOST, ServiceProcess
from testkit.proxy import TcpProxy
from testkit.servers import KubernetesServer, RunningServer, S3Server
from tests.contract.lockbackends import POLLING, RENEW_MS, Backend
from tests.contract.stores import BUCKET, s3_settings
from tests.integration.lock_service import Http
from tidelock.lock.provider import LockProvider
from tidelock.lock.providers.backend import LeaseTerms
from tidelock.lock.providers.leased import LeasedProvider
from tidelock.lock.server.client import ServiceAddress, ServiceBackend

STORE = "lockstore"

Metadata = Mapping[str, str]
Make = Callable[[pytest.FixtureRequest, Path], tuple[str, Metadata]]


def component_text(kind: str, metadata: Metadata, *, name: str = STORE) -> str:
    """Return a component file. JSON is valid YAML."""
    document = {
        "apiVersion": "dapr.io/v1alpha1",
        "kind": "Component",
        "metadata": {"name": name},
        "spec": {
            "type": kind,
            "version": "v1",
            "metadata": [{"name": key, "value": value} for key, value in metadata.items()],
        },
    }
    return json.dumps(document)


def _server(request: pytest.FixtureRequest, name: str) -> RunningServer:
    server: RunningServer = request.getfixturevalue(f"{name}_server")
    return server


def _redis(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Metadata]:
    del folder
    server = _server(request, "redis")
    return "lock.redis", {"redisHost": f"{server.host}:{server.port}", "redisPassword": ""}


def _etcd(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Metadata]:
    del folder
    return "lock.etcd", {"endpoints": _server(request, "etcd").endpoint}


def _zookeeper(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Metadata]:
    del folder
    return "lock.zookeeper", {"url": _server(request, "zookeeper").endpoint, "path": "/locks"}


def _dynamodb(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Metadata]:
    del folder
    return "lock.dynamodb", {
        "hoodie.write.lock.dynamodb.endpoint_url": _server(request, "dynamodb").endpoint,
        "region": "us-east-1",
        "hoodie.aws.access.key": "tidelock",
        "hoodie.aws.secret.key": "tidelock",
    }


def _hive(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Metadata]:
    del folder
    server = _server(request, "hive")
    metadata = {"url": f"thrift://{server.host}:{server.port}"}
    return "lock.hive", metadata | {"tidelock.hive.txn.timeout.ms": "300000"}


def _kubernetes(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Metadata]:
    del folder
    server: KubernetesServer = request.getfixturevalue("kubernetes_server")
    return "lock.kubernetes", {
        "url": server.endpoint,
        "namespace": "default",
        "tidelock.kubernetes.ca.file": str(server.ca_file),
        "tidelock.kubernetes.token.file": str(server.token_file),
    }


def _s3(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Metadata]:
    del folder
    server: S3Server = request.getfixturevalue("seaweedfs_server")
    server.create_bucket(BUCKET)
    settings = {name: str(value) for name, value in s3_settings(server).items()}
    return "lock.tidelock", {"url": f"s3://{BUCKET}/{uuid.uuid4().hex}", **settings}


def _local(kind: str) -> Make:
    def make(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Metadata]:
        del request
        return f"lock.{kind}", {"url": str(folder / kind)}

    return make


COMPONENTS: Mapping[str, Make] = {
    "tidelock-local": _local("tidelock"),
    "tidelock-s3-seaweedfs": _s3,
    "storage-local": _local("storage"),
    "statestore-local": _local("statestore"),
    "filesystem": _local("filesystem"),
    "inprocess": lambda request, folder: ("lock.inprocess", {}),
    "redis": _redis,
    "etcd": _etcd,
    "zookeeper": _zookeeper,
    "dynamodb": _dynamodb,
    "hive": _hive,
    "kubernetes": _kubernetes,
}


def service_backend(request: pytest.FixtureRequest, lease_ms: int) -> Backend:
    """Return a lock of a lock service, through its client."""
    service: ServiceProcess = request.getfixturevalue("lock_service")
    proxy = TcpProxy(HOST, service.http_port)
    request.addfinalizer(proxy.stop)
    resource = uuid.uuid4().hex
    outside = Http(service.url)
    request.addfinalizer(outside.close)

    def open_client() -> LockProvider:
        address = ServiceAddress(f"http://{HOST}:{proxy.port}")
        backend = ServiceBackend(address, resource, LeaseTerms(lease_ms, RENEW_MS))
        return LeasedProvider(backend, polling=POLLING)

    def steal() -> None:
        assert outside("DELETE", f"/v1.0-alpha2/lock/{resource}", {"force": True}).status == 204
        assert outside.lock(resource, immediate=True, owner="another owner").status == 200

    return Backend(
        open=open_client,
        free_after_ms=lease_ms,
        steal=steal,
        proxy=proxy,
        grant_marker=b'"immediate"',
    )


@contextmanager
def serving(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[ServiceProcess]:
    """Yield a lock service with one store of this type, named as in Dapr's tests."""
    type_name, metadata = COMPONENTS[kind](request, folder)
    file = folder / "component.yaml"
    file.write_text(component_text(type_name, metadata))
    args = ["--components", str(file), "--allow-force"]
    service = ServiceProcess(str(folder / "state"), args, log=folder / "serve.log")
    with service:
        yield service
