"""What must hold of every history, one function for each promise (docs/protocol/lock.md).

The arithmetic of the lease is written out again here: a checker that asked the product would
agree with its mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelock.lock import events as e
from tidelock.lock.lease import Lease
from tidelock.lock.state import Standing
from tidelock.store.contract import Create, Match
from tidelock.testing.sim.history import Ended, History
from tidelock.testing.sim.plan import Clocks, Fault, Plan
from tidelock.testing.sim.store import OPERATOR

Checker = Callable[[History, Plan], Iterator[str]]

_DRIFT_MS = 500
_GRACE_MS = 500


def _term_ms(lease: Lease) -> int:
    """P9: how long a holder believes after the sending of its last write."""
    return lease.validity_ms - max(200, lease.validity_ms // 20)


def l1_tokens_grow(history: History, plan: Plan) -> Iterator[str]:
    """Tokens of granted holdings grow in the order in which their grants landed."""
    del plan
    last = None
    for held in sorted(history.holdings, key=lambda h: h.grant_seq):
        if last is not None and held.token <= last.token:
            yield f"L1: token {held.token} was granted after {last.token}"
        last = held


def l2_no_grant_over_a_live_record(history: History, plan: Plan) -> Iterator[str]:
    """A grant replaces a record that was released, or dead by the taker's own clock."""
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


def l3_belief_ends_at_the_deadline(history: History, plan: Plan) -> Iterator[str]:
    """HELD and UNSURE only before the deadline, counted from the sending of what landed."""
    del plan
    for stood in history.stood:
        if stood.left_ms <= 0:
            yield (
                f"L3: client {stood.client} was {stood.standing}"
                f" {-stood.left_ms} ms past its deadline"
            )


def l4_only_by_condition(history: History, plan: Plan) -> Iterator[str]:
    """Renewals and releases replace the client's own record, by the version last written."""
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
    """No false success and no false loss, whatever was lost on the way (L5, L6)."""
    truthful_reads = Fault.STALE not in plan.faults
    for ended in history.ended:
        match ended.result:
            case e.Granted() if ended.requests:
                if not _proven_grant(history, ended):
                    yield f"L5: client {ended.client} was granted {ended.token} without an answer"
            case e.Renewed():
                if not ended.proven:
                    yield f"L6: client {ended.client} renewed {ended.token} without an answer"
            case e.Released() if ended.token and not _was_released(history, ended):
                yield f"L5: client {ended.client} released {ended.token}, but nothing shows it"
            case e.NotAcquired(e.Why.HELD, holder) if holder is not None:
                if holder.nonce.startswith(ended.owner):
                    yield f"L5: client {ended.client} took its own record for another's: {holder}"
            case e.Lost() if ended.token and truthful_reads and not _was_lost(history, ended):
                yield f"L5: client {ended.client} lost {ended.token} to nobody: {ended.result}"
            case _:
                pass


def _proven_grant(history: History, ended: Ended) -> bool:
    """A grant needs the store's own answer, within this operation, to the write of its token."""
    landings = (history.landed_by_nonce.get(nonce) for nonce in ended.proven)
    return any(
        landing is not None
        and landing.sent is not None
        and landing.sent.record.token == ended.token
        and not landing.sent.record.expired
        for landing in landings
    )


def _was_released(history: History, ended: Ended) -> bool:
    """A release of this token landed, by its owner's hand or by an operator's."""
    return any(
        landing.record is not None
        and landing.record.expired
        and landing.record.token == ended.token
        for landing in history.landings[ended.grant_seq + 1 : ended.last_seq + 1]
    )


def _was_lost(history: History, ended: Ended) -> bool:
    """The deadline had passed, the owner had died, or somebody else wrote after the grant."""
    if ended.left_ms <= 0 or ended.ceased in ("death", "close", "lost"):
        return True
    return any(
        landing.by != ended.owner
        for landing in history.landings[ended.grant_seq + 1 : ended.last_seq + 1]
    )


def l7_nothing_after_lost(history: History, plan: Plan) -> Iterator[str]:
    """After LOST nothing extends the token and the owner is not told to go on; it hears in time."""
    del plan
    for sent in history.sent:
        if sent.holding_told and _extends(
            sent.record.token, sent.holding_token, sent.record.expired
        ):
            yield f"L7: client {sent.client} extended token {sent.holding_token} after LOST"
    for stood in history.stood:
        if stood.told:
            yield f"L7: client {stood.client} was {stood.standing} after LOST"
    for watched in history.watched:
        if not watched.told or watched.standing is not Standing.LOST:
            yield f"L7: client {watched.client} was not told of the end of {watched.token}"


def _extends(token: int, holding_token: int, expired: bool) -> bool:  # noqa: FBT001
    return token == holding_token and not expired


