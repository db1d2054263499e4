"""Who holds the table's lock, who waits for it, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidelock.lock.inspect import Condition, Inspection
from tidelock.lock.provider import Holder
from tidelock.ops.cli.output import duration
from tidelock.ops.doctor.findings import Finding, fine, note
from tidelock.txn.heartbeat import Pulse
from tidelock.txn.waits import Waiter

_SHOWN = 10
_LONG_MS = 60_000
"""Hudi's own patience with a lock: whoever has waited longer has asked in vain once."""


def check_waiting(
    holding: str, waiting: Sequence[Waiter], pulses: Mapping[str, Pulse], now_epoch_ms: int
) -> Iterator[Finding]:
    """Name those who wait, and who may be the one they wait for.

    `holding` says who holds the lock. An owner of the storage lock is a number without a name, so
    writers that run, take the lock and do not wait are named beside it.
    """
    if not waiting:
        yield fine("waiting", "nobody says that it waits for the lock")
        return
    at_work = _at_work(waiting, pulses)
    for waiter in waiting[:_SHOWN]:
        waited_ms = max(0, now_epoch_ms - waiter.since_epoch_ms)
        says = (
            f"{waiter.owner} (process {waiter.pid} on {waiter.host}) has waited for the lock for"
            f" {duration(waited_ms)}; {holding}"
        )
        if waited_ms < _LONG_MS:
            yield fine("waiting", says)
        else:
            yield note("waiting", says, _advice(at_work))
    if len(waiting) > _SHOWN:
        yield note("waiting", f"{len(waiting) - _SHOWN} more wait", "see `tidelock ui URI`")


def storage_holding(seen: Inspection | None, since_epoch_ms: int | None) -> str:
    """Say who holds the storage lock; `since_epoch_ms` is known where the lock is audited."""
    if seen is None or seen.record is None or seen.record.expired:
        return "nobody holds it at this moment"
    owner = f"{seen.record.owner}{'' if seen.record.is_ours else ' (a Hudi Java writer)'}"
    if seen.condition is not Condition.HELD:
        return f"{owner} never released it, and it can be taken over soon"
    if since_epoch_ms is not None:
        held = duration(seen.seen_at.wall_epoch_ms - since_epoch_ms)
        return f"{owner} has held it for {held}"
    return f"{owner} holds it, renewed {duration(seen.written_ago_ms)} ago"


def holder_holding(holder: Holder | None, now_epoch_ms: int) -> str:
    """Say who holds a lock of another kind, as far as its backend tells."""
    if holder is None:
        return "nobody holds it at this moment"
    if holder.since_epoch_ms is None:
        return f"{holder.owner} holds it"
    return f"{holder.owner} has held it for {duration(now_epoch_ms - holder.since_epoch_ms)}"


def _at_work(waiting: Sequence[Waiter], pulses: Mapping[str, Pulse]) -> list[str]:
    """Return those who could be the holder."""
    wait = {waiter.owner for waiter in waiting}
    return [
        f"{pulse.says.owner} (process {pulse.says.pid} on {pulse.says.host}, {instant})"
        for instant, pulse in sorted(pulses.items())
        if pulse.says is not None and pulse.says.lock and pulse.says.owner not in wait
    ]


def _advice(at_work: Sequence[str]) -> str:
    after = "if the holder is known to be gone, `tidelock lock force-release URI`"
    if not at_work:
        return f"no writer of ours is at work under the lock; {after}"
    return f"writers that take the lock and do not wait: {', '.join(at_work[:_SHOWN])}; {after}"
