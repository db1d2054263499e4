"""The lock service as a process: HTTP on one port, gRPC on another, until a signal ends it."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelock.base.clock import Clock
from tidelock.base.errors import ConfigInvalid, Conflict, MissingExtra
from tidelock.base.ids import IdSource
from tidelock.base.limits import SERVICE_HEADER_BYTES_MAX, STREAMS_MAX
from tidelock.base.metrics import Metrics
from tidelock.lockservice import asking as a
from tidelock.lockservice.auditfile import AuditFile
from tidelock.lockservice.auth import Doorkeeper, Site, is_loopback
from tidelock.lockservice.building import Builder, check_apart
from tidelock.lockservice.grpc import Credentials, GrpcApi
from tidelock.lockservice.health import AppHealth
from tidelock.lockservice.http import HttpApp
from tidelock.lockservice.service import LockService
from tidelock.lockservice.specs import Spec

logger = logging.getLogger(__name__)

_GRACE_S = 5.0
_SILENCE_MS = 5_000


@dataclass(frozen=True, slots=True)
class Serving:
    """How one server is to be run."""

    specs: list[Spec]
    state_uri: str
    door: Doorkeeper
    host: str = "127.0.0.1"
    http_port: int = 3500
    grpc_port: int = 50001
    app_id: str = ""
    tls: Credentials | None = None
    app_health: AppHealth | None = None
    audit_file: Path | None = None
    insecure: bool = False
    names: tuple[str, ...] = ()

    @property
    def site(self) -> Site:
        """The names that clients may use: any, where a token is asked for or `insecure` was."""
        secure = self.tls is not None
        if self.door.asks or not (self.names or is_loopback(self.host)):
            return Site(None, secure=secure)
        return Site.at(self.host, self.names, secure=secure)

    def check(self) -> None:
        """Refuse to be open to the world by mistake.

        Raises: `ConfigInvalid`.
        """
        if is_loopback(self.host) or self.insecure:
            return
        if not self.door.asks:
            raise ConfigInvalid(
                f"{self.host} can be reached from elsewhere, and no API token is asked for",
                hint="give --api-token-file or --principals, or say --insecure",
            )
        if self.tls is None:
            raise ConfigInvalid(
                f"{self.host} can be reached from elsewhere, and tokens would travel in the clear",
                hint="give --tls-cert and --tls-key, or say --insecure",
            )


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a server listens."""

    host: str
    http_port: int
    grpc_port: int


async def serve(
    serving: Serving,
    *,
    clock: Clock,
    ids: IdSource,
    ready: Callable[[Addresses], None],
    stop: asyncio.Event,
) -> None:
    """Serve until `stop` is set; call `ready` once requests are answered.

    Raises: `ConfigInvalid`; `Deposed` when another instance takes the journal over.
    """
    serving.check()
    async with _started(serving, clock, ids) as service:
        grpc_server, grpc_port = GrpcApi(service, serving.door).server(
            f"{serving.host}:{serving.grpc_port}", serving.tls
        )
        listening = _listen(serving.host, serving.http_port)
        app = HttpApp(service, serving.door, serving.site)
        ended = asyncio.Event()
        http_task = asyncio.ensure_future(_serve_http(app, listening, serving.tls, ended))
        await grpc_server.start()
        tasks = [asyncio.ensure_future(_fallen(service, stop))]
        if serving.app_health is not None:
            tasks.append(asyncio.ensure_future(serving.app_health.watch(_teller(service))))
        try:
            ready(Addresses(serving.host, listening.getsockname()[1], grpc_port))
            waits = {asyncio.ensure_future(stop.wait()), http_task}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            service.draining = True
            for task in tasks:
                task.cancel()
            # The locks first: who waits or holds a stream is told why it ends.
            for component in service.components.values():
                await component.cell.stop()
            ended.set()
            await grpc_server.stop(_GRACE_S)
            await asyncio.gather(http_task, *tasks, return_exceptions=True)
        for component in service.components.values():
            fallen = component.cell.fallen
            if isinstance(fallen, Conflict):
                raise fallen


