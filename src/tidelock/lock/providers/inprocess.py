"""Lock provider for the threads of one process, by base path: Hudi's `InProcessLockProvider`.

Waiters get the lock in order of arrival. Unlike in Hudi, the lock of a thread that has ended is
released, and acquiring again with the same provider keeps the holding instead of failing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelock.core.clock import Clock
from tidelock.core.system import SystemClock
from tidelock.lock.config import BASE_PATH
from tidelock.lock.provider import Features, Holder
from tidelock.lock.providers import backend as b
from tidelock.lock.providers import config
from tidelock.lock.providers.leased import ConfiguredProvider

_RENEW_MS = 500


@dataclass(slots=True)
class _Queue:
    """The queue of one lock, the holder first, and the number of grants."""

    attempts: list[b.Attempt] = field(default_factory=list)
    granted: int = 0
    is_held: bool = False
    since_epoch_ms: int = 0
    changed: threading.Event = field(default_factory=threading.Event)


class _ProcessLocks:
    """The locks of this process."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self.mutex = threading.Lock()
        self.queues: dict[str, _Queue] = {}


_process = _ProcessLocks()


class InProcessBackend:
    """One lock of this process."""

    features = Features(
        blocking_wait=True, fencing_token=True, fair_queue=True, force_release=True, watch=True
    )

    def __init__(self, name: str, *, clock: Clock | None = None) -> None:
        self.uri = f"process://{os.getpid()}/{name}"
        # Nothing is renewed: the heartbeat detects that the owning thread has ended.
        self.terms = b.LeaseTerms(None, _RENEW_MS)
        self._name = name
        self._clock = clock or SystemClock()

    def try_acquire(self, attempt: b.Attempt) -> b.AcquireReply:
        """Join the queue; the head of the queue holds the lock."""
        with _process.mutex:
            queue = _process.queues.setdefault(self._name, _Queue())
            if attempt not in queue.attempts:
                queue.attempts.append(attempt)
            first = queue.attempts[0]
            if first != attempt or queue.is_held:
                return b.HeldByOther(first.id, queued=True, changed=queue.changed)
            queue.is_held = True
            queue.granted += 1
            queue.since_epoch_ms = self._clock.now().wall_epoch_ms
            return b.BackendAcquired(b.BackendGrant(attempt, attempt.id, queue.granted))

    def cancel(self, attempt: b.Attempt) -> bool:
        """Leave the queue, or release the grant."""
        with _process.mutex:
            return self._remove(attempt)

    def renew(self, grant: b.BackendGrant) -> b.RenewReply:
        """Return whether the lock is still ours."""
        with _process.mutex:
            queue = _process.queues.get(self._name)
            if queue is None or not queue.is_held or queue.attempts[:1] != [grant.attempt]:
                return b.GrantLost("it was released by force")
            return b.RenewedLease(grant)

    def release(self, grant: b.BackendGrant) -> b.ReleaseReply:
        """Pass the lock to the next in the queue."""
        return (
            b.GrantReleased()
            if self.cancel(grant.attempt)
            else b.GrantLost("it was released by force")
        )

    def abandon(self, grant: b.BackendGrant) -> None:
        """Pass the lock to the next in the queue: locks of a process do not expire."""
        self.cancel(grant.attempt)

    def holder(self) -> Holder | None:
        with _process.mutex:
            queue = _process.queues.get(self._name)
            if queue is None or not queue.is_held:
                return None
            return Holder(
                queue.attempts[0].id,
                queue.granted,
                queue.since_epoch_ms,
                waiters=len(queue.attempts) - 1,
            )

    def force_release(self) -> bool:
        """Remove the head of the queue."""
        with _process.mutex:
            queue = _process.queues.get(self._name)
            return queue is not None and queue.is_held and self._remove(queue.attempts[0])

    def close(self) -> None:
        """Keep the grant counter: tokens must keep increasing."""

    def _remove(self, attempt: b.Attempt) -> bool:
        queue = _process.queues.get(self._name)
        if queue is None or attempt not in queue.attempts:
            return False
        if queue.attempts[0] == attempt:
            queue.is_held = False
        queue.attempts.remove(attempt)
        queue.changed.set()
        queue.changed = threading.Event()
        return True


class InProcessLockProvider(ConfiguredProvider):
    """Hudi's `InProcessLockProvider`: the lock is named by `hoodie.base.path`."""

    def open_backend(self, settings: Mapping[str, object]) -> b.Backend:
        """Return the lock of the resource or base path. Raises: `ConfigInvalid`, as in Hudi."""
        return InProcessBackend(config.RESOURCE.value(settings) or BASE_PATH.required(settings))
