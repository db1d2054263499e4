"""Redis: the keys and values of Dapr's `lock.redis`, with renewal and a token.

The lock is the key `<prefix><resource>` with the holder's id as its value and a time to live. The
token comes from a counter beside it, which has no time to live. `||` is illegal in a resource of
Dapr's, so nobody else can mean the counter.
Does not guarantee: anything after a fail-over that lost writes; Redis replicates after it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import (
    ConfigInvalid,
    MissingExtra,
    PermissionDenied,
    ResourceInvalid,
    StoreUnreachable,
    TidelockError,
)
from tidelock.base.metrics import Metrics
from tidelock.lock.provider import Features, Holder
from tidelock.lockproviders import keys
from tidelock.lockproviders.backend import (
    Attempt,
    Freed,
    Gone,
    Grant,
    Held,
    Kept,
    ReleaseReply,
    RenewReply,
    Taken,
    TakeReply,
    Terms,
    Unclear,
)
from tidelock.lockproviders.jsonservice import request_timeout_ms
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace

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
    """One lock of one Redis, without replicas to speak of."""

    def __init__(self, url: str, key: str, terms: Terms) -> None:
        """Load the client; connect to nothing yet.

        Raises: `MissingExtra`, `ConfigInvalid`.
        """
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError as error:
            raise MissingExtra(
                "the Redis lock needs redis", hint="pip install 'tidelock[redis]'"
            ) from error
        self._errors = redis.exceptions
        timeout_s = request_timeout_ms(terms) / 1000
        try:
            # A client that retries by itself turns a lost reply into a false "held by another".
            self._client: Any = redis.Redis.from_url(
                url,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                decode_responses=True,
            )
        except ValueError as error:
            raise ConfigInvalid(
                f"{keys.REDIS_URL.key} is not a redis:// or rediss:// URL"
            ) from error
        at = self._client.connection_pool.connection_kwargs
        self.uri = f"redis://{at.get('host', 'localhost')}:{at.get('port', 6379)}/{key}"
        self.terms = terms
        self._keys = (key, key + _TOKEN_SUFFIX)

    def features(self) -> Features:
        """Return what Redis can do."""
        return Features(blocking_wait=True, fencing_token=True, force_release=True)

    def take(self, attempt: Attempt) -> TakeReply:
        """Set the key if it is not there, and draw a token."""
        assert self.terms.validity_ms is not None
        reply = self._tell(
            lambda: self._client.eval(_TAKE, 2, *self._keys, attempt.id, self.terms.validity_ms)
        )
        match reply:
            case Unclear():
                return reply
            case [1, token]:
                return Taken(Grant(attempt, attempt.id, int(token)))
            case [_, owner, left_ms]:
                return Held(str(owner), look_after_ms=left_ms if left_ms >= 0 else None)
            case _:
                raise self._strange(reply)

    def leave(self, attempt: Attempt) -> bool:
        """Delete the key if an unheard grant of this attempt made it."""
        match self._tell(lambda: self._client.eval(_RELEASE, 1, self._keys[0], attempt.id)):
            case Unclear(cause):
                raise StoreUnreachable(f"{self.uri}: {cause}", hint="try again")
            case [done, _]:
                return bool(done)
            case other:
                raise self._strange(other)

    def renew(self, grant: Grant) -> RenewReply:
        """Extend the time to live, if the value is still ours."""
        ttl_ms = self.terms.validity_ms
        match self._tell(lambda: self._client.eval(_RENEW, 1, self._keys[0], grant.handle, ttl_ms)):
            case Unclear() as unclear:
                return unclear
            case [1, _]:
                return Kept(grant)
            case [_, owner]:
                return Gone(_whose(owner))
            case other:
                raise self._strange(other)

    def release(self, grant: Grant) -> ReleaseReply:
        """Delete the key, if the value is still ours."""
        match self._tell(lambda: self._client.eval(_RELEASE, 1, self._keys[0], grant.handle)):
            case Unclear() as unclear:
                return unclear
            case [1, _]:
                return Freed()
            case [_, owner]:
                return Gone(_whose(owner))
            case other:
                raise self._strange(other)

    def forsake(self, grant: Grant) -> None:
        """Leave it to expire: nothing keeps a key alive but renewals."""

    def holder(self) -> Holder | None:
        """Read the value, the token counter and the time to live."""
        clock: Clock = SystemClock()
        found = self._ask(lambda: self._client.mget(*self._keys))
        if found[0] is None:
            return None
        left_ms = self._ask(lambda: self._client.pttl(self._keys[0]))
        expires = clock.now().wall_epoch_ms + left_ms if left_ms > 0 else None
        return Holder(str(found[0]), token=int(found[1] or 0), expires_epoch_ms=expires)

    def break_lock(self) -> bool:
        """Delete the key."""
        return bool(self._ask(lambda: self._client.delete(self._keys[0])))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _tell(self, call: Callable[[], _T]) -> _T | Unclear:
        errors = self._errors
        try:
            return call()
        except (errors.AuthenticationError, errors.NoPermissionError) as error:
            raise PermissionDenied(
                f"{self.uri}: Redis refused this user: {error}", hint="check user and password"
            ) from error
        except errors.ConnectionError as error:
            if isinstance(error.__cause__, ConnectionRefusedError) or "connecting" in str(error):
                raise StoreUnreachable(
                    f"{self.uri}: no connection", hint="check the address and the network"
                ) from error
            return Unclear(f"the connection broke: {type(error).__name__}")
        except errors.TimeoutError:
            return Unclear("no reply in time")
        except errors.RedisError as error:
            raise StoreUnreachable(f"{self.uri}: Redis answered: {error}") from error

    def _ask(self, call: Callable[[], _T]) -> _T:
        reply = self._tell(call)
        if isinstance(reply, Unclear):
            raise StoreUnreachable(f"{self.uri}: {reply.cause}", hint="try again")
        return reply

    def _strange(self, reply: object) -> TidelockError:
        return StoreUnreachable(f"{self.uri}: Redis answered {reply!r}, which nobody expected")


class RedisLockProvider(LeasedProvider):
    """`tidelock.redis.url` and a resource: a lock that Dapr's `lock.redis` respects."""

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read and check the settings; touch nothing."""
        resource = keys.resource_name(settings)
        if _SEPARATOR in resource:
            raise ResourceInvalid(f"{resource!r} is not a lock of Redis: it has '{_SEPARATOR}'")
        key = keys.REDIS_PREFIX.required(settings) + resource
        backend = RedisBackend(keys.REDIS_URL.required(settings), key, keys.ttl_terms(settings))
        pace = Pace.read(settings)
        super().__init__(backend, pace=pace, metrics=metrics, bind_thread=bind_thread)


def _whose(owner: str) -> str:
    return f"the key names {owner}" if owner else "the key is gone"
