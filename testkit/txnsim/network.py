"""The store as one process reaches it: requests are lost, delayed, refused, or answered twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from testkit.txnsim.checked_store import CheckedStore
from testkit.txnsim.plan import Fault
from testkit.txnsim.world import Process
from tidelock.core.errors import StoreUnreachable, Throttled
from tidelock.core.outcome import Landed
from tidelock.storage.contract import (
    Busy,
    Create,
    ObjectMeta,
    PutMode,
    PutReply,
    Refused,
    StoredObject,
    Unclear,
    Upload,
)
from tidelock.storage.uploads import BufferedUpload

STALENESS_MS = 400.0
_LATE_MS = 8_000.0


class Client:
    """An `ObjectStore` for one simulated process."""

    def __init__(
        self,
        process: Process,
        store: CheckedStore,
        *,
        page: int = 0,
        late_ms: float = _LATE_MS,
    ) -> None:
        """Access `store` on behalf of `process`.

        A listing takes one request per `page` of objects, or one for all if it is 0. Objects that
        others write meanwhile may be in it or not. A delayed request arrives within `late_ms`.
        """
        self._process = process
        self._store = store
        self._page = page
        self._late_ms = late_ms

    @property
    def uri(self) -> str:
        """The URI of the store."""
        return self._store.uri

    @property
    def identity(self) -> str:
        """The same for every process."""
        return self._store.identity

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, or a range of it; None if absent."""
        found: StoredObject | None = self._read(
            f"get {key}", key, lambda: self._store.get(key, start=start, end=end)
        )
        return found

    def head(self, key: str) -> ObjectMeta | None:
        """Return the metadata of the object; None if absent."""
        found: ObjectMeta | None = self._read(f"head {key}", "", lambda: self._store.head(key))
        return found

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects with `prefix` in the byte order of their keys."""
        found: list[ObjectMeta] = []
        while True:
            after = found[-1].key if found else start_after
            page: list[ObjectMeta] = self._read(
                f"list {prefix}", "", partial(self._store.page, prefix, after, self._page)
            )
            found += page
            if not self._page or len(page) < self._page:
                return iter(found)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write under the condition of `mode`."""
        fault = self._fault()
        timeout = self._process.world.plan.timeout_ms
        reply: PutReply
        match fault:
            case Fault.REQUEST_LOST | Fault.UNAVAILABLE:
                reply = self._answered(f"put {key}", None, Unclear(fault.value), timeout, fault)
            case Fault.CONFLICT | Fault.THROTTLED:
                reply = self._answered(f"put {key}", None, Busy(cause=fault.value), 0.0, fault)
            case Fault.TORN if not key.startswith(".hoodie/"):
                # Not all bytes arrived, so the store has no object: it has only complete ones.
                reply = self._answered(f"put {key}", None, Unclear(fault.value), timeout, fault)
            case _:
                reply = self._sent(
                    f"put {key}",
                    fault,
                    lambda: self._store.put_by(self._process.name, key, body, mode),
                )
        return reply

    def delete(self, key: str) -> None:
        """Delete the object; an absent one is not an error."""
        fault = self._fault()
        error = StoreUnreachable(f"{key}: not deleted")
        timeout = self._process.world.plan.timeout_ms
        match fault:
            case Fault.REQUEST_LOST | Fault.UNAVAILABLE:
                self._answered(f"delete {key}", None, error, timeout, fault)
            case Fault.THROTTLED:
                self._answered(f"delete {key}", None, Throttled(f"{key}: 429"), 0.0, fault)
            case _:
                self._sent(
                    f"delete {key}",
                    None if fault in (Fault.TWICE, Fault.CONFLICT) else fault,
                    lambda: self._store.delete_by(self._process.name, key),
                )

    def upload(self, key: str) -> Upload:
        """Return an upload that sends everything at its end."""
        return BufferedUpload(lambda body: self.put(key, body, Create()))

    def local_path(self, key: str) -> str | None:
        """There are no local paths."""
        del key
        return None

    def close(self) -> None:
        """Do nothing."""

    def _fault(self) -> Fault | None:
        world = self._process.world
        if world.healed or self._process.steady or not world.plan.request_faults:
            return None
        drawn = world.random()
        for below, fault in world.plan.request_faults:
            if drawn < below:
                return fault
        return None

    def _read(self, what: str, key: str, read: Callable[[], Any]) -> Any:
        fault = self._fault()
        timeout = self._process.world.plan.timeout_ms
        match fault:
            case Fault.REQUEST_LOST | Fault.REPLY_LOST | Fault.DELAYED | Fault.UNAVAILABLE:
                error = StoreUnreachable(f"{what}: {fault.value}")
                return self._answered(what, None, error, timeout, fault)
            case Fault.THROTTLED:
                return self._answered(what, None, Throttled(f"{what}: 429"), 0.0, fault)
            case Fault.STALE if key.startswith(".hoodie/"):
                return self._answered(what, lambda: self._stale(key), None, 0.0)
            case _:
                return self._answered(what, read, None, 0.0)

    def _stale(self, key: str) -> StoredObject | None:
        world = self._process.world
        was = self._store.then(key, world.now - STALENESS_MS)
        if was != self._store.peek(key):
            world.fire(Fault.STALE)
        return was

    def _sent(self, what: str, fault: Fault | None, perform: Callable[[], Any]) -> Any:
        """Send a write that reaches the store, now or later, with or without an answer."""
        world = self._process.world
        match fault:
            case Fault.REPLY_LOST:
                return self._answered(
                    what, perform, self._no_answer(what), world.plan.timeout_ms, fault
                )
            case Fault.DELAYED:
                world.fire(fault)
                return self._answered(
                    what, None, self._no_answer(what), world.plan.timeout_ms, late=perform
                )
            case Fault.TWICE:
                return self._answered(what, lambda: self._twice(perform), None, 0.0)
            case _:
                return self._answered(what, perform, None, 0.0)

    def _no_answer(self, what: str) -> Any:
        return StoreUnreachable(what) if what.startswith("delete") else Unclear("no answer")

    def _twice(self, perform: Callable[[], Any]) -> Any:
        first, second = perform(), perform()
        if isinstance(first, Landed) and isinstance(second, Refused):
            self._process.world.fire(Fault.TWICE)
        return second

    def _answered(
        self,
        what: str,
        perform: Callable[[], Any] | None,
        instead: Any,
        wait_ms: float,
        fault: Fault | None = None,
        *,
        late: Callable[[], Any] | None = None,
    ) -> Any:
        """Run `perform` at the store and return its result, or `instead`, to the caller."""
        process, world = self._process, self._process.world
        if fault is not None:
            world.fire(fault)

        def arrange(answer: Callable[[float, Any], None]) -> None:
            leaves = process.departure_ms()
            arrives = leaves + world.random() * world.plan.latency_ms
            if late is not None:
                world.at(leaves + wait_ms + world.random() * self._late_ms, late)

            def arrive() -> None:
                result = None if perform is None else perform()
                if instead is not None:
                    answer(world.now + wait_ms, instead)
                else:
                    answer(world.now + world.random() * world.plan.latency_ms, result)

            world.at(arrives, arrive)

        if world.trace is None:
            return process.wait(arrange)
        world.log(process.name, f"sends {what}" + (f" ({fault.value})" if fault else ""))
        try:
            reply_value = process.wait(arrange)
        except (StoreUnreachable, Throttled) as error:
            world.log(process.name, f"receives {error}")
            raise
        world.log(process.name, f"receives {_brief(reply_value)} for {what}")
        return reply_value


def _brief(reply_value: object) -> str:
    match reply_value:
        case StoredObject(body):
            return f"{len(body)} bytes"
        case list():
            return f"{len(reply_value)} objects"
        case _:
            return str(reply_value)