def l8_garbage_is_never_replaced(history: History, plan: Plan) -> Iterator[str]:
    """An unreadable record is left alone, and ends a wait at once (P19)."""
    del plan
    for landing in history.landings:
        if landing.sent is not None and landing.replaced_garbage:
            yield f"L8: client {landing.sent.client} replaced an unreadable record"
    for ended in history.ended:
        if ended.waited_on_unreadable:
            yield f"L8: client {ended.client} went on waiting for an unreadable record"


def l9_somebody_wins(history: History, plan: Plan) -> Iterator[str]:
    """In a healthy world a waiter wins in time."""
    del plan
    if history.quiet_at is not None and history.won_at is None:
        yield "L9: nobody won the lock in a healthy world"


def l10_nothing_after_the_end(history: History, plan: Plan) -> Iterator[str]:
    """No renewal after release, thread death or close."""
    del plan
    for sent in history.sent:
        if sent.holding_ceased and _extends(
            sent.record.token, sent.holding_token, sent.record.expired
        ):
            yield (
                f"L10: client {sent.client} renewed {sent.holding_token}"
                f" after its {sent.holding_ceased}"
            )


def l11_no_renewal_past_the_deadline(history: History, plan: Plan) -> Iterator[str]:
    """P20: a lease past its deadline is never revived by its own heartbeat."""
    term_ms = _term_ms(plan.lease)
    for sent in history.sent:
        if sent.operation == "renew" and not sent.record.expired:
            over_ms = sent.monotonic_ms - (sent.holding_extended_monotonic_ms + term_ms)
            if over_ms >= 0:
                yield f"L11: client {sent.client} renewed {over_ms} ms past its deadline"


def l12_asking_again_changes_nothing(history: History, plan: Plan) -> Iterator[str]:
    """Acquiring what is held gives the same token without a request; releasing nothing is one."""
    del plan
    granted: dict[int, int] = {}
    for ended in history.ended:
        match ended.operation, ended.result:
            case "acquire", e.Granted(token):
                again = granted.get(ended.client) == token
                if again and ended.requests:
                    yield f"L12: client {ended.client} asked the store for {token} twice"
                if not again and not ended.requests:
                    yield f"L12: client {ended.client} was granted {token} without a request"
                granted[ended.client] = token
            case "release", _ if not ended.token and ended.writes:
                yield f"P26: client {ended.client} released what it did not hold"
            case _:
                pass


def l14_wall_clocks_lengthen_nothing(history: History, plan: Plan) -> Iterator[str]:
    """In true time too, belief ends a term after the sending of what landed."""
    term_ms = _term_ms(plan.lease)
    for stood in history.stood:
        if stood.at - stood.extended_at > term_ms / stood.rate + 1:
            yield f"L14: client {stood.client} was {stood.standing} too long in true time"


def ghosts_are_returned(history: History, plan: Plan) -> Iterator[str]:
    """P16, P18: a live record of one's own that is not held is released when it is met."""
    for ended in history.ended:
        if ended.ghosts_returned < ended.ghosts_met:
            yield f"P16: client {ended.client} met its own unseen grant and left it"
    if Fault.STALE not in plan.faults:
        for left in history.left_behind:
            yield f"P18: client {left.client} closed and left {left.record}"


def nonces_are_used_once(history: History, plan: Plan) -> Iterator[str]:
    """P3: no two writes carry the same nonce."""
    del plan
    if len({sent.record.nonce for sent in history.sent}) != len(history.sent):
        yield "P3: two writes carry one nonce"


def holdings_exclude_each_other(history: History, plan: Plan) -> Iterator[str]:
    """In the promised world no two owners believe at once, unless an operator came between."""
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
    """Whatever the clocks do, what checks tokens stays correct."""
    del plan
    if history.fenced_lost:
        yield f"fencing: {history.fenced_lost} updates of the fenced register were lost"


def the_machine_does_not_contradict_itself(history: History, plan: Plan) -> Iterator[str]:
    """The product's own invariants never stop it."""
    del plan
    yield from history.broken


CHECKERS: tuple[Checker, ...] = (
    the_machine_does_not_contradict_itself,
    l1_tokens_grow,
    l2_no_grant_over_a_live_record,
    l3_belief_ends_at_the_deadline,
    l4_only_by_condition,
    l5_results_are_true,
    l7_nothing_after_lost,
    l8_garbage_is_never_replaced,
    l9_somebody_wins,
    l10_nothing_after_the_end,
    l11_no_renewal_past_the_deadline,
    l12_asking_again_changes_nothing,
    l14_wall_clocks_lengthen_nothing,
    ghosts_are_returned,
    nonces_are_used_once,
    holdings_exclude_each_other,
    the_fenced_register_loses_nothing,
)


def violations(history: History, plan: Plan) -> Iterator[str]:
    """Yield everything that does not hold."""
    for check in CHECKERS:
        yield from check(history, plan)
