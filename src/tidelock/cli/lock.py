"""`tidelock lock acquire`, `force-release`, `status` and `watch`."""

from __future__ import annotations

import shlex
import sys
from contextlib import closing
from typing import Annotated

import typer
from rich.text import Text

from tidelock.cli import options
from tidelock.cli.lock_client import AnyLock
from tidelock.cli.options import flag, option
from tidelock.cli.output import Output, facts
from tidelock.cli.signals import Stopping, stop_at_end_of_input
from tidelock.core.clock import Clock
from tidelock.core.errors import (
    AcquireTimeout,
    Conflict,
    DataCorrupt,
    ErrorKind,
    HoldingLost,
    InvalidInput,
    StoreUnreachable,
    TidelockError,
    Unavailable,
)
from tidelock.core.formatting import duration, fields_of, format_epoch_ms
from tidelock.core.system import SystemIds
from tidelock.core.threads import start_thread
from tidelock.lock import events as e
from tidelock.lock.admin import Condition, Inspection, Operator, held_since, inspect_lock
from tidelock.lock.audit import AuditLog, is_enabled
from tidelock.lock.client import describe_owner, timeout_ms_of
from tidelock.lock.lease import Lease
from tidelock.lock.record import LockRecord
from tidelock.lock.record_store import LockObjects
from tidelock.lock.session import LockSession, Notification
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import ObjectStore


def acquire_detached(
    store: ObjectStore, lease: Lease, *, wait_s: float | None, clock: Clock
) -> tuple[str, LockRecord]:
    """Acquire the lock of the resource at the root of `store`; it is held until it expires.

    Returns the URI of the lock, and its record.

    Raises: `AcquireTimeout`, and the errors of the store.
    """
    objects = LockObjects(store, probe=True)
    timeout_ms = timeout_ms_of(wait_s)

    def notify(notification: Notification) -> None:
        if isinstance(notification, e.Audit):
            audit.record(notification, held=True)

    session = LockSession(lease, clock=clock, ids=SystemIds(), notify=notify)
    audit = AuditLog(store, owner=session.owner, validity_ms=lease.validity_ms, clock=clock)
    operation = session.acquire(timeout_ms, should_stop=lambda: objects.failed_permanently)
    result = objects.run(operation, clock)
    if isinstance(result, e.NotAcquired):
        raise _refusal(objects, result)
    assert session.state.grant is not None
    return objects.uri, session.state.grant.record


def _refusal(objects: LockObjects, result: e.NotAcquired) -> TidelockError:
    if objects.last_error is not None and (
        objects.failed_permanently or result.reason is e.NotAcquiredReason.UNREADABLE
    ):
        return objects.last_error
    if result.reason in (e.NotAcquiredReason.UNAVAILABLE, e.NotAcquiredReason.UNKNOWN):
        return StoreUnreachable(
            f"lock {objects.uri}: not acquired: {result.cause}",
            hint="check `tidelock lock status`; a record that was written anyway expires by itself",
        )
    holder = f", {describe_owner(result.holder)}" if result.holder else ""
    return AcquireTimeout(
        f"lock {objects.uri}: not acquired: {result.reason.value}{holder}",
        hint="wait longer, or show the holder with `tidelock lock status`",
    )


def acquire(
    resource: options.Resource,
    *,
    until_eof: Annotated[bool, flag("--until-eof", "Release when standard input ends.")] = False,
    for_s: Annotated[float | None, option("--for SECONDS", "Release after this time.")] = None,
    detach: Annotated[
        bool,
        flag(
            "--detach",
            "Acquire the lock without renewing it, and exit; it is held until it expires.",
        ),
    ] = False,
    given: options.AcquireOptions,
) -> None:
    """Acquire a lock and hold it in the foreground.

    The lock is renewed until Ctrl-C, SIGTERM, --for or --until-eof, and then released.

    Exit status: 0 if the lock was released, 4 if it was not acquired, 6 if it was lost.

        tidelock lock acquire s3://lake/orders --for 60
    """
    target = given.target(resource, any_provider=not detach)
    output = given.output
    options.check_seconds("--for", for_s)
    wait_s = given.wait_s(target)
    with Stopping() as stopping:
        if detach:
            if until_eof or for_s is not None:
                raise InvalidInput(
                    "--detach: cannot be used with --for or --until-eof",
                    hint="a detached lock is held until it expires",
                )
            _acquire_detached(target, wait_s, output)
            return
        with closing(target.lock()) as lock:
            lock.acquire(wait_s)
            stopping.record_only()
            hold(lock, stopping, output, target.clock, for_s=for_s, until_eof=until_eof)


