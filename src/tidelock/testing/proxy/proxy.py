"""The proxy itself: which request meets which fault, and what was seen.

    with FaultProxy(server.endpoint) as proxy:
        proxy.inject(ReplyLost(), when=on(method="PUT"))
        ...
        assert proxy.fired(ReplyLost) == 1

It understands HTTP/1.1, so it can do what a TCP-level tool cannot: let a write land and lose only
its reply.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tidelock.testing.proxy.client import Listener
from tidelock.testing.proxy.faults import Fault, Pass
from tidelock.testing.proxy.request import Request
from tidelock.testing.proxy.wire import Reply, exchange

_GATE_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Record:
    """One request as the proxy saw it.

    `upstream_status` is None until the upstream has answered, and stays so if it never does.
    """

    number: int
    request: Request
    fault: Fault
    forwarded: bool = False
    upstream_status: int | None = None


@dataclass(slots=True)
class _Rule:
    fault: Fault
    when: Callable[[Request], bool]
    times_left: int


class FaultProxy:
    """A proxy on a loopback port of the system's choice, before one upstream.

    `decide`, if given, is asked first for every request; where it returns None the injected
    faults decide, and where none of them matches the request passes.
    """

    def __init__(
        self,
        upstream: str,
        *,
        decide: Callable[[Request], Fault | None] | None = None,
        remembers: int | None = None,
    ) -> None:
        """Take a port; clients are served from `start` on. `remembers` bounds the records."""
        parts = urlsplit(upstream)
        if parts.scheme != "http" or parts.hostname is None or parts.port is None:
            raise ValueError(f"upstream must look like http://host:port, not {upstream!r}")
        self._upstream = (parts.hostname, parts.port)
        self._decide = decide
        self._rules: list[_Rule] = []
        self._records: dict[int, Record] = {}
        self._admitted = 0
        self._remembers = remembers
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._listener = Listener(self)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.05,))

    @property
    def endpoint(self) -> str:
        """Return the URL that clients are given instead of the upstream's."""
        return f"http://127.0.0.1:{self._listener.server_address[1]}"

    def inject(
        self, fault: Fault, *, when: Callable[[Request], bool] | None = None, times: int = 1
    ) -> None:
        """Let the next `times` requests that match meet this fault; rules are tried in order."""
        with self._changed:
            self._rules.append(_Rule(fault, when or (lambda _request: True), times))

    def clear(self) -> None:
        """Forget the injected faults that have not fired; the records stay."""
        with self._changed:
            self._rules.clear()

    def records(self, *, when: Callable[[Request], bool] | None = None) -> tuple[Record, ...]:
        """Return the requests seen so far, oldest first.

        A request is here from its arrival on, and its upstream status before the client gets a byte
        or a close.
        """
        with self._changed:
            return tuple(r for r in self._records.values() if when is None or when(r.request))

    def fired(self, kind: type[Fault]) -> int:
        """Return how many requests met a fault of this kind."""
        return sum(isinstance(record.fault, kind) for record in self.records())

    def wait_for(
        self, condition: Callable[[tuple[Record, ...]], bool], *, deadline_s: float = 10.0
    ) -> None:
        """Wait until the records satisfy the condition, for example that a request has arrived."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: condition(tuple(self._records.values())), deadline_s
            ):
                raise AssertionError(
                    f"not seen in {deadline_s} s; records: {list(self._records.values())}"
                )

    def start(self) -> None:
        """Serve, each client connection in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Close every connection, let held requests go, and end the threads."""
        self._stopping.set()
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """Serve until the block ends."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop serving."""
        self.stop()

    def admit(self, request: Request) -> tuple[int, Fault]:
        """Record a request that has arrived; return its number and the fault it meets."""
        decided = self._decide(request) if self._decide is not None else None
        with self._changed:
            fault = decided or self._take_rule(request)
            number, self._admitted = self._admitted, self._admitted + 1
            self._records[number] = Record(number, request, fault)
            if self._remembers is not None and len(self._records) > self._remembers:
                del self._records[next(iter(self._records))]
            self._changed.notify_all()
        return number, fault

    def forward(self, number: int) -> Reply:
        """Send a recorded request upstream once and record what came back."""
        record = self._records[number]
        self._replace(dataclasses.replace(record, forwarded=True))
        try:
            reply = exchange(self._upstream, record.request)
        except (OSError, HTTPException) as error:
            text = f"the proxy got no whole reply from its upstream: {error!r}\n"
            return Reply(502, (("Content-Type", "text/plain"),), text.encode())
        self._replace(dataclasses.replace(record, forwarded=True, upstream_status=reply.status))
        return reply

    def hold(self, hold_ms: float, until: threading.Event | None) -> None:
        """Wait for the time or the event; raise ConnectionAbortedError if the proxy stops."""
        end = time.monotonic() + hold_ms / 1_000
        while (left := end - time.monotonic()) > 0:
            if until is not None and until.is_set():
                return
            # A request held when the proxy stops must not reach the upstream afterwards.
            if self._stopping.wait(left if until is None else min(left, _GATE_POLL_S)):
                raise ConnectionAbortedError("the proxy stopped while it held a request")

    def _take_rule(self, request: Request) -> Fault:
        for rule in self._rules:
            if rule.times_left > 0 and rule.when(request):
                rule.times_left -= 1
                return rule.fault
        return Pass()

    def _replace(self, record: Record) -> None:
        with self._changed:
            if record.number in self._records:
                self._records[record.number] = record
            self._changed.notify_all()
