"""The possible moves of one client, by the production step function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from testkit.explore import checks
from testkit.explore.bounds import EPOCH_MS, INSTANTS_MS, Bounds
from testkit.explore.checks import CheckFailed
from testkit.explore.values import Client, LateWrite, PendingReply, Role, SentRequest
from tidelock.core.clock import Now
from tidelock.core.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock.machine import step
from tidelock.lock.state import LockClientState, Phase, Standing, standing
from tidelock.storage.contract import Busy, PutReply, Refused, Unclear

ROLES = {
    Phase.TAKING: Role.GRANT,
    Phase.RENEWING: Role.RENEWAL,
    Phase.RELEASING: Role.RELEASE,
    Phase.DISCARDING: Role.RELEASE,
    Phase.CLOSING: Role.RELEASE,
    Phase.RESERVING: Role.RANGE,
}
GONE = "the owning thread has ended"

OPERATIONS: dict[Phase, tuple[type[e.Acquire | e.Release | e.Renew | e.Close], ...]] = {
    Phase.IDLE: (e.Acquire, e.Release, e.Renew, e.Close),
    Phase.HOLDING: (e.Acquire, e.Release, e.Renew),
    Phase.LOST: (e.Acquire, e.Release, e.Renew, e.Close),
    Phase.CLOSED: (e.Release, e.Renew, e.Close),
}
"""The operations in each phase without a request; renewals may be late or repeated (F13)."""

KEEPING = (Phase.HOLDING, Phase.RENEWING, Phase.RECHECKING)
AWAITING = (Phase.TAKING, Phase.CONFIRMING)


@dataclass(frozen=True, slots=True)
class Move:
    """One possible move of a client: its new state, and the effects on the rest of the world."""

    description: str
    client: Client
    fault: bool = False
    late_write: LateWrite | None = None
    granted: str = ""
    renewed: str = ""


class Steps:
    """The production machine with checks. Counts the table rows that were used."""

    def __init__(self, bounds: Bounds) -> None:
        """Use `bounds`."""
        self._bounds = bounds
        self.rows: Counter[tuple[Phase, str, Phase]] = Counter()

    def moves(self, client: Client, owner: int, time: int, nonce: int) -> Iterator[Move]:
        """Yield the moves of `client` at `time`; its next write has the number `nonce`."""
        now = _now(client, time)
        if client.in_flight is None:
            yield from self._operations(client, now, nonce)
            yield self._move("abandon without a request", client, e.Abandon(now), nonce)
        else:
            yield from self._answers(client, owner, now, nonce)
        if client.state.phase in KEEPING and client.left:
            gone = e.OwnerGone(now, GONE)
            yield self._move("its thread ends", replace(client, ended=True), gone, nonce, cost=1)
        yield self._move("tick", client, e.Tick(now), nonce)

    def believes(self, client: Client, time: int) -> bool:
        """Return whether the client reports HELD or UNSURE at `time`, and check that it may."""
        believes = standing(client.state, _now(client, time)) in (Standing.HELD, Standing.UNSURE)
        if believes:
            checks.belief(client, INSTANTS_MS[time], self._bounds)
        return believes

    def _operations(self, client: Client, now: Now, nonce: int) -> Iterator[Move]:
        for kind in OPERATIONS[client.state.phase]:
            description = kind.__name__.lower()
            before = replace(client, ended=True) if kind in (e.Release, e.Close) else client
            move = self._move(description, before, kind(now), nonce, cost=1)
            if move.client.state == client.state:
                # No effect: nothing to renew, release or close, or the same token (L12, P26).
                continue
            if client.left:
                yield move

    def _answers(self, client: Client, owner: int, now: Now, nonce: int) -> Iterator[Move]:
        cut = self._move(
            "abandoned", replace(client, in_flight=None), e.Abandon(now), nonce, fault=True
        )
        match client.in_flight:
            case SentRequest(e.WriteRecord() | e.WriteCounter()) as sent:
                yield replace(cut, late_write=LateWrite(owner, sent))
            case _:
                yield cut
        match client.in_flight:
            case PendingReply(answer):
                yield self._answer("the answer arrives", client, now, nonce, answer)
                match answer:
                    case Landed():
                        yield self._answer(
                            "412 after success", client, now, nonce, Refused(), fault=True
                        )
                        yield self._answer("reply lost", client, now, nonce, _LOST, fault=True)
                    case Refused():
                        yield self._answer("reply lost", client, now, nonce, _LOST, fault=True)
                    case _:
                        yield self._answer(
                            "read failed", client, now, nonce, e.ReadFailed("lost"), fault=True
                        )
            case SentRequest(e.WriteRecord() | e.WriteCounter()) as sent:
                yield self._answer("429 or 409", client, now, nonce, Busy(), fault=True)
                given_up = self._answer("no reply", client, now, nonce, _LOST, fault=True)
                yield replace(given_up, late_write=LateWrite(owner, sent))
            case _:
                pass

    def _answer(
        self,
        description: str,
        client: Client,
        now: Now,
        nonce: int,
        answer: PutReply | e.ReadReply,
        *,
        fault: bool = False,
    ) -> Move:
        landed = replace(client, in_flight=None)
        if isinstance(answer, Landed | Refused | Busy | Unclear):
            return self._move(description, landed, e.WriteDone(now, answer), nonce, fault=fault)
        return self._move(description, landed, e.ReadDone(now, answer), nonce, fault=fault)

    def _move(
        self,
        description: str,
        client: Client,
        event: e.Event,
        nonce: int,
        *,
        cost: int = 0,
        fault: bool = False,
    ) -> Move:
        try:
            return self._checked(description, client, event, nonce, cost=cost, fault=fault)
        except CheckFailed as failure:
            failure.move = f"{client.state.owner}: {description}"
            raise

    def _checked(
        self,
        description: str,
        client: Client,
        event: e.Event,
        nonce: int,
        *,
        cost: int,
        fault: bool,
    ) -> Move:
        before = client.state._replace(writes=nonce - 1)
        try:
            after, effects = step(before, event)
        except AssertionError as error:
            rule = str(error).partition(":")[0] or "assertion"
            raise CheckFailed(rule, f"{type(error).__name__}: {error}") from error
        self.rows[before.phase, type(event).__name__, after.phase] += 1
        checks.effects(event, before, after, effects)
        moved = replace(client, state=_plain(after), left=client.left - cost)
        granted = renewed = ""
        for effect in effects:
            match effect:
                case e.NotifyLost():
                    if client.notified:
                        raise CheckFailed("P29", "the owner was notified twice of one loss")
                    moved = replace(moved, notified=True, ended=True)
                case e.OperationDone(e.Granted(token)):
                    moved, granted = self._believe(client, moved, token, event.now)
                case e.OperationDone(e.Renewed()):
                    checks.renewal(client, event.now.monotonic_ms, self._bounds)
                    moved = replace(moved, basis_ms=client.sent_ms)
                    renewed = after.grant.version if after.grant else ""
                case e.OperationDone(ended):
                    checks.result(client, ended)
                case e.Count() | e.Audit():
                    pass
                case _:
                    moved = self._send(moved, effect, event.now)
        if (
            isinstance(event, e.Tick)
            and _past(client, event.now, self._bounds)
            and not moved.notified
        ):
            raise CheckFailed("P29", "a tick did not detect the deadline")
        return Move(description, _forget(moved), fault=fault, granted=granted, renewed=renewed)

    def _believe(self, before: Client, after: Client, token: int, now: Now) -> tuple[Client, str]:
        grant = after.state.grant
        if grant is None or after.state.phase is not Phase.HOLDING or grant.record.token != token:
            raise CheckFailed("L12", f"Granted({token}) without such a grant")
        if before.state.phase is Phase.HOLDING:
            if before.state.grant is None or before.state.grant.record.token != token:
                raise CheckFailed("L12", "acquiring again returned another token")
            return after, ""
        fresh = replace(
            after,
            basis_ms=before.sent_ms,
            ended=False,
            notified=False,
            released=False,
            token=token,
        )
        checks.grant(fresh, now.monotonic_ms, self._bounds)
        return fresh, grant.record.nonce

    def _send(self, client: Client, request: e.Request, now: Now) -> Client:
        if isinstance(request, e.ReadRecord | e.ReadCounter):
            return replace(client, in_flight=SentRequest(request))
        role = ROLES.get(client.state.phase)
        if role is None:
            raise CheckFailed("stuck", f"a write while {client.state.phase.value}")
        checks.request(client, role, request, now.monotonic_ms, self._bounds)
        sent = SentRequest(request, role, now.wall_epoch_ms)
        if role in (Role.GRANT, Role.RENEWAL):
            return replace(client, in_flight=sent, sent_ms=now.monotonic_ms)
        return replace(client, in_flight=sent)


_LOST = Unclear("no answer")


def _now(client: Client, time: int) -> Now:
    real_ms = INSTANTS_MS[time]
    return Now(monotonic_ms=real_ms, wall_epoch_ms=EPOCH_MS + real_ms + client.skew_ms)


def _past(client: Client, now: Now, bounds: Bounds) -> bool:
    return client.state.phase in KEEPING and now.monotonic_ms >= checks.deadline_ms(client, bounds)


def _plain(state: LockClientState) -> LockClientState:
    """Drop the parts that no handler reads: texts, the write counter, a lost grant."""
    return state._replace(
        writes=0,
        lost_cause="lost" if state.lost_cause else "",
        unclear="unclear" if state.unclear else "",
        grant=None if state.phase is Phase.LOST else state.grant,
    )


def _forget(client: Client) -> Client:
    """Drop the checker's data about writes and grants that no longer matter."""
    phase = client.state.phase
    sent_ms = client.sent_ms if phase in AWAITING or phase is Phase.RENEWING else 0
    basis_ms = client.basis_ms if phase in KEEPING else 0
    if phase is Phase.LOST:
        # The owner has been notified and must not be notified again.
        return replace(client, sent_ms=0, basis_ms=0, released=False, token=0)
    if client.state.grant is None:
        return Client(client.state, client.left, client.skew_ms, client.in_flight, sent_ms)
    return replace(client, sent_ms=sent_ms, basis_ms=basis_ms)
