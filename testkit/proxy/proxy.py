"""A fault-injecting HTTP proxy, with a record of all requests.

    with FaultProxy(server.endpoint) as proxy:
        proxy.inject(ReplyLost(), when=on(method="PUT"))
        ...
        assert proxy.fired(ReplyLost) == 1

It parses HTTP/1.1, so unlike a TCP proxy it can let a write take effect and lose only its reply.
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

from testkit.proxy.client import Listener
from testkit.proxy.faults import Fault, Pass
from testkit.proxy.request import Request
from testkit.proxy.wire import Reply, exchange

_GATE_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Record:
    """One request that the proxy received.

    `upstream_status` is None until the upstream has replied.
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
    """A proxy in front of one upstream, on a free loopback port.

    `decide`, if given, is called first for every request. If it returns None, the first matching
    injected fault applies; without one the request passes.
    """

    def __init__(
        self,
        upstream: str,
        *,
        decide: Callable[[Request], Fault | None] | None = None,
        records_max: int | None = None,
    ) -> None:
        """Bind a port; `start` serves clients. `records_max` limits the records."""
        parts = urlsplit(upstream)
        if parts.scheme != "http" or parts.hostname is None or parts.port is None:
            raise ValueError(f"upstream: expected http://host:port, got {upstream!r}")
        self._upstream = (parts.hostname, parts.port)
        self._decide = decide
        self._rules: list[_Rule] = []
        self._records: dict[int, Record] = {}
        self._admitted = 0
        self._records_max = records_max
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._listener = Listener(self)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.05,))

    @property
    def endpoint(self) -> str:
        """The URL that clients use instead of the upstream's."""
        return f"http://127.0.0.1:{self._listener.server_address[1]}"

    def inject(
        self, fault: Fault, *, when: Callable[[Request], bool] | None = None, times: int = 1
    ) -> None:
        """Inject this fault into the next `times` matching requests; rules are tried in order."""
        with self._changed:
            self._rules.append(_Rule(fault, when or (lambda _request: True), times))

    def clear(self) -> None:
        """Remove the injected faults that have not fired; the records remain."""
        with self._changed:
            self._rules.clear()

    def records(self, *, when: Callable[[Request], bool] | None = None) -> tuple[Record, ...]:
        """Return the requests received so far, oldest first.

        A request is included as soon as it arrives; its upstream status is set before the client
        gets a byte, or its connection is closed.
        """
        with self._changed:
            return tuple(r for r in self._records.values() if when is None or when(r.request))

    def fired(self, kind: type[Fault]) -> int:
        """Return how many requests had a fault of this kind."""
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
                    f"not true within {deadline_s} s; records: {list(self._records.values())}"
                )

    def start(self) -> None:
        """Serve each client connection in its own thread."""
        self._thread.start()

    def stop(self) -> None:
        """Close all connections, abort held requests, and end the threads."""
        self._stopping.set()
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """Serve for the duration of the block."""
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
        """Record a request that has arrived; return its number and its fault."""
        decided = self._decide(request) if self._decide is not None else None
        with self._changed:
            fault = decided or self._take_rule(request)
            number, self._admitted = self._admitted, self._admitted + 1
            self._records[number] = Record(number, request, fault)
            if self._records_max is not None and len(self._records) > self._records_max:
                del self._records[next(iter(self._records))]
            self._changed.notify_all()
        return number, fault

    def forward(self, number: int) -> Reply:
        """Send a recorded request upstream once and record the status of its reply."""
        record = self._records[number]
        self._replace(dataclasses.replace(record, forwarded=True))
        try:
            reply = exchange(self._upstream, record.request)
        except (OSError, HTTPException) as error:
            text = f"the proxy got no complete reply from the upstream: {error!r}\n"
            return Reply(502, (("Content-Type", "text/plain"),), text.encode())
        self._replace(dataclasses.replace(record, forwarded=True, upstream_status=reply.status))
        return reply

    def hold(self, hold_ms: float, until: threading.Event | None) -> None:
        """Wait for the time or the event. Raises: `ConnectionAbortedError` if the proxy stops."""
        end = time.monotonic() + hold_ms / 1_000
        while (left := end - time.monotonic()) > 0:
            if until is not None and until.is_set():
                return
            # A request that is held when the proxy stops must not reach the upstream.
            if self._stopping.wait(left if until is None else min(left, _GATE_POLL_S)):
                raise ConnectionAbortedError("the proxy stopped while a request was held")

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
