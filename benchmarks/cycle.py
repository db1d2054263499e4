"""One acquire and release, compared with two raw conditional writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figures import Latency, interleaved
from benchmarks.stores import BenchStore
from tidelock.core.outcome import Landed
from tidelock.lock.record_store import LOCK_KEY
from tidelock.storage.contract import Match, ObjectStore, Overwrite

GOAL = 1.2
BUDGET_S = 5.0
# The size of a lock record with all its fields.
_BODY = b'{"padding":"' + b"x" * 285 + b'","write":%020d}'


@dataclass(frozen=True, slots=True)
class CycleResult:
    """The latency of the lock and of the raw store."""

    store: str
    lock: Latency
    raw: Latency

    @property
    def ratio(self) -> float:
        """The ratio of the medians, lock to raw store."""
        return self.lock.p50_us / self.raw.p50_us


def measure(location: BenchStore) -> CycleResult:
    """Measure acquire and release, and two raw conditional puts, in turn."""
    location.prove("cycle")
    held = location.lock("cycle")
    raw_store = location.store("raw")
    raw = two_puts(raw_store)

    def cycle() -> None:
        held.acquire()
        held.release()

    samples = interleaved({"lock": cycle, "raw": raw}, budget_s=BUDGET_S)
    held.close()
    raw_store.close()
    return CycleResult(location.name, Latency.of(samples["lock"]), Latency.of(samples["raw"]))


def two_puts(store: ObjectStore) -> Callable[[], None]:
    """Return an action that replaces an object twice, each time on its known version."""
    written = store.put(LOCK_KEY, _BODY % 0, Overwrite())
    assert isinstance(written, Landed)
    version = written.version
    count = 0

    def put_twice() -> None:
        nonlocal version, count
        for _ in range(2):
            count += 1
            reply = store.put(LOCK_KEY, _BODY % count, Match(version))
            assert isinstance(reply, Landed)
            version = reply.version

    return put_twice
