"""Deadlines, takeover times (P8-P10) and invalid lease terms."""

from __future__ import annotations

import pytest

from tidelock.core.clock import Now
from tidelock.core.errors import ConfigInvalid
from tidelock.lock.lease import Lease
from tidelock.lock.record import LockRecord

LEASE = Lease(validity_ms=300_000, renew_ms=30_000)
SENT = Now(monotonic_ms=5_000, wall_epoch_ms=1_700_000_000_000)


def until(valid_until_epoch_ms: int, *, expired: bool = False) -> LockRecord:
    return LockRecord(expired=expired, valid_until_epoch_ms=valid_until_epoch_ms, owner="o")


def test_p8_others_see_the_wall_time_plus_the_validity() -> None:
    assert LEASE.valid_until_epoch_ms(SENT) == SENT.wall_epoch_ms + 300_000


def test_p9_deadline_is_the_request_plus_the_validity_less_the_margin() -> None:
    assert LEASE.deadline_monotonic_ms(SENT) == 5_000 + 300_000 - 15_000


@pytest.mark.parametrize(
    ("validity_ms", "margin_ms"), [(1_000, 200), (4_000, 200), (4_020, 201), (300_000, 15_000)]
)
def test_p9_margin_is_a_twentieth_and_at_least_200_ms(validity_ms: int, margin_ms: int) -> None:
    assert Lease(validity_ms=validity_ms, renew_ms=100).margin_ms == margin_ms


def test_p10_record_is_dead_only_beyond_validity_drift_and_grace() -> None:
    record = until(SENT.wall_epoch_ms)
    assert not LEASE.is_dead(record, Now(0, SENT.wall_epoch_ms + 1_000))
    assert LEASE.is_dead(record, Now(0, SENT.wall_epoch_ms + 1_001))
    assert LEASE.dead_after_epoch_ms(record) == SENT.wall_epoch_ms + 1_000


def test_p10_larger_drift_delays_contenders() -> None:
    lease = Lease(validity_ms=300_000, renew_ms=30_000, drift_ms=5_000)
    assert lease.dead_after_epoch_ms(until(0)) == 5_500


def test_released_record_is_free_regardless_of_its_validity() -> None:
    assert LEASE.is_free(until(SENT.wall_epoch_ms + 10**9, expired=True), SENT)
    assert not LEASE.is_free(until(SENT.wall_epoch_ms), SENT)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"drift_ms": 499}, "drift: expected at least 500 ms, got 499 ms"),
        ({"grace_ms": -1}, "grace of 0 ms or more"),
        ({"renew_ms": 0}, "renewal interval of 1 ms or more"),
        ({"renew_ms": 30_001}, "at least 10 renewal intervals"),
        ({"validity_ms": 24 * 3_600_000 + 1}, "at most a day"),
        ({"validity_ms": 400, "renew_ms": 40}, "expected more than 400 ms"),
    ],
)
def test_unsafe_lease_terms_are_refused(terms: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message) as caught:
        Lease(**{"validity_ms": 300_000, "renew_ms": 30_000, **terms})
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "terms",
    [{"drift_ms": 500}, {"grace_ms": 0}, {"renew_ms": 30_000}, {"validity_ms": 24 * 3_600_000}],
)
def test_terms_at_the_limit_are_accepted(terms: dict[str, int]) -> None:
    lease = Lease(**{"validity_ms": 300_000, "renew_ms": 30_000, **terms})
    assert {name: getattr(lease, name) for name in terms} == terms
