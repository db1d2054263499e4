"""What can go wrong with one HTTP request, as a closed union, and how a rule chooses requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidelock.testing.proxy.request import Request


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing goes wrong."""


@dataclass(frozen=True, slots=True)
class RequestLost:
    """The connection closes and the upstream never sees the request."""


@dataclass(frozen=True, slots=True)
class RequestReset:
    """As RequestLost, with a TCP reset."""


@dataclass(frozen=True, slots=True)
class ReplyLost:
    """The upstream acts and answers; the client's connection closes without a byte."""


@dataclass(frozen=True, slots=True)
class ReplyReset:
    """As ReplyLost, with a TCP reset."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The request waits in the proxy, then passes, even if its client has gone by then.

    With `until` it waits for that event, and `hold_ms` is the most it waits.
    """

    hold_ms: float
    until: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """The client hears nothing for a while, and then either its reply or the end of the connection.

    With `forward_first` the upstream has acted before the silence begins; without it, a stall that
    ends in silence never reaches the upstream, and one that ends in a reply is a Delay.
    """

    hold_ms: float
    forward_first: bool
    then_reply: bool = False
    until: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The client gets this status instead; with `forward_first`, after the upstream has acted."""

    code: int
    forward_first: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Truncate:
    """The reply's head arrives whole, and its body ends after so many bytes."""

    body_bytes: int


Fault = (
    Pass | RequestLost | RequestReset | ReplyLost | ReplyReset | Delay | Stall | Status | Truncate
)


def on(
    *, method: str | None = None, path_contains: str = "", header: str | None = None
) -> Callable[[Request], bool]:
    """Return a condition: this method, this text in the path, this header present."""

    def matches(request: Request) -> bool:
        return (
            (method is None or request.method == method)
            and path_contains in request.path
            and (header is None or request.header(header) is not None)
        )

    return matches
