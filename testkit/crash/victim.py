"""The script of a victim: a full cycle of a lock, and of a plain object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.crash.expected import Reporter
from tidelock.core.errors import TidelockError
from tidelock.core.system import SystemClock
from tidelock.lock.audit import AUDIT_SWITCH_KEY, SWITCH_FIELD
from tidelock.lock.client import Lock
from tidelock.lock.heartbeat import Renewals
from tidelock.lock.lease import Lease
from tidelock.storage.contract import Create, Match, ObjectStore, Overwrite, PutMode

if TYPE_CHECKING:
    from tidelock.lock.heartbeat import Renewable
    from tidelock.lock.lease import RenewalSchedule

LEASE = Lease(validity_ms=60_000, renew_ms=6_000)
"""Longer than a point takes on a loaded machine: no lease ends while its holder lives."""
OBJECT = "data/orders/object"
SWITCH_ON = f'{{"{SWITCH_FIELD}":true}}'.encode()


class NoHeartbeat(Renewals):
    """Renews nothing by itself: the script renews explicitly."""

    def add(self, holding: Renewable, schedule: RenewalSchedule) -> None:
        """Do nothing."""

    def remove(self, holding: Renewable) -> None:
        """Do nothing."""


def lock_without_heartbeat(store: ObjectStore) -> Lock:
    """Return a lock without background activity."""
    return Lock(store, LEASE, probe=False, renewals=NoHeartbeat(SystemClock()))


def prepare(store: ObjectStore) -> dict[str, set[bytes | None]]:
    """Enable the audit log, so that its writes are crash points, too; return the objects."""
    store.put(AUDIT_SWITCH_KEY, SWITCH_ON, Overwrite())
    return {AUDIT_SWITCH_KEY: {SWITCH_ON}}


def run_lock_cycle(store: ObjectStore, reporter: Reporter) -> None:
    """Hold the lock twice (the second time on a cached version) and write an object."""
    lock = lock_without_heartbeat(store)
    reporter.send(token=str(lock.acquire(0)))
    lock.renew()
    write_objects(store, reporter)
    lock.release()
    reporter.send(token=str(lock.acquire(0)))
    lock.renew()
    lock.release()
    lock.close()


def write_objects(store: ObjectStore, reporter: Reporter) -> None:
    """Create, replace, overwrite and delete an object; continue after failures."""
    for number, step in enumerate(("create", "match", "overwrite", "delete", "create", "match")):
        body = f"{number} {step} ".encode() * 50
        try:
            if step == "delete":
                store.delete(OBJECT)
                continue
            store.put(OBJECT, body, _mode(store, step))
        except TidelockError:
            continue
        except Exception as error:
            reporter.send(bug=f"{step} raised {error!r}")


def _mode(store: ObjectStore, step: str) -> PutMode:
    if step == "overwrite":
        return Overwrite()
    found = store.head(OBJECT)
    return Match(found.version) if found else Create()
