"""The lock service's decisions, one by one."""

from __future__ import annotations

import pytest

from tests.unit.lockservice.desks import Talk
from tidelock.base import limits
from tidelock.lockservice import asking as a
from tidelock.lockservice import desk as desk_module
from tidelock.lockservice.entries import Granted, Mode


def test_a_free_resource_is_granted_at_once() -> None:
    assert Talk().granted().token == 1


def test_a_held_resource_is_not_granted_even_to_its_holder() -> None:
    talk = Talk()
    held = talk.granted()
    assert talk.replies[talk.ask()] == a.Locked(held)


def test_tokens_increase_over_all_grants_of_a_resource() -> None:
    talk = Talk()
    tokens = []
    for _ in range(5):
        held = talk.granted()
        tokens.append(held.token)
        talk.unlock(held)
    assert tokens == sorted(set(tokens))


def test_waiters_are_served_in_order_of_arrival() -> None:
    talk = Talk()
    held = talk.granted()
    waiters = [talk.waits(who=f"w{number}") for number in range(3)]
    order = []
    for waiter in waiters:
        talk.unlock(held, held.principal)
        verdict = talk.replies[waiter]
        assert isinstance(verdict, a.Yes)
        held = verdict.granted
        order.append(held.principal)
    assert order == ["w0", "w1", "w2"]


def test_a_waiter_that_leaves_is_passed_over() -> None:
    talk = Talk()
    held = talk.granted()
    first, second = talk.waits(), talk.waits()
    talk.say(a.Leave(first))
    talk.unlock(held)
    assert first not in talk.replies
    assert isinstance(talk.replies[second], a.Yes)


def test_an_immediate_request_never_overtakes_the_queue() -> None:
    talk = Talk(gated=True)
    first = talk.waits()
    other = talk.ask()
    assert other not in talk.replies, "the backend has not answered yet"
    talk.say(a.Taken("r", 5))
    verdict = talk.replies[first]
    assert isinstance(verdict, a.Yes)
    assert talk.replies[other] == a.Locked(verdict.granted)
    assert talk.look().waiters == 0


def test_an_immediate_request_gets_the_lock_if_those_before_it_have_left() -> None:
    talk = Talk(gated=True)
    first = talk.waits()
    other = talk.ask()
    talk.say(a.Leave(first))
    talk.say(a.Taken("r", 5))
    assert isinstance(talk.replies[other], a.Yes)


def test_an_immediate_request_is_refused_at_once_while_the_backend_says_no() -> None:
    talk = Talk(gated=True)
    talk.waits()
    talk.say(a.NotTaken("r"))
    assert talk.replies[talk.ask()] == a.Locked(None)
    talk.pass_ms(desk_module.REFUSAL_FRESH_MS + 1)
    late = talk.ask()
    assert late not in talk.replies, "it may have stopped answering since"
    talk.say(a.NotTaken("r", "it is away"))
    assert talk.replies[late] == a.Failed("it is away")
    assert talk.replies[talk.ask()] == a.Failed("it is away"), "that is known by now"
    talk.say(a.NotTaken("r"))
    assert talk.replies[talk.ask()] == a.Locked(None)


def test_the_backend_is_first_asked_without_patience() -> None:
    talk = Talk(gated=True)
    talk.waits()
    talk.say(a.NotTaken("r"))
    talk.say(a.NotTaken("r", "it is away"))
    assert [take.immediate for take in talk.asked if isinstance(take, a.Take)] == [
        True,
        False,
        False,
    ]


def test_release_by_another_principal_changes_nothing() -> None:
    talk = Talk()
    held = talk.granted()
    assert talk.unlock(held, "thief") == a.Foreign()
    assert talk.look().granted == held


def test_release_by_another_id_changes_nothing() -> None:
    talk = Talk()
    talk.granted()
    talk.say(a.Unlock(99, "r", "p", lock_id="guessed"))
    assert talk.replies[99] == a.Foreign()


def test_a_replayed_release_cannot_hit_a_later_grant() -> None:
    talk = Talk()
    first = talk.granted()
    talk.unlock(first)
    second = talk.granted()
    assert talk.unlock(first) == a.Foreign()
    assert talk.look().granted == second


def test_release_of_what_is_not_locked_is_missing() -> None:
    talk = Talk()
    held = talk.granted()
    talk.unlock(held)
    assert talk.unlock(held) == a.Missing()


def test_an_empty_owner_releases_nothing() -> None:
    talk = Talk()
    talk.granted(owner="")
    talk.say(a.Unlock(99, "r", "p"))
    assert talk.replies[99] == a.Foreign()


