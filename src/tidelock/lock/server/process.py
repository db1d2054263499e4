"""The lock service as a process: HTTP on one port, gRPC on another, until a signal stops it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tidelock.core.clock import Clock
from tidelock.core.errors import Conflict
from tidelock.core.ids import IdSource
from tidelock.core.telemetry import Metrics
from tidelock.lock.server import messages as msg
from tidelock.lock.server.asgi_server import (
    SHUTDOWN_GRACE_S,
    TlsFiles,
    bind_socket,
    check_exposure,
    serve_asgi,
)
from tidelock.lock.server.auth import Authenticator, TrustedHosts, is_loopback
from tidelock.lock.server.component import ComponentBuilder, ComponentSpec, check_separate_journals
from tidelock.lock.server.grpc import GrpcApi
from tidelock.lock.server.health import AppHealth
from tidelock.lock.server.http_app import http_app
from tidelock.lock.server.journal import AuditFile
from tidelock.lock.server.service import LockService


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The settings of one lock server."""

    specs: list[ComponentSpec]
    state_uri: str
    authenticator: Authenticator
    host: str = "127.0.0.1"
    http_port: int = 3500
    grpc_port: int = 50001
    app_id: str = ""
    tls: TlsFiles | None = None
    app_health: AppHealth | None = None
    audit_file: Path | None = None
    insecure: bool = False
    names: tuple[str, ...] = ()

    @property
    def trusted_hosts(self) -> TrustedHosts:
        """The host names that clients may use: any, where a token is required or `insecure` set."""
        secure = self.tls is not None
        if self.authenticator.requires_token or not (self.names or is_loopback(self.host)):
            return TrustedHosts(None, secure=secure)
        return TrustedHosts.at(self.host, self.names, secure=secure)

    def check(self) -> None:
        """Refuse a public address without token and TLS. Raises: `ConfigInvalid`."""
        if not self.insecure:
            check_exposure(
                self.host,
                requires_token=self.authenticator.requires_token,
                tls=self.tls,
                hint="--api-token-file or --principals",
            )


@dataclass(frozen=True, slots=True)
class BoundAddresses:
    """The addresses that a server listens on."""

    host: str
    http_port: int
    grpc_port: int


async def serve(
    config: ServerConfig,
    *,
    clock: Clock,
    ids: IdSource,
    ready: Callable[[BoundAddresses], None],
    stop: asyncio.Event,
) -> None:
    """Serve until `stop` is set; call `ready` once requests are answered.

    Raises: `ConfigInvalid`; `InstanceFenced` when another instance takes over the journal.
    """
    config.check()
    async with _started(config, clock, ids) as service:
        grpc_server, grpc_port = GrpcApi(service, config.authenticator).server(
            f"{config.host}:{config.grpc_port}", config.tls
        )
        listening = bind_socket(config.host, config.http_port)
        http_port = listening.getsockname()[1]
        app = http_app(service, config.authenticator, config.trusted_hosts)
        stop_http = asyncio.Event()
        http_task = asyncio.ensure_future(serve_asgi(app, listening, config.tls, stop_http))
        await grpc_server.start()
        tasks = [asyncio.ensure_future(_stop_on_failure(service, stop))]
        if config.app_health is not None:
            watching = config.app_health.watch(_health_listener(service))
            tasks.append(asyncio.ensure_future(watching))
        try:
            ready(BoundAddresses(config.host, http_port, grpc_port))
            waits = {asyncio.ensure_future(stop.wait()), http_task}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            service.draining = True
            for task in tasks:
                task.cancel()
            # The locks first: waiting requests and streams are told why they end.
            for component in service.components.values():
                await component.shard.stop()
            stop_http.set()
            await grpc_server.stop(SHUTDOWN_GRACE_S)
            await asyncio.gather(http_task, *tasks, return_exceptions=True)
        for component in service.components.values():
            failure = component.shard.failure
            if isinstance(failure, Conflict):
                raise failure


@asynccontextmanager
async def _started(config: ServerConfig, clock: Clock, ids: IdSource) -> AsyncIterator[LockService]:
    metrics = Metrics()
    audit = AuditFile(config.audit_file).write if config.audit_file else None
    builder = ComponentBuilder(config.state_uri, clock, ids, metrics, audit)
    components = {spec.name: builder.component(spec) for spec in config.specs}
    check_separate_journals(components.values())
    with _exclusive_state_folder(config.state_uri):
        try:
            for component in components.values():
                await component.shard.start()
            yield LockService(components, app_id=config.app_id, metrics=metrics)
        finally:
            for component in components.values():
                component.shard.journal.closing.set()
                component.shard.journal.store.close()


@contextmanager
def _exclusive_state_folder(uri: str) -> Iterator[None]:
    """Lock a local state folder: a second server on it would fence the first."""
    if "://" in uri and not uri.startswith("file://"):
        yield
        return
    root = Path(uri.removeprefix("file://"))
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict(
                f"{root}: another lock service uses this folder",
                hint="stop it, or pass another --store",
            ) from None
        yield
    finally:
        os.close(handle)


def _health_listener(service: LockService) -> Callable[[bool], None]:
    def on_change(healthy: bool) -> None:  # noqa: FBT001 - a callback
        for component in service.components.values():
            component.shard.submit(msg.HealthChanged(healthy))

    return on_change


async def _stop_on_failure(service: LockService, stop: asyncio.Event) -> None:
    """Stop the server when a component fails: a restart recovers everything from the journal."""
    ends = [asyncio.ensure_future(c.shard.stopped.wait()) for c in service.components.values()]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
    finally:
        for end in ends:
            end.cancel()


def run(
    config: ServerConfig, *, clock: Clock, ids: IdSource, ready: Callable[[BoundAddresses], None]
) -> None:
    """Serve until SIGTERM or SIGINT. Raises: what `serve` raises."""

    async def until_signal() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve(config, clock=clock, ids=ids, ready=ready, stop=stop)

    with suppress(KeyboardInterrupt):
        asyncio.run(until_signal())