def hold(
    lock: AnyLock,
    stopping: Stopping,
    output: Output,
    clock: Clock,
    *,
    for_s: float | None = None,
    until_eof: bool = False,
) -> None:
    """Hold an acquired lock until a signal, the time or the end of input, then release it.

    Raises: `HoldingLost` if the lock is lost.
    """
    lost: list[str] = []
    began_ms = clock.now().monotonic_ms

    def record_loss(cause: str) -> None:
        lost.append(cause)
        stopping.stop()

    lock.on_lost(record_loss)
    shown = {"lock": lock.uri, "token": lock.token, "owner": lock.owner}
    output.result(
        {"event": "acquired", **shown},
        Text(f"acquired {lock.uri}", style="green"),
        f"  token {lock.token}, owner {lock.owner}",
    )
    output.remark(_end_conditions(for_s, until_eof=until_eof))
    if until_eof:
        start_thread("tidelock-stdin", lambda: stop_at_end_of_input(stopping))
    stopping.wait(for_s)
    if lost:
        raise HoldingLost(
            f"lock {lock.uri}: lost: {lost[0]}",
            hint="stop the protected work, acquire the lock again and start over",
        )
    lock.release()
    held_ms = clock.now().monotonic_ms - began_ms
    output.result(
        {"event": "released", **shown, "held_ms": held_ms}, f"released after {duration(held_ms)}"
    )


def _end_conditions(for_s: float | None, *, until_eof: bool) -> Text:
    eof = " or the end of standard input" if until_eof else ""
    after = "" if for_s is None else f" or {for_s:g} s"
    return Text(f"  renewed until Ctrl-C{eof}{after}", style="dim")


def _acquire_detached(target: options.LockTarget, wait_s: float | None, output: Output) -> None:
    with target.store() as store:
        uri, record = acquire_detached(store, target.lease, wait_s=wait_s, clock=target.clock)
    command = f"tidelock lock force-release {shlex.quote(target.uri)} --if-token {record.token}"
    shown = fields_of(record, "token", "owner", "valid_until_epoch_ms")
    output.result(
        {"event": "acquired", "lock": uri, **shown, "release_with": command},
        Text(f"acquired {uri}", style="green"),
        f"  token {record.token}, owner {record.owner}",
        f"  not renewed: valid until {format_epoch_ms(record.valid_until_epoch_ms)}",
        f"  to release it earlier: {command}",
    )


def force_release(
    resource: options.Resource,
    *,
    if_token: Annotated[
        int | None, option("--if-token N", "Release only if the token of the holder is N.")
    ] = None,
    yes: Annotated[bool, flag("--yes -y", "Do not ask for confirmation.")] = False,
    given: options.ProviderOptions,
) -> None:
    """Release the lock of another holder.

    The write is conditional: it succeeds only if the lock has not changed since it was read.

    A holder that is still running detects this at its next renewal and must stop. Until then two
    processes may consider themselves the holder: only systems that check tokens remain safe.
    Tokens keep increasing.

    Exit status: 0 if the lock is free afterwards, 4 if it changed or has another token.

        tidelock lock force-release s3://lake/orders --if-token 17
    """
    target = given.target(resource, any_provider=True)
    output = given.output
    if (lock := target.provider_lock) is not None:
        with closing(lock):
            if not yes:
                raise InvalidInput(
                    f"lock {lock.uri}: releasing it requires confirmation", hint="add --yes"
                )
            lock.force_release(output, if_token)
        return
    with target.store() as store:
        seen = inspect_lock(store, target.lease, target.clock)
        if seen.problem is not None:
            raise DataCorrupt(
                f"lock {seen.uri}: cannot be read: {seen.problem.message}",
                hint=seen.problem.hint or "run `tidelock lock doctor --fix`, which keeps a copy",
            )
        if seen.condition is Condition.FREE:
            shown = {"lock": seen.uri, "changed": False, "state": "free"}
            output.result(shown, f"{seen.uri} is free; nothing to release")
            return
        _check_token(seen, if_token)
        if not yes:
            _confirm(seen, output)
        operator = Operator(store, ReadbackPolicy(clock=target.clock, ids=SystemIds()))
        released = operator.force_release(seen)
    shown = {
        "lock": seen.uri,
        "changed": True,
        "state": "free",
        "released_owner": released.owner,
        "released_token": released.token or None,
        "operator": operator.owner,
    }
    output.result(
        shown, Text(f"released {seen.uri}", style="green"), f"  was held by {owner_of(seen)}"
    )
    if seen.condition is Condition.HELD:
        output.remark(
            Text(
                "  a holder that is still running detects this at its next renewal; until then two"
                " processes may consider themselves the holder",
                style="yellow",
            )
        )