@asynccontextmanager
async def _started(serving: Serving, clock: Clock, ids: IdSource) -> AsyncIterator[LockService]:
    metrics = Metrics()
    audit = AuditFile(serving.audit_file).write if serving.audit_file else None
    builder = Builder(serving.state_uri, clock, ids, metrics, audit)
    components = {spec.name: builder.component(spec) for spec in serving.specs}
    check_apart(components.values())
    with _alone(serving.state_uri):
        try:
            for component in components.values():
                await component.cell.start()
            yield LockService(components, app_id=serving.app_id, metrics=metrics)
        finally:
            for component in components.values():
                component.cell.journal.closing.set()
                component.cell.journal.store.close()


class _alone:  # noqa: N801 - reads as a word
    """Keep a second server away from a local state folder: it would depose the first."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._handle: int | None = None

    def __enter__(self) -> None:
        if "://" in self._uri and not self._uri.startswith("file://"):
            return
        root = Path(self._uri.removeprefix("file://"))
        root.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(root / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise Conflict(
                f"another lock service uses {root}",
                hint="stop it, or give this one another --store",
            ) from None

    def __exit__(self, *error: object) -> None:
        if self._handle is not None:
            os.close(self._handle)


async def _serve_http(
    app: HttpApp, listening: socket.socket, tls: Credentials | None, ended: asyncio.Event
) -> None:
    try:
        from hypercorn.asyncio import serve as serve_asgi
        from hypercorn.config import Config
    except ImportError as error:
        raise MissingExtra(
            "the lock service needs hypercorn", hint="pip install 'tidelock[serve]'"
        ) from error
    config = Config()
    config.bind = [f"fd://{listening.fileno()}"]
    config.accesslog, config.errorlog = None, logging.getLogger("tidelock.lockservice.http")
    config.graceful_timeout = config.shutdown_timeout = _GRACE_S
    config.h2_max_concurrent_streams = STREAMS_MAX
    config.h2_max_header_list_size = SERVICE_HEADER_BYTES_MAX
    config.h11_max_incomplete_size = SERVICE_HEADER_BYTES_MAX
    config.keep_alive_max_requests = 2**31
    config.include_server_header = False
    if tls is not None:
        config.certfile, config.keyfile = str(tls.certificate), str(tls.key)
        if tls.client_ca is not None:
            config.ca_certs, config.verify_mode = str(tls.client_ca), ssl.CERT_REQUIRED
    application: Any = app
    await serve_asgi(application, config, shutdown_trigger=ended.wait, mode="asgi")


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Half-open connections: sent and not acknowledged for this long is gone (V5). Accepted
        # sockets inherit it.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS)
        listening.bind((host, port))
        listening.listen(1_024)
    except OSError as error:
        raise ConfigInvalid(f"HTTP cannot listen on {host}:{port}: {error.strerror}") from error
    listening.settimeout(0)
    return listening


def _teller(service: LockService) -> Callable[[bool], None]:
    def tell(healthy: bool) -> None:  # noqa: FBT001 - a callback
        for component in service.components.values():
            component.cell.submit(a.Health(healthy))

    return tell


async def _fallen(service: LockService, stop: asyncio.Event) -> None:
    """End the server when a component cannot go on: a restart finds everything in the journal."""
    ends = [asyncio.ensure_future(c.cell.ended.wait()) for c in service.components.values()]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
    finally:
        for end in ends:
            end.cancel()


def run(
    serving: Serving, *, clock: Clock, ids: IdSource, ready: Callable[[Addresses], None]
) -> None:
    """Serve until SIGTERM or SIGINT. Raises: what `serve` raises."""

    async def until_signal() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve(serving, clock=clock, ids=ids, ready=ready, stop=stop)

    with suppress(KeyboardInterrupt):
        asyncio.run(until_signal())