def test_a_timed_lock_expires_at_its_ttl_and_not_before() -> None:
    talk = Talk()
    talk.granted(ttl_ms=5_000)
    talk.pass_ms(4_999)
    assert talk.look().granted is not None
    talk.pass_ms(1)
    assert talk.look().granted is None
    assert talk.ends == ["expired"]


def test_an_expired_lock_goes_to_the_next_waiter() -> None:
    talk = Talk()
    talk.granted(ttl_ms=5_000)
    waiter = talk.waits()
    talk.pass_ms(5_000)
    assert isinstance(talk.replies[waiter], a.Yes)


def test_renewal_counts_one_ttl_from_now() -> None:
    talk = Talk()
    held = talk.granted(ttl_ms=5_000)
    talk.pass_ms(4_000)
    talk.renew(held)
    talk.pass_ms(4_000)
    assert talk.look().expires_in_ms == 1_000


def test_renewal_may_change_the_ttl() -> None:
    talk = Talk()
    held = talk.granted(ttl_ms=5_000)
    talk.renew(held, ttl_ms=50_000)
    assert talk.look().expires_in_ms == 50_000
    again = talk.restarted()
    assert again.look().expires_in_ms == 50_000


def test_renewal_of_an_expired_lock_is_missing() -> None:
    talk = Talk()
    held = talk.granted(ttl_ms=5_000)
    talk.pass_ms(5_000)
    assert talk.renew(held) == a.Missing()


def test_a_wall_clock_step_changes_no_deadline() -> None:
    talk = Talk()
    talk.granted(ttl_ms=5_000)
    talk.clock.wall_offset_ms = 3_600_000
    talk.pass_ms(1)
    assert talk.look().granted is not None
    talk.clock.wall_offset_ms = -3_600_000
    talk.pass_ms(5_000)
    assert talk.look().granted is None


def test_a_kept_lock_does_not_expire_while_the_application_is_healthy() -> None:
    talk = Talk()
    talk.granted(mode=Mode.KEPT)
    talk.pass_ms(1_000_000)
    assert talk.look().granted is not None


def test_an_unhealthy_application_loses_its_kept_lock_after_one_ttl() -> None:
    talk = Talk()
    talk.granted(mode=Mode.KEPT, ttl_ms=5_000)
    talk.say(a.Health(healthy=False))
    talk.pass_ms(5_000)
    assert talk.ends == ["expired"]


def test_an_application_that_recovers_in_time_keeps_its_lock() -> None:
    talk = Talk()
    talk.granted(mode=Mode.KEPT, ttl_ms=5_000)
    talk.say(a.Health(healthy=False))
    talk.pass_ms(4_000)
    talk.say(a.Health(healthy=True))
    talk.pass_ms(50_000)
    assert talk.ends == []


def test_a_lock_granted_to_an_unhealthy_application_lasts_one_ttl() -> None:
    talk = Talk()
    talk.say(a.Health(healthy=False))
    talk.granted(mode=Mode.KEPT, ttl_ms=5_000)
    talk.pass_ms(5_000)
    assert talk.ends == ["expired"]


def test_a_stream_that_ends_releases_its_lock() -> None:
    talk = Talk()
    handle = talk.ask(mode=Mode.STREAM)
    talk.say(a.Leave(handle))
    assert talk.ends == ["disconnected"]


def test_a_lingering_lock_outlives_its_stream_by_exactly_that() -> None:
    talk = Talk()
    handle = talk.ask(mode=Mode.STREAM, linger_ms=3_000)
    talk.say(a.Leave(handle))
    talk.pass_ms(2_999)
    assert talk.look().granted is not None
    talk.pass_ms(1)
    assert talk.ends == ["disconnected"]


def test_a_lingering_lock_can_be_taken_on_again_by_its_id() -> None:
    talk = Talk()
    handle = talk.ask(mode=Mode.STREAM, linger_ms=3_000)
    verdict = talk.replies[handle]
    assert isinstance(verdict, a.Yes)
    talk.say(a.Leave(handle))
    talk.say(a.Attach(77, "r", "p", verdict.granted.lock_id))
    assert talk.replies[77] == verdict
    talk.pass_ms(60_000)
    assert talk.ends == []
    # The first stream's end comes late and must not end what the second keeps.
    talk.say(a.Leave(handle))
    assert talk.ends == []


def test_another_principal_cannot_take_a_stream_on() -> None:
    talk = Talk()
    handle = talk.ask(mode=Mode.STREAM, linger_ms=3_000)
    verdict = talk.replies[handle]
    assert isinstance(verdict, a.Yes)
    talk.say(a.Attach(77, "r", "thief", verdict.granted.lock_id))
    assert talk.replies[77] == a.Missing()


