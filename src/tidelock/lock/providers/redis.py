"""Lock provider for Redis: keys and values of Dapr's `lock.redis`, with renewal and a token.

The lock is the key `<prefix><resource>`, with the holder's id as its value and a time to live. The
token is a counter in a second key without a time to live; `||` is not allowed in a resource of
Dapr, so no lock has the key of the counter.

Does not guarantee: exclusion after a failover that lost writes; Redis replicates asynchronously.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tidelock.core.errors import (
    ConfigInvalid,
    PermissionDenied,
    ResourceInvalid,
    StoreUnreachable,
    TidelockError,
    needs_extra,
)
from tidelock.core.system import SystemClock
from tidelock.lock.provider import Features, Holder
from tidelock.lock.providers import backend as b
from tidelock.lock.providers import config
from tidelock.lock.providers.json_api import request_timeout_ms
from tidelock.lock.providers.leased import ConfiguredProvider

_SEPARATOR = "||"
_TOKEN_SUFFIX = "||token"  # noqa: S105 - the name of a key

_TAKE = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return {1, redis.call('INCR', KEYS[2])}
end
return {0, redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1])}
"""
_RENEW = """
local there = redis.call('GET', KEYS[1])
if there == ARGV[1] then return {1, redis.call('PEXPIRE', KEYS[1], ARGV[2])} end
return {0, there or ''}
"""
_RELEASE = """
local there = redis.call('GET', KEYS[1])
if there == ARGV[1] then return {1, redis.call('DEL', KEYS[1])} end
return {0, there or ''}
"""

_T = TypeVar("_T")


class RedisBackend:
    """One lock in one Redis server."""

    features = Features(blocking_wait=True, fencing_token=True, force_release=True)

    def __init__(self, url: str, key: str, terms: b.LeaseTerms) -> None:
        """Load the client library; does not connect. Raises: `MissingExtra`, `ConfigInvalid`."""
        with needs_extra("the Redis lock needs redis", "redis"):
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        self._errors = redis.exceptions
        timeout_s = request_timeout_ms(terms) / 1000
        try:
            # No retries: after a lost reply they would report our own grant as another holder.
            self._client: Any = redis.Redis.from_url(
                url,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                decode_responses=True,
            )
        except ValueError as error:
            raise ConfigInvalid(
                f"{config.REDIS_URL.key}: expected a redis:// or rediss:// URL",
                hint="use redis://host:6379/0",
            ) from error
        at = self._client.connection_pool.connection_kwargs
        self.uri = f"redis://{at.get('host', 'localhost')}:{at.get('port', 6379)}/{key}"
        self.terms = terms
        self._keys = (key, key + _TOKEN_SUFFIX)

    def try_acquire(self, attempt: b.Attempt) -> b.AcquireReply:
        """Set the key if it is absent, and increment the token."""
        match self._eval(_TAKE, self._keys, attempt.id, self.terms.validity_ms):
            case b.BackendUnclear() as unclear:
                return unclear
            case [1, token]:
                return b.BackendAcquired(b.BackendGrant(attempt, attempt.id, int(token)))
            case [_, owner, left_ms]:
                return b.HeldByOther(str(owner), poll_after_ms=left_ms if left_ms >= 0 else None)
            case other:
                raise self._unexpected(other)

    def cancel(self, attempt: b.Attempt) -> bool:
        """Delete the key if it is an unseen grant of this attempt."""
        match self._eval(_RELEASE, self._keys[:1], attempt.id):
            case b.BackendUnclear() as unclear:
                raise unclear.error(self.uri)
            case [done, _]:
                return bool(done)
            case other:
                raise self._unexpected(other)

    def renew(self, grant: b.BackendGrant) -> b.RenewReply:
        """Extend the time to live, if the value is still ours."""
        reply = self._eval(_RENEW, self._keys[:1], grant.handle, self.terms.validity_ms)
        return self._own_reply(reply, b.RenewedLease(grant))

    def release(self, grant: b.BackendGrant) -> b.ReleaseReply:
        """Delete the key, if the value is still ours."""
        return self._own_reply(
            self._eval(_RELEASE, self._keys[:1], grant.handle), b.GrantReleased()
        )

    def abandon(self, grant: b.BackendGrant) -> None:
        """Let the key expire."""

    def holder(self) -> Holder | None:
        """Read the value, the token counter and the time to live."""
        found = self._query(lambda: self._client.mget(*self._keys))
        if found[0] is None:
            return None
        left_ms = self._query(lambda: self._client.pttl(self._keys[0]))
        expires = SystemClock().now().wall_epoch_ms + left_ms if left_ms > 0 else None
        return Holder(str(found[0]), token=int(found[1] or 0), expires_epoch_ms=expires)

    def force_release(self) -> bool:
        """Delete the key."""
        return bool(self._query(lambda: self._client.delete(self._keys[0])))

    def close(self) -> None:
        self._client.close()

    def _eval(self, script: str, keys: tuple[str, ...], *values: object) -> Any:
        return self._send(lambda: self._client.eval(script, len(keys), *keys, *values))

    def _own_reply(self, reply: Any, success: _T) -> _T | b.GrantLost | b.BackendUnclear:
        """Return the reply to a renewal or release; it fails if the value is no longer ours."""
        match reply:
            case b.BackendUnclear():
                return reply
            case [1, _]:
                return success
            case [_, owner]:
                text = (
                    f"the key belongs to {owner}" if owner else "the key has expired or was deleted"
                )
                return b.GrantLost(text)
            case _:
                raise self._unexpected(reply)

    def _send(self, call: Callable[[], _T]) -> _T | b.BackendUnclear:
        errors = self._errors
        try:
            return call()
        except (errors.AuthenticationError, errors.NoPermissionError) as error:
            raise PermissionDenied(
                f"{self.uri}: Redis denied access: {error}", hint="check user and password"
            ) from error
        except errors.ConnectionError as error:
            if isinstance(error.__cause__, ConnectionRefusedError) or "connecting" in str(error):
                raise StoreUnreachable(
                    f"{self.uri}: no connection", hint="check the address and the network"
                ) from error
            return b.BackendUnclear(f"the connection was lost: {type(error).__name__}")
        except errors.TimeoutError:
            return b.BackendUnclear("no reply in time")
        except errors.RedisError as error:
            raise StoreUnreachable(f"{self.uri}: Redis returned: {error}") from error

    def _query(self, call: Callable[[], _T]) -> _T:
        reply = self._send(call)
        if isinstance(reply, b.BackendUnclear):
            raise reply.error(self.uri)
        return reply

    def _unexpected(self, reply: object) -> TidelockError:
        return StoreUnreachable(f"{self.uri}: unexpected reply from Redis: {reply!r}")


class RedisLockProvider(ConfiguredProvider):
    """A lock at `tidelock.redis.url`, compatible with Dapr's `lock.redis`."""

    def open_backend(self, settings: Mapping[str, object]) -> b.Backend:
        resource = config.resource_name(settings)
        if _SEPARATOR in resource:
            raise ResourceInvalid(
                f"{resource!r} must not contain '{_SEPARATOR}' as the name of a Redis lock"
            )
        key = config.REDIS_PREFIX.required(settings) + resource
        return RedisBackend(config.REDIS_URL.required(settings), key, config.ttl_terms(settings))
