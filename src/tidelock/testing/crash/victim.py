"""What a victim does until it dies: the whole life of a lock, and of a plain object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelock.base.clock import SystemClock
from tidelock.base.errors import TidelockError
from tidelock.lock.audit import AUDIT_SWITCH_KEY, SWITCH_FIELD
from tidelock.lock.driver import Lock
from tidelock.lock.lease import Lease
from tidelock.lock.renewal import Renewals
from tidelock.store.contract import Create, Match, ObjectStore, Overwrite, PutMode
from tidelock.testing.crash.ledger import Narrator

if TYPE_CHECKING:
    from tidelock.lock.heartbeat import Heartbeat
    from tidelock.lock.renewal import Renewable

LEASE = Lease(validity_ms=2_000, renew_ms=200)
OBJECT = "data/orders/object"
SWITCH_ON = f'{{"{SWITCH_FIELD}":true}}'.encode()


class NoHeartbeat(Renewals):
    """Renews nothing by itself: a victim renews when its story says so."""

    def add(self, holding: Renewable, beat: Heartbeat) -> None:
        """Leave it alone."""

    def remove(self, holding: Renewable) -> None:
        """It was left alone."""


def quiet_lock(store: ObjectStore) -> Lock:
    """Return a lock that does nothing between its verbs."""
    return Lock(store, LEASE, probe=False, renewals=NoHeartbeat(SystemClock()))


def prepare(store: ObjectStore) -> dict[str, set[bytes | None]]:
    """Switch the audit log on, so that its writes are crash points too; return what is there."""
    store.put(AUDIT_SWITCH_KEY, SWITCH_ON, Overwrite())
    return {AUDIT_SWITCH_KEY: {SWITCH_ON}}


def live(store: ObjectStore, narrator: Narrator) -> None:
    """Hold the lock twice (the second time on a known version) and write an object under it."""
    lock = quiet_lock(store)
    narrator.say(token=str(lock.acquire(0)))
    lock.renew()
    write_objects(store, narrator)
    lock.release()
    narrator.say(token=str(lock.acquire(0)))
    lock.renew()
    lock.release()
    lock.close()


def write_objects(store: ObjectStore, narrator: Narrator) -> None:
    """Create, replace, overwrite and delete an object, going on after every failure."""
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
            narrator.say(bug=f"{step} raised {error!r}")


def _mode(store: ObjectStore, step: str) -> PutMode:
    if step == "overwrite":
        return Overwrite()
    found = store.head(OBJECT)
    return Match(found.version) if found else Create()
