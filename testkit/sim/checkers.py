"""Properties of every history: one function for each rule of docs/protocol/lock.md.

The lease arithmetic is repeated here: a checker that used the production code would share its bugs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from testkit.sim.history import History, OperationEnd
from testkit.sim.plan import Clocks, Fault, Plan
from testkit.sim.store import OPERATOR
from tidelock.lock import events as e
from tidelock.lock.lease import Lease
from tidelock.lock.state import Standing
from tidelock.storage.contract import Create, Match

Checker = Callable[[History, Plan], Iterator[str]]

_DRIFT_MS = 500
_GRACE_MS = 500


def _term_ms(lease: Lease) -> int:
    """P9: return how long a holder may rely on the lock after sending its last write."""
    return lease.validity_ms - max(200, lease.validity_ms // 20)


def l1_tokens_grow(history: History, plan: Plan) -> Iterator[str]:
    """Tokens increase in the order in which grants landed."""
    del plan
    last = None
    for held in sorted(history.holdings, key=lambda h: h.grant_seq):
        if last is not None and held.token <= last.token:
            yield f"L1: token {held.token} was granted after {last.token}"
        last = held


def l2_no_grant_over_a_live_record(history: History, plan: Plan) -> Iterator[str]:
    """A grant replaces a record that was released, or dead by the contender's own clock."""
    del plan
    for landing in history.landings:
        sent, replaced = landing.sent, landing.replaced
        if sent is None or replaced is None or replaced.expired or sent.record.expired:
            continue
        if sent.record.token == replaced.token and sent.record.owner == replaced.owner:
            continue
        dead_ms = replaced.valid_until_epoch_ms + _DRIFT_MS + _GRACE_MS
        if sent.wall_epoch_ms <= dead_ms:
            early_ms = dead_ms - sent.wall_epoch_ms
            yield f"L2: client {sent.client} took {replaced} {early_ms} ms early"


def l3_holdings_end_at_the_deadline(history: History, plan: Plan) -> Iterator[str]:
    """HELD and UNSURE only before the deadline, counted from the sending of the last write."""
    del plan
    for check in history.standing_checks:
        if check.left_ms <= 0:
            yield (
                f"L3: client {check.client} was {check.standing}"
                f" {-check.left_ms} ms past its deadline"
            )


def l4_writes_are_conditional(history: History, plan: Plan) -> Iterator[str]:
    """Renewals and releases replace the client's own record, on the version last written."""
    del plan
    for landing in history.landings:
        sent, replaced = landing.sent, landing.replaced
        if sent is None:
            continue
        if not isinstance(sent.mode, Match | Create):
            yield f"L4: client {sent.client} wrote without a condition"
        extends = sent.operation == "renew" or sent.record.expired
        if not extends:
            continue
        own = replaced is not None and replaced.owner == sent.record.owner
        if not own or replaced is None or replaced.token != sent.record.token or replaced.expired:
            yield f"L4: client {sent.client} replaced {replaced} by {sent.record}"


def l5_results_are_true(history: History, plan: Plan) -> Iterator[str]:
    """No false success and no false loss, whatever messages were lost (L5, L6)."""
    truthful_reads = Fault.STALE not in plan.faults
    for end in history.operations:
        match end.result:
            case e.Granted() if end.requests:
                if not _proven_grant(history, end):
                    yield f"L5: client {end.client} was granted {end.token} without a reply"
            case e.Renewed():
                if not end.proven:
                    yield f"L6: client {end.client} renewed {end.token} without a reply"
            case e.Released() if end.token and not _was_released(history, end):
                yield f"L5: client {end.client} released {end.token}, but no release landed"
            case e.NotAcquired(e.NotAcquiredReason.HELD, holder) if holder is not None:
                if holder.nonce.startswith(end.owner):
                    yield f"L5: client {end.client} took its own record for another's: {holder}"
            case e.LockLost() if end.token and truthful_reads and not _was_lost(history, end):
                yield f"L5: client {end.client} lost {end.token} without a cause: {end.result}"
            case _:
                pass


def _proven_grant(history: History, end: OperationEnd) -> bool:
    """Return whether the store confirmed the write of the token within this operation."""
    landings = (history.landed_by_nonce.get(nonce) for nonce in end.proven)
    return any(
        landing is not None
        and landing.sent is not None
        and landing.sent.record.token == end.token
        and not landing.sent.record.expired
        for landing in landings
    )


def _was_released(history: History, end: OperationEnd) -> bool:
    """Return whether a release of this token landed, by its owner or an operator."""
    return any(
        landing.record is not None and landing.record.expired and landing.record.token == end.token
        for landing in history.landings[end.grant_seq + 1 : end.last_seq + 1]
    )


def _was_lost(history: History, end: OperationEnd) -> bool:
    """Return whether the deadline passed, the owner ended, or another writer wrote since."""
    if end.left_ms <= 0 or end.ended_by in ("death", "close", "lost"):
        return True
    return any(
        landing.by != end.owner
        for landing in history.landings[end.grant_seq + 1 : end.last_seq + 1]
    )


def l7_nothing_after_lost(history: History, plan: Plan) -> Iterator[str]:
    """After LOST no write extends the token; the owner is notified in time."""
    del plan
    for sent in history.sent:
        if sent.holding_notified and _extends(
            sent.record.token, sent.holding_token, sent.record.expired
        ):
            yield f"L7: client {sent.client} extended token {sent.holding_token} after LOST"
    for check in history.standing_checks:
        if check.notified:
            yield f"L7: client {check.client} was {check.standing} after LOST"
    for late in history.deadline_checks:
        if not late.notified or late.standing is not Standing.LOST:
            yield f"L7: client {late.client} was not notified of the end of {late.token}"