def _check_token(seen: Inspection, if_token: int | None) -> None:
    assert seen.record is not None
    if if_token is None:
        return
    if not seen.record.is_ours:
        raise Conflict(
            f"lock {seen.uri}: expected token {if_token}, but its holder {owner_of(seen)} has no"
            " token",
            hint="omit --if-token to release it anyway",
        )
    if seen.record.token != if_token:
        raise Conflict(
            f"lock {seen.uri}: expected token {if_token}, found {seen.record.token};"
            " nothing was released",
            hint="show the holder with `tidelock lock status`",
        )


def _confirm(seen: Inspection, output: Output) -> None:
    assert seen.record is not None
    if output.as_json or not sys.stdin.isatty():
        raise InvalidInput(
            f"lock {seen.uri}: {seen.condition.value} by {owner_of(seen)}; releasing it requires"
            " confirmation, and standard input is not a terminal",
            hint="add --yes",
        )
    token = f", token {seen.record.token}" if seen.record.is_ours else ""
    output.remark(f"{seen.uri}", f"  {seen.condition.value}: owner {owner_of(seen)}{token}")
    if seen.expires_in_ms is not None and seen.expires_in_ms > 0:
        output.remark(f"  its lease expires in {duration(seen.expires_in_ms)}")
    if not typer.confirm("Release this lock?", err=True):
        raise typer.Exit(1)


STYLES = {
    Condition.FREE: "green",
    Condition.HELD: "bold cyan",
    Condition.LAPSED: "yellow",
    Condition.DEAD: "yellow",
    Condition.UNREADABLE: "bold red",
}


def status(resource: options.Resource, *, given: options.ProviderOptions) -> None:
    """Show the holder of a lock.

    Shows its owner and token, when it was last renewed, and when it expires.

    Exit status: 0 whether the lock is free or held, 7 if its record cannot be read.

        tidelock lock status s3://lake/orders --json
    """
    target = given.target(resource, any_provider=True)
    output = given.output
    if (lock := target.provider_lock) is not None:
        with closing(lock):
            lock.show(output, target.clock.now().wall_epoch_ms)
        return
    with target.store() as store:
        seen = inspect_lock(store, target.lease, target.clock)
        audited = is_enabled(store)
        since = held_since(store, seen) if audited else None
    shown: dict[str, object] = {
        "resource": store.uri,
        **lock_facts(seen),
        "since_epoch_ms": since,
        "audit_enabled": audited,
        "raw": seen.body.decode("utf-8", "replace") if seen.exists else None,
    }
    meaning = seen.condition.meaning if seen.exists else "it has never been acquired"
    state = (seen.condition.value, STYLES[seen.condition])
    headline = Text.assemble(f"{store.uri}  ", state, f"  {meaning}")
    rows = [*_rows(seen, since, target.uri), ("audit", "on" if audited else "off")]
    output.result(shown, headline, *facts([*rows, ("lock file", seen.uri)]))
    if seen.problem is not None:
        raise typer.Exit(ErrorKind.DATA_CORRUPT.exit_code)


def lock_facts(seen: Inspection) -> dict[str, object]:
    """Return the state of a lock for JSON output."""
    record = seen.record
    shown: dict[str, object] = {
        "lock": seen.uri,
        "state": seen.condition.value,
        "exists": seen.exists,
        "released": None if record is None else record.expired,
        "owner": None if record is None else record.owner,
        "written_by": None if record is None else ("tidelock" if record.is_ours else "hudi-java"),
        "token": record.token if record is not None and record.is_ours else None,
        "token_ceiling": record.token_ceiling if record is not None and record.is_ours else None,
        "valid_until_epoch_ms": None if record is None else record.valid_until_epoch_ms,
        "expires_in_ms": seen.expires_in_ms,
        "takeover_in_ms": seen.takeover_in_ms,
        "written_epoch_ms": seen.modified_epoch_ms if seen.exists else None,
        "version": seen.version or None,
        "seen_epoch_ms": seen.seen_at.wall_epoch_ms,
    }
    if seen.problem is not None:
        shown["problem"] = seen.problem.message
    return shown


