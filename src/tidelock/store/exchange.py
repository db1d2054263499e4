"""When a request is sent again, and what an answer that settles nothing means.

A request that may safely be repeated is repeated within its time. A conditional write is sent
once; only an answer that proves that nothing landed allows to send it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import assert_never

from tidelock.base.clock import Clock
from tidelock.base.errors import (
    ConfigInvalid,
    InvalidInput,
    NotFound,
    PermissionDenied,
    StoreUnreachable,
    Throttled,
    TidelockError,
    Unsupported,
)
from tidelock.base.ids import IdSource
from tidelock.base.limits import CONFLICT_RETRIES, RESEND_TRIES, RETRY_AFTER_MS_MAX
from tidelock.base.outcome import Landed
from tidelock.base.retry import Backoff
from tidelock.store.contract import (
    Busy,
    Create,
    Match,
    Overwrite,
    PutMode,
    PutReply,
    Refused,
    Unclear,
)
from tidelock.store.http import Answer, NoReply, NotSent, Reply, Request, Transport

Build = Callable[[], Request]
"""Makes the request afresh: a signature carries the time at which it was made."""

_WORTH_RESENDING = frozenset({408, 429, 500, 502, 503, 504})
_BACKOFF = Backoff(first_ms=25, most_ms=2_000)


@dataclass(frozen=True, slots=True)
class Contended:
    """Nothing landed, because another write was under way: the same write may be sent again."""

    cause: str


Judge = Callable[[Reply], PutReply | Contended]
"""Reads the reply to a put in the words of one store; raises when the call itself is wrong."""


class Exchange:
    """Sends the requests of one store, each within `timeout_ms`.

    `observe` hears the verb of every request that was sent. `moved` may take a new address from
    a reply that says that nothing was done here; the request is then built and sent once more.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        timeout_ms: int,
        clock: Clock,
        ids: IdSource,
        observe: Callable[[str], None] | None = None,
        moved: Callable[[Reply], bool] | None = None,
    ) -> None:
        """Send through `transport`, wait by `clock`, spread pauses by `ids`."""
        self._transport = transport
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._ids = ids
        self._observe = observe
        self._moved = moved

    def settle(self, verb: str, build: Build, *, subject: str) -> Reply:
        """Send a request that may be repeated until a reply says something definite.

        Raises `Throttled` or `StoreUnreachable` when none did in time.
        """
        deadline_ms = self._deadline_ms()
        attempt = 0
        while True:
            answer = self._send(verb, build, self._share_ms(attempt, deadline_ms))
            if isinstance(answer, Reply) and answer.status not in _WORTH_RESENDING:
                return answer
            if not self._pause(attempt, RESEND_TRIES, self._asked_ms(answer), deadline_ms):
                raise self._gave_up(answer, subject)
            attempt += 1

    def put(self, build: Build, judge: Judge, mode: PutMode, *, subject: str) -> PutReply:
        """Send a write, and say first-hand what came of it.

        Raises `StoreUnreachable` only when no attempt can have reached the store.
        """
        if isinstance(mode, Overwrite):
            return self._put_again(build, judge, subject)
        return self._put_once(build, judge, subject)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def _put_once(self, build: Build, judge: Judge, subject: str) -> PutReply:
        deadline_ms = self._deadline_ms()
        attempt = 0
        while True:
            answer = self._send("put", build, deadline_ms - self._clock.now().monotonic_ms)
            verdict = self._verdict(answer, judge)
            match verdict:
                case NotSent():
                    raise self._gave_up(verdict, subject)
                case Contended(cause):
                    if not self._pause(attempt, CONFLICT_RETRIES + 1, None, deadline_ms):
                        return Busy(cause=cause)
                case _:
                    return verdict
            attempt += 1

    def _put_again(self, build: Build, judge: Judge, subject: str) -> PutReply:
        deadline_ms = self._deadline_ms()
        may_have_landed: Unclear | None = None
        attempt = 0
        while True:
            try:
                answer = self._send("put", build, self._share_ms(attempt, deadline_ms))
                verdict = self._verdict(answer, judge)
            except TidelockError:
                if may_have_landed is not None:
                    # This attempt did nothing, but one before it may have.
                    return may_have_landed
                raise
            match verdict:
                case Landed() | Refused():
                    return verdict
                case Unclear():
                    may_have_landed = verdict
                case Busy() | Contended() | NotSent():
                    pass
                case _:
                    assert_never(verdict)
            if not self._pause(attempt, RESEND_TRIES, self._asked_ms(answer), deadline_ms):
                break
            attempt += 1
        if may_have_landed is not None:
            return may_have_landed
        match verdict:
            case NotSent():
                raise self._gave_up(verdict, subject)
            case Contended(cause):
                return Busy(cause=cause)
            case _:
                return verdict

    def _verdict(self, answer: Answer, judge: Judge) -> PutReply | Contended | NotSent:
        match answer:
            case NotSent():
                return answer
            case NoReply(cause):
                return Unclear(cause)
            case Reply(status=429):
                return Busy(self._asked_ms(answer), cause="429 too many requests")
            case Reply(status=status) if status == 408 or (status >= 500 and status != 501):
                # A gateway may give up on a write that lands behind it.
                return Unclear(f"the store answered {status}", self._asked_ms(answer))
            case Reply():
                return judge(answer)
            case _:
                assert_never(answer)

    def _send(self, verb: str, build: Build, timeout_ms: float) -> Answer:
        answer = self._seen(verb, self._transport.send(build(), timeout_ms=timeout_ms))
        if self._moved is not None and isinstance(answer, Reply) and self._moved(answer):
            answer = self._seen(verb, self._transport.send(build(), timeout_ms=timeout_ms))
        return answer

    def _seen(self, verb: str, answer: Answer) -> Answer:
        if self._observe is not None and not isinstance(answer, NotSent):
            self._observe(verb)
        return answer

    def _deadline_ms(self) -> float:
        return self._clock.now().monotonic_ms + self._timeout_ms

    def _share_ms(self, attempt: int, deadline_ms: float) -> float:
        # All but the last attempt leave half of the time to the next, should they stall.
        left_ms = deadline_ms - self._clock.now().monotonic_ms
        return left_ms if attempt == RESEND_TRIES - 1 else left_ms / 2

    def _pause(self, attempt: int, tries: int, asked_ms: int | None, deadline_ms: float) -> bool:
        """Wait before the next attempt; False if there is to be none."""
        pause_ms = max(_BACKOFF.delay_ms(attempt, self._ids.jitter()), asked_ms or 0)
        if attempt + 1 >= tries or self._clock.now().monotonic_ms + pause_ms >= deadline_ms:
            return False
        self._clock.sleep_ms(pause_ms)
        return True

    def _asked_ms(self, answer: Answer) -> int | None:
        if not isinstance(answer, Reply):
            return None
        asked = answer.headers.get("retry-after")
        return retry_after_ms(asked, self._clock.now().wall_epoch_ms) if asked else None

    def _gave_up(self, answer: Answer, subject: str) -> TidelockError:
        match answer:
            case Reply(status=429 | 503 as status):
                return Throttled(
                    f"{subject}: the store answered {status} and asks for fewer requests",
                    hint="send fewer requests at a time, or try later",
                    retry_after_ms=self._asked_ms(answer),
                )
            case Reply(status=status):
                cause = f"the store answered {status}"
            case NoReply(cause) | NotSent(cause):
                pass
            case _:
                assert_never(answer)
        return StoreUnreachable(
            f"{subject}: {cause}", hint="check the end point and the network, then try again"
        )