def test_a_forced_release_tells_the_stream_that_held() -> None:
    talk = Talk()
    handle = talk.ask(mode=Mode.STREAM)
    talk.say(a.Force(98, "r", "operator"))
    assert isinstance(talk.replies[98], a.Done)
    assert "forced by operator" in talk.told[handle]
    assert talk.ends == ["forced"]


def test_the_same_request_twice_is_one_grant() -> None:
    talk = Talk()
    assert talk.granted(request_id="q") == talk.granted(request_id="q")
    assert len(talk.entries) == 1


def test_the_same_request_of_another_principal_is_another_request() -> None:
    talk = Talk()
    talk.granted(request_id="q")
    assert isinstance(talk.replies[talk.ask(who="other", request_id="q")], a.Locked)


def test_a_repeated_waiting_request_keeps_its_place() -> None:
    talk = Talk()
    held = talk.granted()
    talk.waits(request_id="q")
    second = talk.waits()
    again = talk.waits(request_id="q")
    talk.unlock(held)
    assert isinstance(talk.replies[again], a.Yes)
    assert second not in talk.replies


def test_a_request_id_is_spent_once_its_grant_is_over() -> None:
    talk = Talk()
    talk.unlock(talk.granted(request_id="q"))
    assert talk.replies[talk.ask(request_id="q")] == a.Spent()


def test_a_request_that_was_called_off_is_never_granted() -> None:
    talk = Talk()
    held = talk.granted()
    waiter = talk.waits(request_id="q")
    talk.say(a.Unlock(90, "r", "p", request_id="q"))
    talk.unlock(held)
    assert talk.replies[waiter] == a.Spent()
    assert talk.replies[talk.ask(request_id="q")] == a.Spent()
    assert talk.look().granted is None


def test_an_unheard_grant_without_request_id_is_given_back() -> None:
    talk = Talk()
    held = talk.granted(mode=Mode.KEPT)
    talk.say(a.Unheard("r", held.lock_id))
    assert talk.ends == ["disconnected"]


def test_an_unheard_grant_with_request_id_waits_one_ttl_for_its_owner() -> None:
    talk = Talk()
    held = talk.granted(mode=Mode.KEPT, request_id="q", ttl_ms=5_000)
    talk.say(a.Unheard("r", held.lock_id))
    talk.pass_ms(4_000)
    assert talk.granted(mode=Mode.KEPT, request_id="q") == held
    talk.pass_ms(60_000)
    assert talk.ends == []


def test_bounds_are_answered_and_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "WAITERS_PER_RESOURCE_MAX", 2)
    monkeypatch.setattr(desk_module, "GRANTS_PER_PRINCIPAL_MAX", 3)
    monkeypatch.setattr(desk_module, "WAITERS_MAX", 3)
    talk = Talk()
    talk.granted("a")
    talk.waits("a"), talk.waits("a")
    assert isinstance(talk.replies[talk.ask("a", immediate=False)], a.Full)
    talk.granted("b")
    talk.waits("b")
    assert isinstance(talk.replies[talk.ask("b", "q", immediate=False)], a.Full)
    talk.granted("c")
    assert isinstance(talk.replies[talk.ask("d")], a.Full)
    assert isinstance(talk.replies[talk.ask("d", "other")], a.Yes)
    assert limits.WAITERS_MAX > 3


def test_another_instance_knows_every_grant_and_gives_each_one_ttl() -> None:
    talk = Talk()
    held = [
        talk.granted(key, ttl_ms=5_000, mode=mode) for key, mode in zip("tks", Mode, strict=True)
    ]
    talk.clock.advance(4_000)
    again = talk.restarted()
    for granted in held:
        assert again.look(granted.key).granted == granted
        assert isinstance(again.replies[again.ask(granted.key)], a.Locked)
    again.pass_ms(4_999)
    assert again.ends == []
    again.pass_ms(1)
    assert again.ends == ["expired"] * 3


def test_a_client_that_shows_up_after_a_restart_keeps_its_lock() -> None:
    talk = Talk()
    held = talk.granted(mode=Mode.KEPT, ttl_ms=5_000)
    again = talk.restarted()
    again.renew(held)
    again.pass_ms(50_000)
    assert again.ends == []
    assert again.unlock(held) == a.Done(held)


def test_tokens_go_on_after_a_restart() -> None:
    talk = Talk()
    first = talk.granted()
    again = talk.restarted()
    again.unlock(first)
    assert again.granted().token > first.token


