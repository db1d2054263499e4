"""The lock service over gRPC: Dapr's alpha1 methods, and both options of alpha2."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import grpc
import grpc.aio

from tidelock.base.errors import ConfigInvalid, TidelockError
from tidelock.base.limits import (
    REQUESTS_PENDING_MAX,
    SERVICE_BODY_BYTES_MAX,
    SERVICE_HEADER_BYTES_MAX,
    STREAMS_MAX,
)
from tidelock.lockservice import protofile
from tidelock.lockservice.answers import DaprError, answer_of
from tidelock.lockservice.auth import TOKEN_HEADER, Doorkeeper, Principal
from tidelock.lockservice.component import LockResponse
from tidelock.lockservice.service import LockService, Wish
from tidelock.lockservice.stream import Acquired, Happened, Ping, event_stream, lock_stream

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
    # Half-open connections: a client that does not answer is gone, and so are its streams (V5). The
    # patience is for clients on busy machines: gRPC answers such a ping from the program itself.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.so_reuseport", 0),
    # gRPC itself would drop calls at random, as CANCELLED, when a thousand arrive at once. Ours are
    # counted and refused with a reason (V7).
    ("grpc.server.max_pending_requests", _CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", _CALLS_MAX),
]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Files of a TLS server; with `client_ca` clients must show a certificate of it."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def of_grpc(self) -> Any:
        """Return them for a gRPC server, which reads the files again when they change."""

        def configuration() -> Any:
            try:
                roots = self.client_ca.read_bytes() if self.client_ca else None
                pair = (self.key.read_bytes(), self.certificate.read_bytes())
            except OSError as error:
                raise ConfigInvalid(f"the TLS files cannot be read: {error}") from error
            return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)

        return grpc.dynamic_ssl_server_credentials(
            configuration(), configuration, require_client_authentication=bool(self.client_ca)
        )


@dataclass(slots=True)
class GrpcApi:
    """The methods, over one service."""

    service: LockService
    door: Doorkeeper

    def server(self, address: str, credentials: Credentials | None) -> tuple[Any, int]:
        """Return a server bound to `address`, not started, and its port."""
        server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=_CALLS_MAX)
        for name, methods in self._methods().items():
            server.add_generic_rpc_handlers((_handlers(name, methods, self),))
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials.of_grpc())
        if port == 0:
            raise ConfigInvalid(f"gRPC cannot listen on {address}")
        return server, int(port)

    def _methods(self) -> dict[str, dict[str, Unary | Streaming]]:
        return {
            DAPR: {"TryLockAlpha1": self._try_lock, "UnlockAlpha1": self._unlock_owned},
            LOCKS: {
                "Lock": self._lock,
                "Unlock": self._unlock,
                "ForceUnlock": self._force,
                "Renew": self._renew,
                "Status": self._status,
                "Events": self._events,
            },
            STREAM_LOCKS: {"Lock": self._lock_stream, "ForceUnlock": self._force},
        }

    def admit(self, context: Context) -> Principal:
        """Return the principal behind a call."""
        metadata = dict(context.invocation_metadata() or ())
        bearer = str(metadata.get("authorization", "")).removeprefix("Bearer ").strip()
        token = str(metadata.get(TOKEN_HEADER, "")) or bearer
        return self.door.admit(token, _address(context.peer()))

    async def _try_lock(self, principal: Principal, request: Any, context: Context) -> Any:
        done = await self.service.try_lock_alpha1(
            principal,
            request.store_name,
            request.resource_id,
            request.lock_owner,
            request.expiry_in_seconds,
        )
        context.set_trailing_metadata((("deprecation", "true"),))
        return _message("dapr.proto.runtime.v1.TryLockResponse", success=done)

    async def _unlock_owned(self, principal: Principal, request: Any, context: Context) -> Any:
        status = await self.service.unlock_alpha1(
            principal, request.store_name, request.resource_id, request.lock_owner
        )
        context.set_trailing_metadata((("deprecation", "true"),))
        return _message("dapr.proto.runtime.v1.UnlockResponse", status=status)

    async def _lock(self, principal: Principal, request: Any, context: Context) -> Any:
        del context
        response = await self.service.lock(principal, _wish(request))
        return _ours("LockResponse", **_grant_fields(response))

    async def _unlock(self, principal: Principal, request: Any, context: Context) -> Any:
        del context
        await self.service.unlock(
            principal,
            request.store_name,
            request.resource_id,
            request.lock_id,
            request.request_id,
        )
        return _ours("UnlockResponse")

    async def _force(self, principal: Principal, request: Any, context: Context) -> Any:
        del context
        await self.service.force_unlock(principal, request.store_name, request.resource_id)
        return _ours("ForceUnlockResponse")

    async def _renew(self, principal: Principal, request: Any, context: Context) -> Any:
        del context
        response = await self.service.renew(
            principal,
            request.store_name,
            request.resource_id,
            request.lock_id,
            _ms(request, "ttl") or 0,
        )
        return _ours("LockResponse", **_grant_fields(response))

    async def _status(self, principal: Principal, request: Any, context: Context) -> Any:
        del context
        seen = await self.service.status(principal, request.store_name, request.resource_id)
        fields: dict[str, Any] = {"waiters": seen.waiters, "cursor": seen.number}
        if seen.granted is not None:
            fields |= {
                "locked": True,
                "owner": seen.granted.owner,
                "principal": seen.granted.principal,
                "token": seen.granted.token,
                "mode": seen.granted.mode.value,
                "ttl": _duration(seen.granted.ttl_ms),
                "since_epoch_ms": seen.since_epoch_ms,
            }
            if seen.expires_in_ms is not None:
                fields["expires_in"] = _duration(seen.expires_in_ms)
        return _ours("StatusResponse", **fields)

    async def _lock_stream(self, principal: Principal, request: Any) -> AsyncGenerator[Any, None]:
        async with aclosing(lock_stream(self.service, principal, _wish(request))) as messages:
            async for message in messages:
                match message:
                    case Acquired(response):
                        acquired = _ours("LockAcquired", **_grant_fields(response))
                        yield _ours("LockServerStream", lock_acquired=acquired)
                    case Ping():
                        yield _ours("LockServerStream", ping=_ours("LockPing"))

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
                match message:
                    case Happened():
                        event = _ours(
                            "Event",
                            cursor=message.cursor,
                            at_epoch_ms=message.at_epoch_ms,
                            event=message.event,
                            resource=message.resource,
                            token=message.token,
                            owner=message.owner,
                            how=message.how,
                            cause=message.cause,
                        )
                        yield _ours("EventsServerStream", event=event)
                    case Ping():
                        yield _ours("EventsServerStream", ping=_ours("LockPing"))


def _handlers(name: str, methods: dict[str, Unary | Streaming], api: GrpcApi) -> Any:
    table = {}
    for method_name, serve in methods.items():
        method = protofile.method(name, method_name)
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
            return await serve(api.admit(context), request, context)
        except Exception as error:  # noqa: BLE001 - every error becomes a status
            await _abort(context, error)

    return handle


def _streaming(api: GrpcApi, serve: Streaming) -> Any:
    async def handle(request: Any, context: Context) -> AsyncGenerator[Any, None]:
        try:
            async with aclosing(serve(api.admit(context), request)) as messages:
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
    answer = answer_of(error)
    if isinstance(error, TidelockError | DaprError):
        message = error.message
    else:
        logger.error("a call failed", exc_info=error)
        message = "internal error; see the log of the service"
    context.set_trailing_metadata((("error-code", answer.code),))
    await context.abort(grpc.StatusCode[answer.grpc], message)
    raise AssertionError


def _wish(request: Any) -> Wish:
    return Wish(
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


def _grant_fields(response: LockResponse) -> dict[str, Any]:
    return {
        "lock_id": response.lock_id,
        "token": response.token,
        "ttl": _duration(response.ttl_ms),
        "since_epoch_ms": response.since_epoch_ms,
    }


def _ms(request: Any, name: str) -> int | None:
    if not request.HasField(name):
        return None
    value = getattr(request, name)
    nanos = int(value.seconds) * 1_000_000_000 + int(value.nanos)
    # A part of a millisecond counts as one: only zero is nothing.
    return -(-nanos // 1_000_000)


def _duration(duration_ms: int) -> Any:
    return _message(
        "google.protobuf.Duration",
        seconds=duration_ms // 1000,
        nanos=duration_ms % 1000 * 1_000_000,
    )


def _message(name: str, **fields: Any) -> Any:
    return protofile.message(name)(**fields)


def _ours(name: str, **fields: Any) -> Any:
    return _message(f"{PACKAGE}.{name}", **fields)


def _address(peer: str) -> str:
    """Return the address in gRPC's `ipv4:127.0.0.1:4711`, without the port."""
    return peer.rpartition(":")[0] or peer
