"""The gRPC API of the lock service: Dapr's alpha1 methods, and both options of alpha2."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio

from tidelock.core.errors import ConfigInvalid, TidelockError
from tidelock.core.limits import (
    REQUESTS_PENDING_MAX,
    SERVICE_BODY_BYTES_MAX,
    SERVICE_HEADER_BYTES_MAX,
    STREAMS_MAX,
)
from tidelock.lock.server import grpc_messages
from tidelock.lock.server.asgi_server import TlsFiles
from tidelock.lock.server.auth import TOKEN_HEADER, Authenticator, Principal
from tidelock.lock.server.component import LockResponse
from tidelock.lock.server.errors import DaprError, error_status
from tidelock.lock.server.service import LockOptions, LockService
from tidelock.lock.server.stream import Acquired, Ping, StreamedEvent, event_stream, lock_stream

logger = logging.getLogger(__name__)

DAPR = "dapr.proto.runtime.v1.Dapr"
PACKAGE = "tidelock.lockservice.v1alpha2"
LOCKS = f"{PACKAGE}.Locks"
STREAM_LOCKS = f"{PACKAGE}.StreamLocks"

Context = Any
Unary = Callable[[Principal, Any, Context], Awaitable[Any]]
Streaming = Callable[[Principal, Any], AsyncGenerator[Any, None]]

_CALLS_MAX = STREAMS_MAX + REQUESTS_PENDING_MAX

OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", SERVICE_BODY_BYTES_MAX),
    ("grpc.max_metadata_size", SERVICE_HEADER_BYTES_MAX),
    # V5: a client that does not answer pings is disconnected, with its streams. The timeout allows
    # for busy clients, because gRPC answers pings from the client process.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.so_reuseport", 0),
    # V7: by default gRPC drops calls at random, as CANCELLED, when a thousand arrive at once. The
    # service counts calls itself and refuses them with a reason.
    ("grpc.server.max_pending_requests", _CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", _CALLS_MAX),
]


@dataclass(slots=True)
class GrpcApi:
    """The gRPC methods of one service."""

    service: LockService
    authenticator: Authenticator

    def server(self, address: str, tls: TlsFiles | None) -> tuple[Any, int]:
        """Return a server that is bound to `address` but not started, and its port."""
        server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=_CALLS_MAX)
        for name, methods in self._methods().items():
            server.add_generic_rpc_handlers((_handlers(name, methods, self),))
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, _server_credentials(tls))
        if port == 0:
            raise ConfigInvalid(
                f"cannot listen for gRPC on {address}",
                hint="choose another port, or 0 for any free one",
            )
        return server, int(port)

    def _methods(self) -> dict[str, dict[str, Unary | Streaming]]:
        return {
            DAPR: {"TryLockAlpha1": self._try_lock_alpha1, "UnlockAlpha1": self._unlock_alpha1},
            LOCKS: {
                "Lock": self._lock,
                "Unlock": self._unlock,
                "ForceUnlock": self._force_unlock,
                "Renew": self._renew,
                "Status": self._status,
                "Events": self._events,
            },
            STREAM_LOCKS: {"Lock": self._lock_stream, "ForceUnlock": self._force_unlock},
        }

    def authenticate(self, context: Context) -> Principal:
        metadata = dict(context.invocation_metadata() or ())
        bearer = str(metadata.get("authorization", "")).removeprefix("Bearer ").strip()
        token = str(metadata.get(TOKEN_HEADER, "")) or bearer
        return self.authenticator.authenticate(token, _address(context.peer()))

    async def _try_lock_alpha1(self, principal: Principal, request: Any, context: Context) -> Any:
        success = await self.service.try_lock_alpha1(
            principal,
            request.store_name,
            request.resource_id,
            request.lock_owner,
            request.expiry_in_seconds,
        )
        context.set_trailing_metadata((("deprecation", "true"),))
        return _message("dapr.proto.runtime.v1.TryLockResponse", success=success)

    async def _unlock_alpha1(self, principal: Principal, request: Any, context: Context) -> Any:
        status = await self.service.unlock_alpha1(
            principal, request.store_name, request.resource_id, request.lock_owner
        )
        context.set_trailing_metadata((("deprecation", "true"),))
        return _message("dapr.proto.runtime.v1.UnlockResponse", status=status)

    async def _lock(self, principal: Principal, request: Any, _context: Context) -> Any:
        response = await self.service.lock(principal, _lock_options(request))
        return _own_message("LockResponse", **_grant_fields(response))

    async def _unlock(self, principal: Principal, request: Any, _context: Context) -> Any:
        await self.service.unlock(
            principal, request.store_name, request.resource_id, request.lock_id, request.request_id
        )
        return _own_message("UnlockResponse")

    async def _force_unlock(self, principal: Principal, request: Any, _context: Context) -> Any:
        await self.service.force_unlock(principal, request.store_name, request.resource_id)
        return _own_message("ForceUnlockResponse")

    async def _renew(self, principal: Principal, request: Any, _context: Context) -> Any:
        response = await self.service.renew(
            principal,
            request.store_name,
            request.resource_id,
            request.lock_id,
            _ms(request, "ttl") or 0,
        )
        return _own_message("LockResponse", **_grant_fields(response))

    async def _status(self, principal: Principal, request: Any, _context: Context) -> Any:
        status = await self.service.status(principal, request.store_name, request.resource_id)
        fields: dict[str, Any] = {"waiters": status.waiters, "cursor": status.number}
        if status.granted is not None:
            fields |= {
                "locked": True,
                "owner": status.granted.owner,
                "principal": status.granted.principal,
                "token": status.granted.token,
                "mode": status.granted.mode.value,
                "ttl": grpc_messages.duration(status.granted.ttl_ms),
                "since_epoch_ms": status.since_epoch_ms,
            }
            if status.expires_in_ms is not None:
                fields["expires_in"] = grpc_messages.duration(status.expires_in_ms)
        return _own_message("StatusResponse", **fields)

    async def _lock_stream(self, principal: Principal, request: Any) -> AsyncGenerator[Any, None]:
        source = lock_stream(self.service, principal, _lock_options(request))
        async with aclosing(source) as messages:
            async for message in messages:
                yield _stream_message("LockServerStream", message)

    async def _events(self, principal: Principal, request: Any) -> AsyncGenerator[Any, None]:
        source = event_stream(
            self.service,
            principal,
            store=request.store_name,
            after=request.after if request.HasField("after") else None,
            resource_id=request.resource_id,
        )
        async with aclosing(source) as messages:
            async for message in messages:
                yield _stream_message("EventsServerStream", message)


def _server_credentials(tls: TlsFiles) -> Any:
    """Return credentials that read the files again when they change."""

    def configuration() -> Any:
        try:
            roots = tls.client_ca.read_bytes() if tls.client_ca else None
            pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
        except OSError as error:
            raise ConfigInvalid(
                f"cannot read the TLS files: {error}", hint="check their paths and permissions"
            ) from error
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)

    return grpc.dynamic_ssl_server_credentials(
        configuration(), configuration, require_client_authentication=bool(tls.client_ca)
    )


def _handlers(name: str, methods: dict[str, Unary | Streaming], api: GrpcApi) -> Any:
    table = {}
    for method_name, serve in methods.items():
        method = grpc_messages.method(name, method_name)
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.streams
            else grpc.unary_unary_rpc_method_handler
        )
        wrap: Any = _streaming if method.streams else _unary
        table[method_name] = make(
            wrap(api, serve),
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(name, table)


def _unary(api: GrpcApi, serve: Unary) -> Any:
    async def handle(request: Any, context: Context) -> Any:
        try:
            return await serve(api.authenticate(context), request, context)
        except Exception as error:  # noqa: BLE001 - every error becomes a status
            await _abort(context, error)

    return handle


def _streaming(api: GrpcApi, serve: Streaming) -> Any:
    async def handle(request: Any, context: Context) -> AsyncGenerator[Any, None]:
        try:
            async with aclosing(serve(api.authenticate(context), request)) as messages:
                async for message in messages:
                    yield message
        except GeneratorExit:
            raise
        except Exception as error:  # noqa: BLE001 - every error becomes a status
            await _abort(context, error)

    return handle


async def _abort(context: Context, error: Exception) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    answer = error_status(error)
    if isinstance(error, TidelockError | DaprError):
        message = error.message
    else:
        logger.error("gRPC call failed", exc_info=error)
        message = "internal error; see the log of the service"
    context.set_trailing_metadata((("error-code", answer.code),))
    await context.abort(grpc.StatusCode[answer.grpc], message)
    raise AssertionError


def _lock_options(request: Any) -> LockOptions:
    return LockOptions(
        resource_id=request.resource_id,
        store=request.store_name,
        immediate=request.immediate,
        ttl_ms=_ms(request, "ttl") or 0,
        wait_ms=_ms(request, "wait"),
        request_id=request.request_id,
        owner=request.owner,
        auto_renew=not request.no_auto_renew,
        linger_ms=_ms(request, "linger") or 0,
        lock_id=request.lock_id,
    )


def _stream_message(name: str, message: Acquired | StreamedEvent | Ping) -> Any:
    match message:
        case Acquired(response):
            acquired = _own_message("LockAcquired", **_grant_fields(response))
            return _own_message(name, lock_acquired=acquired)
        case StreamedEvent():
            return _own_message(name, event=_own_message("Event", **asdict(message)))
        case Ping():
            return _own_message(name, ping=_own_message("LockPing"))


def _grant_fields(response: LockResponse) -> dict[str, Any]:
    return {
        "lock_id": response.lock_id,
        "token": response.token,
        "ttl": grpc_messages.duration(response.ttl_ms),
        "since_epoch_ms": response.since_epoch_ms,
    }


def _ms(request: Any, name: str) -> int | None:
    if not request.HasField(name):
        return None
    value = getattr(request, name)
    nanos = int(value.seconds) * 1_000_000_000 + int(value.nanos)
    # Rounded up: only a duration of zero is 0 ms.
    return -(-nanos // 1_000_000)


def _message(name: str, **fields: Any) -> Any:
    return grpc_messages.message(name)(**fields)


def _own_message(name: str, **fields: Any) -> Any:
    return _message(f"{PACKAGE}.{name}", **fields)


def _address(peer: str) -> str:
    """Return the address of a gRPC peer such as `ipv4:127.0.0.1:4711`, without the port."""
    return peer.rpartition(":")[0] or peer
