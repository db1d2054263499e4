"""The faults of one HTTP request as a closed union, and conditions that select requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from testkit.proxy.request import Request


@dataclass(frozen=True, slots=True)
class Pass:
    """No fault."""


@dataclass(frozen=True, slots=True)
class RequestLost:
    """The connection is closed and the upstream does not receive the request."""


@dataclass(frozen=True, slots=True)
class RequestReset:
    """Like `RequestLost`, with a TCP reset."""


@dataclass(frozen=True, slots=True)
class ReplyLost:
    """The upstream handles the request; the client's connection is closed without a reply."""


@dataclass(frozen=True, slots=True)
class ReplyReset:
    """Like `ReplyLost`, with a TCP reset."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The proxy delays the request and then forwards it, even if the client has disconnected.

    With `until` it waits for that event, for at most `hold_ms`.
    """

    hold_ms: float
    until: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """The client gets nothing for a while, and then either its reply or a closed connection.

    With `forward_first` the upstream handles the request before the stall. Without it, a stall that
    ends without a reply never reaches the upstream, and one that ends with a reply is a `Delay`.
    """

    hold_ms: float
    forward_first: bool
    then_reply: bool = False
    until: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The client gets this status instead of the reply.

    With `forward_first`, the upstream handles the request before.
    """

    code: int
    forward_first: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Truncate:
    """The client gets the complete head of the reply, and only `body_bytes` of its body."""

    body_bytes: int


Fault = (
    Pass | RequestLost | RequestReset | ReplyLost | ReplyReset | Delay | Stall | Status | Truncate
)


def on(
    *, method: str | None = None, path_contains: str = "", header: str | None = None
) -> Callable[[Request], bool]:
    """Return a condition on the method, a text in the path, and the presence of a header."""

    def matches(request: Request) -> bool:
        return (
            (method is None or request.method == method)
            and path_contains in request.path
            and (header is None or request.header(header) is not None)
        )

    return matches
