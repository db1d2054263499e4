"""Invariants of writes to the lock record, checked before each write.

Pure predicates on the proposed and the replaced record. The same code runs in production, in the
exhaustive search and in the simulator. A violation is a bug and stops the caller.
"""

from __future__ import annotations

from tidelock.core.clock import Now
from tidelock.core.errors import InvariantBroken
from tidelock.lock.lease import Lease
from tidelock.lock.record import LockRecord


def check_grant(proposed: LockRecord, replaced: LockRecord | None, lease: Lease, now: Now) -> None:
    """L1, L2: a grant replaces no record or a released or dead one, with a larger token."""
    if replaced is not None and not lease.is_free(replaced, now):
        _broken("L2: a grant over a live record", proposed, replaced)
    if replaced is not None and proposed.token <= replaced.token:
        _broken("L1: a grant whose token does not grow", proposed, replaced)
    if not 1 <= proposed.token <= proposed.token_ceiling:
        _broken("L1: a token outside its range", proposed, replaced)
    if proposed.expired or not proposed.written_by(proposed.owner):
        _broken("a grant that is released, or not written by its owner", proposed, replaced)


def check_renewal(proposed: LockRecord, replaced: LockRecord) -> None:
    """L4: a renewal replaces the holder's own live record and keeps its token."""
    if replaced.expired or replaced.owner != proposed.owner or replaced.token != proposed.token:
        _broken("L4: a renewal of another owner's record", proposed, replaced)
    if proposed.expired or proposed.nonce == replaced.nonce:
        _broken("P3: a renewal that is released, or repeats a nonce", proposed, replaced)


def check_release(proposed: LockRecord, replaced: LockRecord) -> None:
    """L4, P24: a release replaces the owner's own live record and changes only `expired`."""
    if replaced.expired or replaced.owner != proposed.owner or replaced.token != proposed.token:
        _broken("L4: a release of another owner's record", proposed, replaced)
    if not proposed.expired or proposed.valid_until_epoch_ms != replaced.valid_until_epoch_ms:
        _broken("P24: a release that is not released, or moves the expiry", proposed, replaced)


def _broken(rule: str, proposed: LockRecord, replaced: LockRecord | None) -> None:
    raise InvariantBroken(f"{rule}: {proposed} would replace {replaced}")
