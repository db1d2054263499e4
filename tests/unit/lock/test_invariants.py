"""Invariants of writes: each accepts a valid write and stops an invalid one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.lock.machine_driver import (
    DEAD_AFTER_MS,
    EPOCH_MS,
    LEASE,
    ME,
    OTHER,
    record,
    released,
)
from tidelock.core.clock import Now
from tidelock.core.errors import InvariantBroken
from tidelock.lock.invariants import check_grant, check_release, check_renewal
from tidelock.lock.record import LockRecord

NOW = Now(0, EPOCH_MS)
GRANT = record(ME, token=8, nonce=f"{ME}:5")
HELD = record(ME, token=8, nonce=f"{ME}:5")
RENEWAL = replace(HELD, nonce=f"{ME}:6", valid_until_epoch_ms=HELD.valid_until_epoch_ms + 1)
RELEASE = replace(HELD, nonce=f"{ME}:6", expired=True)


@pytest.mark.parametrize("replaced", [None, released(), released(ME, token=3)])
def test_grant_over_nothing_or_a_released_record_passes(replaced: LockRecord | None) -> None:
    check_grant(GRANT, replaced, LEASE, NOW)


def test_grant_over_a_dead_record_passes() -> None:
    check_grant(GRANT, record(), LEASE, Now(0, EPOCH_MS + DEAD_AFTER_MS + 1))


@pytest.mark.parametrize(
    ("grant", "replaced", "rule"),
    [
        (GRANT, record(), "L2: a grant over a live record"),
        (GRANT, released(token=8), "L1: a grant whose token does not grow"),
        (GRANT, released(token=9), "L1: a grant whose token does not grow"),
        (replace(GRANT, token_ceiling=7), None, "L1: a token outside its range"),
        (replace(GRANT, token=0), None, "L1: a token outside its range"),
        (replace(GRANT, expired=True), None, "a grant that is released"),
        (replace(GRANT, nonce=f"{OTHER}:5"), None, "or not written by its owner"),
    ],
)
def test_grant_that_breaks_a_rule_is_stopped(
    grant: LockRecord, replaced: LockRecord | None, rule: str
) -> None:
    with pytest.raises(InvariantBroken, match=rule):
        check_grant(grant, replaced, LEASE, NOW)


def test_grant_over_a_record_that_expires_this_millisecond_is_stopped() -> None:
    with pytest.raises(InvariantBroken, match="L2"):
        check_grant(GRANT, record(), LEASE, Now(0, EPOCH_MS + DEAD_AFTER_MS))


def test_renewal_and_release_of_our_own_live_record_pass() -> None:
    check_renewal(RENEWAL, HELD)
    check_release(RELEASE, HELD)


@pytest.mark.parametrize(
    "replaced",
    [replace(HELD, expired=True), replace(HELD, owner=OTHER), replace(HELD, token=7)],
    ids=["released", "another owner's", "another token's"],
)
def test_l4_write_over_another_owners_record_is_stopped(replaced: LockRecord) -> None:
    with pytest.raises(InvariantBroken, match="L4: a renewal of another owner's"):
        check_renewal(RENEWAL, replaced)
    with pytest.raises(InvariantBroken, match="L4: a release of another owner's"):
        check_release(RELEASE, replaced)


@pytest.mark.parametrize("renewal", [replace(RENEWAL, expired=True), replace(HELD)])
def test_p3_renewal_that_is_released_or_repeats_a_nonce_is_stopped(renewal: LockRecord) -> None:
    with pytest.raises(InvariantBroken, match="P3"):
        check_renewal(renewal, HELD)


@pytest.mark.parametrize("release", [RENEWAL, replace(RELEASE, valid_until_epoch_ms=1)])
def test_p24_invalid_release_is_stopped(release: LockRecord) -> None:
    with pytest.raises(InvariantBroken, match="P24"):
        check_release(release, HELD)
