"""One acquire and release, against the two conditional writes that it stands on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figures import Latency, interleaved
from benchmarks.places import Place
from tidelock.base.outcome import Landed
from tidelock.lock.objects import LOCK_KEY
from tidelock.store.contract import Match, ObjectStore, Overwrite

GOAL = 1.2
BUDGET_S = 5.0
# As large as a record of ours with all its fields.
_BODY = b'{"padding":"' + b"x" * 285 + b'","write":%020d}'


@dataclass(frozen=True, slots=True)
class CycleResult:
    """The two side by side on one store."""

    store: str
    lock: Latency
    raw: Latency

    @property
    def ratio(self) -> float:
        """How many times longer the lock takes, by the medians."""
        return self.lock.p50_us / self.raw.p50_us


def measure(place: Place) -> CycleResult:
    """Measure acquire+release and two raw conditional puts in turn."""
    place.prove("cycle")
    held = place.lock("cycle")
    raw_store = place.store("raw")
    raw = two_puts(raw_store)

    def cycle() -> None:
        held.acquire()
        held.release()

    samples = interleaved({"lock": cycle, "raw": raw}, budget_s=BUDGET_S)
    held.close()
    raw_store.close()
    return CycleResult(place.name, Latency.of(samples["lock"]), Latency.of(samples["raw"]))


def two_puts(store: ObjectStore) -> Callable[[], None]:
    """Return an action that replaces an object twice, each time on the version it knows."""
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
