"""The decisions of the lock service's state machine."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.unit.lock.server.state_driver import StateDriver
from tidelock.core import limits
from tidelock.lock.server import messages as msg
from tidelock.lock.server import state as state_module
from tidelock.lock.server.entries import KeepAliveMode, LockGranted


def test_every_event_has_a_handler() -> None:
    assert set(state_module.LockState._HANDLERS) == set(get_args(msg.Event))


def test_free_resource_is_granted_at_once() -> None:
    assert StateDriver().granted().token == 1


def test_held_resource_is_not_granted_even_to_its_holder() -> None:
    driver = StateDriver()
    held = driver.granted()
    assert driver.replies[driver.request()] == msg.AlreadyLocked(held)


def test_tokens_increase_over_all_grants_of_a_resource() -> None:
    driver = StateDriver()
    tokens = []
    for _ in range(5):
        held = driver.granted()
        tokens.append(held.token)
        driver.unlock(held)
    assert tokens == sorted(set(tokens))


def test_waiters_are_granted_in_order_of_arrival() -> None:
    driver = StateDriver()
    held = driver.granted()
    waiters = [driver.waits(who=f"w{number}") for number in range(3)]
    order = []
    for waiter in waiters:
        driver.unlock(held, held.principal)
        reply = driver.replies[waiter]
        assert isinstance(reply, msg.GrantReply)
        held = reply.granted
        order.append(held.principal)
    assert order == ["w0", "w1", "w2"]


def test_disconnected_waiter_is_skipped() -> None:
    driver = StateDriver()
    held = driver.granted()
    first, second = driver.waits(), driver.waits()
    driver.send(msg.CallerLeft(first))
    driver.unlock(held)
    assert first not in driver.replies
    assert isinstance(driver.replies[second], msg.GrantReply)


def test_immediate_request_never_overtakes_the_queue() -> None:
    driver = StateDriver(has_backend=True)
    first = driver.waits()
    other = driver.request()
    assert other not in driver.replies, "the backend has not answered yet"
    driver.send(msg.BackendLockAcquired("r", 5))
    reply = driver.replies[first]
    assert isinstance(reply, msg.GrantReply)
    assert driver.replies[other] == msg.AlreadyLocked(reply.granted)
    assert driver.inspect().waiters == 0


def test_immediate_request_is_granted_if_earlier_waiters_have_left() -> None:
    driver = StateDriver(has_backend=True)
    first = driver.waits()
    other = driver.request()
    driver.send(msg.CallerLeft(first))
    driver.send(msg.BackendLockAcquired("r", 5))
    assert isinstance(driver.replies[other], msg.GrantReply)


def test_immediate_request_is_refused_at_once_while_the_backend_refuses() -> None:
    driver = StateDriver(has_backend=True)
    driver.waits()
    driver.send(msg.BackendLockRefused("r"))
    assert driver.replies[driver.request()] == msg.AlreadyLocked(None)
    driver.pass_ms(state_module.REFUSAL_FRESH_MS + 1)
    late = driver.request()
    assert late not in driver.replies, "it may have stopped answering since"
    driver.send(msg.BackendLockRefused("r", "it is away"))
    assert driver.replies[late] == msg.BackendFailed("it is away")
    assert driver.replies[driver.request()] == msg.BackendFailed("it is away"), (
        "that is known by now"
    )
    driver.send(msg.BackendLockRefused("r"))
    assert driver.replies[driver.request()] == msg.AlreadyLocked(None)


def test_backend_is_first_asked_without_a_wait() -> None:
    driver = StateDriver(has_backend=True)
    driver.waits()
    driver.send(msg.BackendLockRefused("r"))
    driver.send(msg.BackendLockRefused("r", "it is away"))
    assert [
        each.immediate
        for each in driver.backend_requests
        if isinstance(each, msg.AcquireBackendLock)
    ] == [
        True,
        False,
        False,
    ]


def test_release_by_another_principal_changes_nothing() -> None:
    driver = StateDriver()
    held = driver.granted()
    assert driver.unlock(held, "thief") == msg.LockedByOther()
    assert driver.inspect().granted == held


def test_release_by_another_id_changes_nothing() -> None:
    driver = StateDriver()
    driver.granted()
    driver.send(msg.UnlockRequest(99, "r", "p", lock_id="guessed"))
    assert driver.replies[99] == msg.LockedByOther()


def test_replayed_release_cannot_affect_a_later_grant() -> None:
    driver = StateDriver()
    first = driver.granted()
    driver.unlock(first)
    second = driver.granted()
    assert driver.unlock(first) == msg.LockedByOther()
    assert driver.inspect().granted == second


def test_release_of_an_unlocked_resource_is_missing() -> None:
    driver = StateDriver()
    held = driver.granted()
    driver.unlock(held)
    assert driver.unlock(held) == msg.NotLocked()


def test_empty_owner_releases_nothing() -> None:
    driver = StateDriver()
    driver.granted(owner="")
    driver.send(msg.UnlockRequest(99, "r", "p"))
    assert driver.replies[99] == msg.LockedByOther()


def test_timed_lock_expires_at_its_ttl_and_not_before() -> None:
    driver = StateDriver()
    driver.granted(ttl_ms=5_000)
    driver.pass_ms(4_999)
    assert driver.inspect().granted is not None
    driver.pass_ms(1)
    assert driver.inspect().granted is None
    assert driver.ends == ["expired"]


def test_expired_lock_goes_to_the_next_waiter() -> None:
    driver = StateDriver()
    driver.granted(ttl_ms=5_000)
    waiter = driver.waits()
    driver.pass_ms(5_000)
    assert isinstance(driver.replies[waiter], msg.GrantReply)


def test_renewal_extends_by_one_ttl_from_now() -> None:
    driver = StateDriver()
    held = driver.granted(ttl_ms=5_000)
    driver.pass_ms(4_000)
    driver.renew(held)
    driver.pass_ms(4_000)
    assert driver.inspect().expires_in_ms == 1_000


def test_renewal_can_change_the_ttl() -> None:
    driver = StateDriver()
    held = driver.granted(ttl_ms=5_000)
    driver.renew(held, ttl_ms=50_000)
    assert driver.inspect().expires_in_ms == 50_000
    again = driver.restarted()
    assert again.inspect().expires_in_ms == 50_000


def test_renewal_of_an_expired_lock_is_missing() -> None:
    driver = StateDriver()
    held = driver.granted(ttl_ms=5_000)
    driver.pass_ms(5_000)
    assert driver.renew(held) == msg.NotLocked()


def test_wall_clock_step_changes_no_deadline() -> None:
    driver = StateDriver()
    driver.granted(ttl_ms=5_000)
    driver.clock.wall_offset_ms = 3_600_000
    driver.pass_ms(1)
    assert driver.inspect().granted is not None
    driver.clock.wall_offset_ms = -3_600_000
    driver.pass_ms(5_000)
    assert driver.inspect().granted is None


def test_application_bound_lock_does_not_expire_while_the_application_is_healthy() -> None:
    driver = StateDriver()
    driver.granted(mode=KeepAliveMode.AUTO_RENEWED)
    driver.pass_ms(1_000_000)
    assert driver.inspect().granted is not None


def test_unhealthy_application_loses_its_lock_after_one_ttl() -> None:
    driver = StateDriver()
    driver.granted(mode=KeepAliveMode.AUTO_RENEWED, ttl_ms=5_000)
    driver.send(msg.HealthChanged(healthy=False))
    driver.pass_ms(5_000)
    assert driver.ends == ["expired"]


def test_application_that_recovers_in_time_keeps_its_lock() -> None:
    driver = StateDriver()
    driver.granted(mode=KeepAliveMode.AUTO_RENEWED, ttl_ms=5_000)
    driver.send(msg.HealthChanged(healthy=False))
    driver.pass_ms(4_000)
    driver.send(msg.HealthChanged(healthy=True))
    driver.pass_ms(50_000)
    assert driver.ends == []


def test_lock_granted_to_an_unhealthy_application_lasts_one_ttl() -> None:
    driver = StateDriver()
    driver.send(msg.HealthChanged(healthy=False))
    driver.granted(mode=KeepAliveMode.AUTO_RENEWED, ttl_ms=5_000)
    driver.pass_ms(5_000)
    assert driver.ends == ["expired"]


def test_ended_stream_releases_its_lock() -> None:
    driver = StateDriver()
    handle = driver.request(mode=KeepAliveMode.STREAM)
    driver.send(msg.CallerLeft(handle))
    assert driver.ends == ["disconnected"]


def test_lingering_lock_outlives_its_stream_by_the_linger_time() -> None:
    driver = StateDriver()
    handle = driver.request(mode=KeepAliveMode.STREAM, linger_ms=3_000)
    driver.send(msg.CallerLeft(handle))
    driver.pass_ms(2_999)
    assert driver.inspect().granted is not None
    driver.pass_ms(1)
    assert driver.ends == ["disconnected"]


def test_lingering_lock_can_be_resumed_by_its_id() -> None:
    driver = StateDriver()
    handle = driver.request(mode=KeepAliveMode.STREAM, linger_ms=3_000)
    reply = driver.replies[handle]
    assert isinstance(reply, msg.GrantReply)
    driver.send(msg.CallerLeft(handle))
    driver.send(msg.AttachStream(77, "r", "p", reply.granted.lock_id))
    assert driver.replies[77] == reply
    driver.pass_ms(60_000)
    assert driver.ends == []
    # The end of the first stream arrives late and must not end what the second holds.
    driver.send(msg.CallerLeft(handle))
    assert driver.ends == []


def test_another_principal_cannot_resume_a_stream() -> None:
    driver = StateDriver()
    handle = driver.request(mode=KeepAliveMode.STREAM, linger_ms=3_000)
    reply = driver.replies[handle]
    assert isinstance(reply, msg.GrantReply)
    driver.send(msg.AttachStream(77, "r", "thief", reply.granted.lock_id))
    assert driver.replies[77] == msg.NotLocked()


def test_forced_release_notifies_the_holding_stream() -> None:
    driver = StateDriver()
    handle = driver.request(mode=KeepAliveMode.STREAM)
    driver.send(msg.ForceUnlock(98, "r", "operator"))
    assert isinstance(driver.replies[98], msg.RequestDone)
    assert "forced by operator" in driver.ended[handle]
    assert driver.ends == ["forced"]


def test_repeated_request_is_one_grant() -> None:
    driver = StateDriver()
    assert driver.granted(request_id="q") == driver.granted(request_id="q")
    assert len(driver.entries) == 1


def test_same_request_id_of_another_principal_is_another_request() -> None:
    driver = StateDriver()
    driver.granted(request_id="q")
    assert isinstance(
        driver.replies[driver.request(who="other", request_id="q")], msg.AlreadyLocked
    )


def test_repeated_waiting_request_keeps_its_queue_position() -> None:
    driver = StateDriver()
    held = driver.granted()
    driver.waits(request_id="q")
    second = driver.waits()
    again = driver.waits(request_id="q")
    driver.unlock(held)
    assert isinstance(driver.replies[again], msg.GrantReply)
    assert second not in driver.replies


def test_request_id_is_spent_once_its_grant_is_over() -> None:
    driver = StateDriver()
    driver.unlock(driver.granted(request_id="q"))
    assert driver.replies[driver.request(request_id="q")] == msg.RequestReused()


def test_cancelled_request_is_never_granted() -> None:
    driver = StateDriver()
    held = driver.granted()
    waiter = driver.waits(request_id="q")
    driver.send(msg.UnlockRequest(90, "r", "p", request_id="q"))
    driver.unlock(held)
    assert driver.replies[waiter] == msg.RequestReused()
    assert driver.replies[driver.request(request_id="q")] == msg.RequestReused()
    assert driver.inspect().granted is None


def test_undelivered_grant_without_request_id_is_released() -> None:
    driver = StateDriver()
    held = driver.granted(mode=KeepAliveMode.AUTO_RENEWED)
    driver.send(msg.GrantUndelivered("r", held.lock_id))
    assert driver.ends == ["disconnected"]


def test_undelivered_grant_with_request_id_waits_one_ttl_for_its_owner() -> None:
    driver = StateDriver()
    held = driver.granted(mode=KeepAliveMode.AUTO_RENEWED, request_id="q", ttl_ms=5_000)
    driver.send(msg.GrantUndelivered("r", held.lock_id))
    driver.pass_ms(4_000)
    assert driver.granted(mode=KeepAliveMode.AUTO_RENEWED, request_id="q") == held
    driver.pass_ms(60_000)
    assert driver.ends == []


def test_exceeded_bounds_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "WAITERS_PER_RESOURCE_MAX", 2)
    monkeypatch.setattr(state_module, "GRANTS_PER_PRINCIPAL_MAX", 3)
    monkeypatch.setattr(state_module, "WAITERS_MAX", 3)
    driver = StateDriver()
    driver.granted("a")
    driver.waits("a"), driver.waits("a")
    assert isinstance(driver.replies[driver.request("a", immediate=False)], msg.LimitReached)
    driver.granted("b")
    driver.waits("b")
    assert isinstance(driver.replies[driver.request("b", "q", immediate=False)], msg.LimitReached)
    driver.granted("c")
    assert isinstance(driver.replies[driver.request("d")], msg.LimitReached)
    assert isinstance(driver.replies[driver.request("d", "other")], msg.GrantReply)
    assert limits.WAITERS_MAX > 3


def test_next_instance_restores_every_grant_with_one_ttl() -> None:
    driver = StateDriver()
    held = [
        driver.granted(key, ttl_ms=5_000, mode=mode)
        for key, mode in zip("tks", KeepAliveMode, strict=True)
    ]
    driver.clock.advance(4_000)
    again = driver.restarted()
    for granted in held:
        assert again.inspect(granted.key).granted == granted
        assert isinstance(again.replies[again.request(granted.key)], msg.AlreadyLocked)
    again.pass_ms(4_999)
    assert again.ends == []
    again.pass_ms(1)
    assert again.ends == ["expired"] * 3


def test_client_that_reconnects_after_a_restart_keeps_its_lock() -> None:
    driver = StateDriver()
    held = driver.granted(mode=KeepAliveMode.AUTO_RENEWED, ttl_ms=5_000)
    again = driver.restarted()
    again.renew(held)
    again.pass_ms(50_000)
    assert again.ends == []
    assert again.unlock(held) == msg.RequestDone(held)


def test_tokens_continue_after_a_restart() -> None:
    driver = StateDriver()
    first = driver.granted()
    again = driver.restarted()
    again.unlock(first)
    assert again.granted().token > first.token


def test_backend_is_asked_before_a_grant_and_its_token_is_used() -> None:
    driver = StateDriver(has_backend=True)
    handle = driver.request(ttl_ms=7_000)
    assert driver.backend_requests == [msg.AcquireBackendLock("r", 7_000, immediate=True)]
    assert handle not in driver.replies
    driver.send(msg.BackendLockAcquired("r", 4711))
    reply = driver.replies[handle]
    assert isinstance(reply, msg.GrantReply)
    assert reply.granted.token == 4711


def test_backend_refusal_is_a_refusal() -> None:
    driver = StateDriver(has_backend=True)
    handle = driver.request()
    driver.send(msg.BackendLockRefused("r"))
    assert driver.replies[handle] == msg.AlreadyLocked(None)
    assert driver.inspect().waiters == 0


def test_backend_failure_is_not_a_refusal() -> None:
    driver = StateDriver(has_backend=True)
    handle = driver.request()
    driver.send(msg.BackendLockRefused("r", "it is away"))
    assert driver.replies[handle] == msg.BackendFailed("it is away")


def test_waiter_keeps_waiting_for_the_backend() -> None:
    driver = StateDriver(has_backend=True)
    handle = driver.waits()
    driver.send(msg.BackendLockRefused("r"))
    driver.send(msg.BackendLockRefused("r", "it is away"))
    assert len(driver.backend_requests) == 3
    driver.send(msg.BackendLockAcquired("r", 1))
    assert isinstance(driver.replies[handle], msg.GrantReply)


def test_waiter_is_notified_of_a_long_backend_outage() -> None:
    driver = StateDriver(has_backend=True)
    first, second = driver.waits(), driver.waits()
    driver.send(msg.BackendLockRefused("r", "it is away"))
    driver.pass_ms(limits.BACKEND_OUTAGE_MS_MAX - 1)
    driver.send(msg.BackendLockRefused("r", "it is away"))
    assert first not in driver.replies
    driver.pass_ms(1)
    driver.send(msg.BackendLockRefused("r", "it is away"))
    assert driver.replies[first] == driver.replies[second] == msg.BackendFailed("it is away")
    assert driver.inspect().waiters == 0


def test_backend_reply_restarts_the_outage_timer() -> None:
    driver = StateDriver(has_backend=True)
    handle = driver.waits()
    driver.send(msg.BackendLockRefused("r", "it is away"))
    driver.pass_ms(limits.BACKEND_OUTAGE_MS_MAX - 1)
    driver.send(msg.BackendLockRefused("r"))
    driver.pass_ms(limits.BACKEND_OUTAGE_MS_MAX - 1)
    driver.send(msg.BackendLockRefused("r", "it is away"))
    assert handle not in driver.replies


def test_unneeded_backend_lock_is_released() -> None:
    driver = StateDriver(has_backend=True)
    handle = driver.waits()
    driver.send(msg.CallerLeft(handle))
    driver.send(msg.BackendLockAcquired("r", 1))
    assert driver.backend_requests[-1] == msg.ReleaseBackendLock("r")
    assert driver.inspect().granted is None


def test_lock_lost_in_the_backend_ends_the_grant_and_notifies_the_stream() -> None:
    driver = StateDriver(has_backend=True)
    handle = driver.request(mode=KeepAliveMode.STREAM)
    driver.send(msg.BackendLockAcquired("r", 1))
    driver.send(msg.LoseLock("r", "", "stolen"))
    assert driver.ended[handle] == "stolen"
    assert driver.ends == ["lost"]


def test_grant_of_a_dead_instance_cannot_be_renewed_if_its_backend_lock_can_expire() -> None:
    driver = StateDriver(has_backend=True)
    handle = driver.request(mode=KeepAliveMode.TIMED)
    driver.send(msg.BackendLockAcquired("r", 1))
    reply = driver.replies[handle]
    assert isinstance(reply, msg.GrantReply)
    again = driver.restarted()
    assert again.renew(reply.granted) == msg.NotLocked()
    # Nevertheless it is not granted to another client early.
    assert isinstance(again.replies[again.request()], msg.AlreadyLocked)


def test_backend_lock_bounds_the_grant() -> None:
    driver = StateDriver(has_backend=True)
    handle = driver.request(ttl_ms=5_000)
    driver.send(msg.BackendLockAcquired("r", 1))
    reply = driver.replies[handle]
    assert isinstance(reply, msg.GrantReply)
    renewed = driver.renew(reply.granted, ttl_ms=60_000)
    assert isinstance(renewed, msg.GrantReply)
    assert renewed.granted.ttl_ms == 5_000


def test_every_grant_has_one_entry_and_every_end_one() -> None:
    driver = StateDriver()
    held = driver.granted()
    driver.waits()
    driver.unlock(held)
    driver.pass_ms(20_000)
    kinds = [type(entry.decision).__name__ for entry in driver.entries]
    assert kinds == ["LockGranted", "GrantEnded", "LockGranted", "GrantEnded"]
    assert all(isinstance(e.decision, LockGranted) or e.decision for e in driver.entries)
