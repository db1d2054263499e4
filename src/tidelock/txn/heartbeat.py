"""Heartbeats: who is writing, and whether they are still alive (C38-C42).

The file is Hudi's, one per running instant, and Java judges it by the time it was last written.
Ours also says in its body who wrote it and how often it is to be expected.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from tidelock.base.errors import DataCorrupt
from tidelock.store.contract import StoredObject
from tidelock.txn.fields import Fields

HEARTBEAT_FOLDER: Final = ".hoodie/.heartbeat"

_BODY_BYTES_MAX: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a running instant says of itself."""

    owner: str
    attempt: int
    nonce: str
    interval_ms: int
    misses: int
    since_epoch_ms: int
    operation: str = ""
    host: str = ""
    pid: int = 0
    markers: bool = False
    """Every data file is announced by a marker, so those tell what there is to remove."""
    lock: str = ""
    """The lock provider that its writer takes the table's lock with; "" without one."""
    mode: str = ""
    """The concurrency mode of its writer."""

    @property
    def life_ms(self) -> int:
        """How long after a heartbeat the writer counts as alive."""
        return self.interval_ms * self.misses


@dataclass(frozen=True, slots=True)
class Pulse:
    """A heartbeat file as somebody found it; `says` is None for a Java writer's."""

    instant: str
    modified_epoch_ms: int
    says: Heartbeat | None = None

    def age_ms(self, now_epoch_ms: int) -> int:
        """Return how long ago it was written, by the reader's clock."""
        return max(0, now_epoch_ms - self.modified_epoch_ms)

    def is_alive(self, now_epoch_ms: int, *, otherwise_ms: int) -> bool:
        """Tell whether the writer counts as alive; Java's word for it is `otherwise_ms`."""
        life_ms = self.says.life_ms if self.says is not None else otherwise_ms
        return self.age_ms(now_epoch_ms) <= life_ms


def heartbeat_key(instant: str) -> str:
    """Return the object of an instant's heartbeat."""
    return f"{HEARTBEAT_FOLDER}/{instant}"


def stamped(beat: Heartbeat, nonce: str, attempt: int, since_epoch_ms: int) -> Heartbeat:
    """Return a heartbeat for one attempt at one instant."""
    return replace(beat, nonce=nonce, attempt=attempt, since_epoch_ms=since_epoch_ms)


def encode(beat: Heartbeat) -> bytes:
    """Return the body of a heartbeat."""
    record = {
        "owner": beat.owner,
        "attempt": beat.attempt,
        "nonce": beat.nonce,
        "intervalMs": beat.interval_ms,
        "misses": beat.misses,
        "since": beat.since_epoch_ms,
        "operation": beat.operation,
        "host": beat.host,
        "pid": beat.pid,
        "markers": beat.markers,
        "lock": beat.lock,
        "mode": beat.mode,
    }
    return json.dumps(record, separators=(",", ":")).encode()


def pulse_of(instant: str, found: StoredObject) -> Pulse:
    """Return what a heartbeat file tells; one that is not ours tells only its age."""
    says: Heartbeat | None = None
    if found.body and len(found.body) <= _BODY_BYTES_MAX:
        try:
            says = _decode(found.body, heartbeat_key(instant))
        except DataCorrupt:
            says = None
    return Pulse(instant, found.modified_epoch_ms, says)


def _decode(body: bytes, where: str) -> Heartbeat:
    fields = Fields.parse(body, where)
    return Heartbeat(
        owner=fields.text("owner"),
        attempt=fields.whole("attempt"),
        nonce=fields.text("nonce"),
        interval_ms=fields.whole("intervalMs"),
        misses=fields.whole("misses"),
        since_epoch_ms=fields.whole("since"),
        operation=fields.text("operation"),
        host=fields.text("host"),
        pid=fields.whole("pid"),
        markers=fields.raw("markers") is True,
        # Heartbeats of older releases do not say.
        lock=str(fields.raw("lock") or ""),
        mode=str(fields.raw("mode") or ""),
    )
