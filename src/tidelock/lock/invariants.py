"""What every write of the lock record must satisfy, checked before it is sent.

Pure predicates on (proposed, replaced). The same code runs in production, in the exhaustive
search and in the simulator. A broken one stops the caller: it is a bug, not a fault.
"""

from __future__ import annotations

from tidelock.base.clock import Now
from tidelock.base.errors import InvariantBroken
from tidelock.lock.lease import Lease
from tidelock.lock.record import Record


def check_grant(proposed: Record, replaced: Record | None, lease: Lease, now: Now) -> None:
    """L1, L2: a grant replaces nothing, a released or a dead record, with a larger token."""
    if replaced is not None and not lease.is_free(replaced, now):
        _broken("L2: a grant over a live record", proposed, replaced)
    if replaced is not None and proposed.token <= replaced.token:
        _broken("L1: a grant whose token does not grow", proposed, replaced)
    if not 1 <= proposed.token <= proposed.token_ceiling:
        _broken("L1: a token outside its range", proposed, replaced)
    if proposed.expired or not proposed.written_by(proposed.owner):
        _broken("a grant that is released, or not its owner's", proposed, replaced)


def check_renewal(proposed: Record, replaced: Record) -> None:
    """L4: a renewal replaces the holder's own live record and keeps its token."""
    if replaced.expired or replaced.owner != proposed.owner or replaced.token != proposed.token:
        _broken("L4: a renewal of somebody else's record", proposed, replaced)
    if proposed.expired or proposed.nonce == replaced.nonce:
        _broken("P3: a renewal that is released, or repeats a nonce", proposed, replaced)


def check_release(proposed: Record, replaced: Record) -> None:
    """L4, P24: a release replaces the owner's own live record and changes only `expired`."""
    if replaced.expired or replaced.owner != proposed.owner or replaced.token != proposed.token:
        _broken("L4: a release of somebody else's record", proposed, replaced)
    if not proposed.expired or proposed.valid_until_epoch_ms != replaced.valid_until_epoch_ms:
        _broken("P24: a release that is not one", proposed, replaced)


def _broken(rule: str, proposed: Record, replaced: Record | None) -> None:
    raise InvariantBroken(f"{rule}: {proposed} would replace {replaced}")
