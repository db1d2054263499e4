"""`tidelock lock status`: who holds a lock, and for how much longer."""

from __future__ import annotations

import shlex
from contextlib import closing

import typer
from rich.text import Text

from tidelock.base.errors import Kind, TidelockError
from tidelock.lock.audit import is_enabled
from tidelock.lock.audit_trail import audit_files
from tidelock.lock.inspect import Condition, Inspection, inspect_lock
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output, duration, facts, moment
from tidelock.store.contract import ObjectStore

STYLES = {
    Condition.FREE: "green",
    Condition.HELD: "bold cyan",
    Condition.LAPSED: "yellow",
    Condition.DEAD: "yellow",
    Condition.UNREADABLE: "bold red",
}


def status(
    resource: options.Resource,
    *,
    service: options.Service = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Show who holds a lock.

    Shows its owner and token, when it was last renewed, and when it expires.

    Ends with 0 whether the lock is free or held; with 7 when its record cannot be read.

        tidelock lock status s3://lake/orders --json
    """
    target = options.target(resource, props, props_file, any_provider=True, service=service)
    output = Output(as_json=as_json)
    if (elsewhere := target.elsewhere) is not None:
        with closing(elsewhere):
            elsewhere.show(output, target.clock.now().wall_epoch_ms)
        return
    store = target.store()
    try:
        seen = inspect_lock(store, target.lease, target.clock)
        audited = is_enabled(store)
        since = held_since(store, seen) if audited else None
    finally:
        store.close()
    shown: dict[str, object] = {
        "resource": store.uri,
        **lock_facts(seen),
        "since_epoch_ms": since,
        "audit_enabled": audited,
        "raw": seen.body.decode("utf-8", "replace") if seen.exists else None,
    }
    headline = Text.assemble(
        f"{store.uri}  ", (seen.condition.value, STYLES[seen.condition]), f"  {_meaning(seen)}"
    )
    rows = [*_rows(seen, since, target.uri), ("audit", "on" if audited else "off")]
    output.result(shown, headline, *facts([*rows, ("lock file", seen.uri)]))
    if seen.problem is not None:
        raise typer.Exit(Kind.DATA_CORRUPT.exit_code)


def lock_facts(seen: Inspection) -> dict[str, object]:
    """Return what one look at a lock shows, for programs."""
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


def who(seen: Inspection) -> str:
    """Return the owner in a record, and what wrote it."""
    assert seen.record is not None
    return f"{seen.record.owner}{'' if seen.record.is_ours else ' (a Hudi Java writer)'}"


def _meaning(seen: Inspection) -> str:
    if not seen.exists:
        return "it has never been taken"
    return seen.condition.meaning


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
    rows: list[tuple[str, str | Text]] = [("last owner" if record.expired else "owner", who(seen))]
    if record.is_ours:
        rows.append(("token", str(record.token)))
    if since is not None:
        rows.append(("held since", moment(since)))
    written = "released" if record.expired else "last renewed"
    rows.append((written, f"{duration(seen.written_ago_ms)} ago"))
    left_ms, takeover_ms = seen.expires_in_ms, seen.takeover_in_ms
    if left_ms is not None and takeover_ms is not None:
        when = f"in {duration(left_ms)}" if left_ms >= 0 else f"{duration(left_ms)} ago"
        rows.append(("expires", f"{when} ({moment(record.valid_until_epoch_ms)})"))
        rows.append(("takeover", f"in {duration(takeover_ms)}" if takeover_ms else "possible now"))
    return rows


def held_since(store: ObjectStore, seen: Inspection) -> int | None:
    """Return when the holding began, which only the audit files know."""
    if seen.record is None or seen.record.expired:
        return None
    ending = f"_{seen.record.owner}.jsonl"
    try:
        names = [meta.key.rpartition("/")[2] for meta in audit_files(store)]
    except TidelockError:
        return None
    starts = [name.removesuffix(ending) for name in names if name.endswith(ending)]
    return max((int(start) for start in starts if start.isdecimal()), default=None)