def _extends(token: int, holding_token: int, expired: bool) -> bool:  # noqa: FBT001
    return token == holding_token and not expired


def l8_garbage_is_never_replaced(history: History, plan: Plan) -> Iterator[str]:
    """An unreadable record is not replaced, and ends a wait at once (P19)."""
    del plan
    for landing in history.landings:
        if landing.sent is not None and landing.replaced_garbage:
            yield f"L8: client {landing.sent.client} replaced an unreadable record"
    for end in history.operations:
        if end.waited_on_unreadable:
            yield f"L8: client {end.client} kept waiting for an unreadable record"


def l9_a_waiter_acquires(history: History, plan: Plan) -> Iterator[str]:
    """Without faults a waiter acquires the lock in time."""
    del plan
    if history.quiet_at is not None and history.won_at is None:
        yield "L9: no client acquired the lock without faults"


def l10_nothing_after_the_end(history: History, plan: Plan) -> Iterator[str]:
    """No renewal after release, thread death or close."""
    del plan
    for sent in history.sent:
        if sent.holding_ended_by and _extends(
            sent.record.token, sent.holding_token, sent.record.expired
        ):
            yield (
                f"L10: client {sent.client} renewed {sent.holding_token}"
                f" after its {sent.holding_ended_by}"
            )


def l11_no_renewal_past_the_deadline(history: History, plan: Plan) -> Iterator[str]:
    """P20: a lease past its deadline is never revived by its own heartbeat."""
    term_ms = _term_ms(plan.lease)
    for sent in history.sent:
        if sent.operation == "renew" and not sent.record.expired:
            over_ms = sent.monotonic_ms - (sent.holding_extended_monotonic_ms + term_ms)
            if over_ms >= 0:
                yield f"L11: client {sent.client} renewed {over_ms} ms past its deadline"


def l12_acquiring_again_changes_nothing(history: History, plan: Plan) -> Iterator[str]:
    """Acquiring a held lock returns its token without a request; a release writes nothing then."""
    del plan
    granted: dict[int, int] = {}
    for end in history.operations:
        match end.operation, end.result:
            case "acquire", e.Granted(token):
                again = granted.get(end.client) == token
                if again and end.requests:
                    yield f"L12: client {end.client} sent a request for {token} twice"
                if not again and not end.requests:
                    yield f"L12: client {end.client} was granted {token} without a request"
                granted[end.client] = token
            case "release", _ if not end.token and end.writes:
                yield f"P26: client {end.client} released a lock that it did not hold"
            case _:
                pass


def l14_wall_clocks_extend_nothing(history: History, plan: Plan) -> Iterator[str]:
    """Also in true time, a holding ends one term after the sending of its last write."""
    term_ms = _term_ms(plan.lease)
    for check in history.standing_checks:
        if check.at - check.extended_at > term_ms / check.rate + 1:
            yield f"L14: client {check.client} was {check.standing} too long in true time"


def ghosts_are_released(history: History, plan: Plan) -> Iterator[str]:
    """P16, P18: a client releases its own live record that it does not hold when it finds it."""
    for end in history.operations:
        if end.ghosts_returned < end.ghosts_found:
            yield f"P16: client {end.client} found its own unseen grant and did not release it"
    if Fault.STALE not in plan.faults:
        for left in history.leftovers:
            yield f"P18: client {left.client} closed and left {left.record}"


def nonces_are_used_once(history: History, plan: Plan) -> Iterator[str]:
    """P3: no two writes have the same nonce."""
    del plan
    if len({sent.record.nonce for sent in history.sent}) != len(history.sent):
        yield "P3: two writes have the same nonce"


def holdings_exclude_each_other(history: History, plan: Plan) -> Iterator[str]:
    """With clocks in bounds, no two owners hold the lock at once, except after an operator."""
    if plan.clocks is Clocks.WILD:
        return
    for overlap in history.overlaps:
        first, second = sorted((overlap.granted_seq, overlap.believer_seq))
        between = history.landings[first + 1 : second + 1]
        if not any(landing.by == OPERATOR for landing in between):
            yield (
                f"exclusion: client {overlap.believer} believed at {overlap.at:.0f}"
                f" when {overlap.granted} was granted"
            )


def the_fenced_register_loses_nothing(history: History, plan: Plan) -> Iterator[str]:
    """Whatever the clocks do, a resource that checks tokens stays correct."""
    del plan
    if history.fenced_lost:
        yield f"fencing: {history.fenced_lost} updates of the fenced register were lost"


def the_machine_keeps_its_invariants(history: History, plan: Plan) -> Iterator[str]:
    """The invariants of the production code hold."""
    del plan
    yield from history.broken


CHECKERS: tuple[Checker, ...] = (
    the_machine_keeps_its_invariants,
    l1_tokens_grow,
    l2_no_grant_over_a_live_record,
    l3_holdings_end_at_the_deadline,
    l4_writes_are_conditional,
    l5_results_are_true,
    l7_nothing_after_lost,
    l8_garbage_is_never_replaced,
    l9_a_waiter_acquires,
    l10_nothing_after_the_end,
    l11_no_renewal_past_the_deadline,
    l12_acquiring_again_changes_nothing,
    l14_wall_clocks_extend_nothing,
    ghosts_are_released,
    nonces_are_used_once,
    holdings_exclude_each_other,
    the_fenced_register_loses_nothing,
)


def violations(history: History, plan: Plan) -> Iterator[str]:
    """Yield a message for each violation."""
    for checker in CHECKERS:
        yield from checker(history, plan)