def owner_of(seen: Inspection) -> str:
    """Return the owner in a record, and whether a Hudi Java writer wrote it."""
    assert seen.record is not None
    return f"{seen.record.owner}{'' if seen.record.is_ours else ' (a Hudi Java writer)'}"


def _rows(seen: Inspection, since: int | None, uri: str) -> list[tuple[str, str | Text]]:
    if seen.problem is not None:
        advice = f"tidelock lock doctor {shlex.quote(uri)}"
        return [
            ("problem", Text(seen.problem.message, style="red")),
            ("next", seen.problem.hint or advice),
            ("written", f"{duration(seen.written_ago_ms)} ago"),
        ]
    record = seen.record
    if record is None:
        return []
    rows: list[tuple[str, str | Text]] = [
        ("last owner" if record.expired else "owner", owner_of(seen))
    ]
    if record.is_ours:
        rows.append(("token", str(record.token)))
    if since is not None:
        rows.append(("held since", format_epoch_ms(since)))
    written = "released" if record.expired else "last renewed"
    rows.append((written, f"{duration(seen.written_ago_ms)} ago"))
    left_ms, takeover_ms = seen.expires_in_ms, seen.takeover_in_ms
    if left_ms is not None and takeover_ms is not None:
        when = f"in {duration(left_ms)}" if left_ms >= 0 else f"{duration(left_ms)} ago"
        rows.append(("expires", f"{when} ({format_epoch_ms(record.valid_until_epoch_ms)})"))
        rows.append(("takeover", f"in {duration(takeover_ms)}" if takeover_ms else "possible now"))
    return rows


def watch(
    resource: options.Resource,
    *,
    interval: Annotated[
        float,
        option("--interval SECONDS", "The polling interval; at least 0.05.", show_default=True),
    ] = 0.5,
    renewals: Annotated[bool, flag("--renewals", "Show every renewal too.")] = False,
    for_s: Annotated[float | None, option("--for SECONDS", "Exit after this time.")] = None,
    given: options.CommonOptions,
) -> None:
    """Show every change of a lock.

    Prints one line per change until Ctrl-C. Only reads; never writes.

    Misses holders that release the lock within the polling interval.

        tidelock lock watch s3://lake/orders --json
    """
    target = given.target(resource)
    output = given.output
    options.check_seconds("--interval", interval, least=0.05)
    options.check_seconds("--for", for_s)
    clock = target.clock
    until_ms = None if for_s is None else clock.now().monotonic_ms + for_s * 1000
    last = ""
    with target.store() as store, Stopping() as stopping:
        stopping.record_only()
        while True:
            last = _show_change(store, target, output, last, renewals=renewals)
            left_ms = interval * 1000
            if until_ms is not None:
                left_ms = min(left_ms, until_ms - clock.now().monotonic_ms)
            if left_ms <= 0 or stopping.wait(left_ms / 1000):
                return


def _show_change(
    store: ObjectStore, target: options.LockTarget, output: Output, last: str, *, renewals: bool
) -> str:
    """Read the lock and show it if it changed; return its state for the next comparison."""
    try:
        seen = inspect_lock(store, target.lease, target.clock)
    except Unavailable as error:
        if last != error.message:
            now_ms = target.clock.now().wall_epoch_ms
            shown = {"state": "unavailable", "problem": error.message, "seen_epoch_ms": now_ms}
            output.result(
                shown, Text(f"{format_epoch_ms(now_ms)}  no answer  {error.message}", "yellow")
            )
        return error.message
    record = seen.record
    identity = [seen.condition.value, record.owner if record else "", str(record and record.token)]
    if renewals or seen.problem is not None:
        identity.append(seen.version)
    state = " ".join(identity)
    if state != last:
        output.result(lock_facts(seen), _line(seen))
    return state


def _line(seen: Inspection) -> Text:
    line = Text(f"{format_epoch_ms(seen.seen_at.wall_epoch_ms)}  ")
    line.append(f"{seen.condition.value:<10}", STYLES[seen.condition])
    record = seen.record
    if seen.problem is not None:
        line.append(f"  {seen.problem.message}")
    elif record is None:
        line.append("  never acquired")
    else:
        token = f"  token {record.token}" if record.is_ours else ""
        line.append(f"{token}  {'last ' if record.expired else ''}owner {owner_of(seen)}")
    if seen.condition is Condition.HELD and seen.expires_in_ms is not None:
        line.append(f"  expires in {duration(seen.expires_in_ms)}", "dim")
    return line