def test_the_backend_is_asked_before_a_grant_and_its_token_is_used() -> None:
    talk = Talk(gated=True)
    handle = talk.ask(ttl_ms=7_000)
    assert talk.asked == [a.Take("r", 7_000, immediate=True)]
    assert handle not in talk.replies
    talk.say(a.Taken("r", 4711))
    verdict = talk.replies[handle]
    assert isinstance(verdict, a.Yes)
    assert verdict.granted.token == 4711


def test_a_backend_that_says_no_is_a_no() -> None:
    talk = Talk(gated=True)
    handle = talk.ask()
    talk.say(a.NotTaken("r"))
    assert talk.replies[handle] == a.Locked(None)
    assert talk.look().waiters == 0


def test_a_backend_that_fails_is_not_a_no() -> None:
    talk = Talk(gated=True)
    handle = talk.ask()
    talk.say(a.NotTaken("r", "it is away"))
    assert talk.replies[handle] == a.Failed("it is away")


def test_a_waiter_goes_on_waiting_for_the_backend() -> None:
    talk = Talk(gated=True)
    handle = talk.waits()
    talk.say(a.NotTaken("r"))
    talk.say(a.NotTaken("r", "it is away"))
    assert len(talk.asked) == 3
    talk.say(a.Taken("r", 1))
    assert isinstance(talk.replies[handle], a.Yes)


def test_a_waiter_hears_of_a_backend_that_stays_away() -> None:
    talk = Talk(gated=True)
    first, second = talk.waits(), talk.waits()
    talk.say(a.NotTaken("r", "it is away"))
    talk.pass_ms(limits.BACKEND_OUTAGE_MS_MAX - 1)
    talk.say(a.NotTaken("r", "it is away"))
    assert first not in talk.replies
    talk.pass_ms(1)
    talk.say(a.NotTaken("r", "it is away"))
    assert talk.replies[first] == talk.replies[second] == a.Failed("it is away")
    assert talk.look().waiters == 0


def test_an_answer_of_the_backend_starts_the_patience_anew() -> None:
    talk = Talk(gated=True)
    handle = talk.waits()
    talk.say(a.NotTaken("r", "it is away"))
    talk.pass_ms(limits.BACKEND_OUTAGE_MS_MAX - 1)
    talk.say(a.NotTaken("r"))
    talk.pass_ms(limits.BACKEND_OUTAGE_MS_MAX - 1)
    talk.say(a.NotTaken("r", "it is away"))
    assert handle not in talk.replies


def test_a_backend_lock_that_nobody_wants_any_more_is_given_back() -> None:
    talk = Talk(gated=True)
    handle = talk.waits()
    talk.say(a.Leave(handle))
    talk.say(a.Taken("r", 1))
    assert talk.asked[-1] == a.GiveBack("r")
    assert talk.look().granted is None


def test_a_lock_lost_in_the_backend_ends_the_grant_and_tells_the_stream() -> None:
    talk = Talk(gated=True)
    handle = talk.ask(mode=Mode.STREAM)
    talk.say(a.Taken("r", 1))
    talk.say(a.Lose("r", "", "stolen"))
    assert talk.told[handle] == "stolen"
    assert talk.ends == ["lost"]


def test_a_grant_of_a_dead_instance_cannot_be_renewed_where_a_backend_lets_it_expire() -> None:
    talk = Talk(gated=True)
    handle = talk.ask(mode=Mode.TIMED)
    talk.say(a.Taken("r", 1))
    verdict = talk.replies[handle]
    assert isinstance(verdict, a.Yes)
    again = talk.restarted()
    assert again.renew(verdict.granted) == a.Missing()
    # Nobody else gets it early all the same.
    assert isinstance(again.replies[again.ask()], a.Locked)


def test_a_gated_lock_never_outgrows_what_its_backend_was_told() -> None:
    talk = Talk(gated=True)
    handle = talk.ask(ttl_ms=5_000)
    talk.say(a.Taken("r", 1))
    verdict = talk.replies[handle]
    assert isinstance(verdict, a.Yes)
    renewed = talk.renew(verdict.granted, ttl_ms=60_000)
    assert isinstance(renewed, a.Yes)
    assert renewed.granted.ttl_ms == 5_000


def test_every_grant_has_one_entry_and_every_end_one() -> None:
    talk = Talk()
    held = talk.granted()
    talk.waits()
    talk.unlock(held)
    talk.pass_ms(20_000)
    kinds = [type(entry.decision).__name__ for entry in talk.entries]
    assert kinds == ["Granted", "Ended", "Granted", "Ended"]
    assert all(isinstance(e.decision, Granted) or e.decision for e in talk.entries)