def retry_after_ms(asked: str, now_epoch_ms: int) -> int | None:
    """Read `Retry-After`, in seconds or as a date; None if it is neither.

    The pause is bounded: a store cannot send us to sleep for a day.
    """
    if re.fullmatch(r"[0-9]{1,9}", asked.strip()):
        pause_ms = int(asked) * 1000
    else:
        date_ms = http_date_ms(asked)
        if date_ms is None:
            return None
        pause_ms = max(0, date_ms - now_epoch_ms)
    return min(pause_ms, RETRY_AFTER_MS_MAX)


def http_date_ms(text: str) -> int | None:
    """Read a date of an HTTP header; None if it is none."""
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    # A date in GMT comes without an offset in the forms HTTP calls obsolete.
    aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def modified_ms(reply: Reply) -> int:
    """Return when the object was last written, as the reply says; 0 if it does not."""
    return http_date_ms(reply.headers.get("last-modified", "")) or 0


def condition_headers(mode: PutMode) -> dict[str, str]:
    """Return the condition in the words of HTTP."""
    match mode:
        case Create():
            return {"if-none-match": "*"}
        case Match(version):
            if not version.isascii() or not version.isprintable():
                raise InvalidInput(
                    f"{version!a} is not a version", hint="give one that this store returned"
                )
            return {"if-match": version}
        case Overwrite():
            return {}
        case _:
            assert_never(mode)


def refusal(reply: Reply, code: str, *, subject: str, hint: str = "") -> TidelockError:
    """Return the error for a reply that is final and not what the verb hopes for.

    Only the store's code is shown: its free text may repeat what we sent.
    """
    shown = code if re.fullmatch(r"[A-Za-z0-9._-]{1,64}", code) else ""
    said = f"{subject}: the store answered {f'{reply.status} {shown}'.strip()}"
    match reply.status:
        case 401 | 403:
            return PermissionDenied(said, hint=hint or "check the credentials and their rights")
        case 404:
            return NotFound(said, hint=hint or "check the name of the bucket or container")
        case 405 | 501:
            return Unsupported(said, hint=hint or "use a store with conditional writes")
        case 429:
            return Throttled(said, hint=hint or "try later")
        case status if 300 <= status < 400:
            return ConfigInvalid(said, hint=hint or "check the end point and the region")
        case status if status < 500:
            return InvalidInput(said, hint=hint or "check the settings of this store")
        case _:
            return StoreUnreachable(said, hint=hint or "try again later")
